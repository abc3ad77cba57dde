// SPDX-License-Identifier: MIT
// Files written by torch.save: the ZIP form (torch 1.6 and later) and the stream of pickles before
// it. The file is mapped; its pickle is read as data (pickle.h) and never executed; tensors stay in
// the mapping until copied. Not here: the meaning of the objects (megatron_source.h), the writer
// (torch_writer.h).
// Source: docs/format/torch-file.5.md; torch/serialization.py, inline_container.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "convert/pickle.h"
#include "convert/zip_archive.h"
#include "libindexed/mapped_file.h"

namespace convert {

/// A torch.save file opened for reading.
class TorchFile {
 public:
  /// Whether a storage whose checksum differs from the archive's is an error. torch can be told not
  /// to compute checksums; `ignore` is only for such files.
  enum class Checksums { require, ignore };

  /// Maps `path`, reads its pickle and finds every storage that a tensor needs.
  /// Errors: std::system_error; indexed::FormatError for damage, a TorchScript file, a file of 2016
  /// (tar), big-endian data, or anything that Pickle refuses.
  explicit TorchFile(const std::string& path, Checksums checksums = Checksums::require);

  /// The same for a file inside another: `size` bytes of `file` from `begin`, which must exist, in
  /// the zip form. `name` is for messages. Errors: the same.
  TorchFile(std::shared_ptr<const indexed::MappedFile> file, size_t begin, size_t size,
            const std::string& name, Checksums checksums = Checksums::require);

  /// The saved object.
  Value root() const noexcept { return pickle_->root(); }
  const Pickle& pickle() const noexcept { return *pickle_; }
  /// The budget for traversing the saved object.
  Budget& budget() const noexcept { return *budget_; }
  /// Bytes of the whole file.
  int64_t file_bytes() const noexcept { return static_cast<int64_t>(bytes_.size()); }
  const std::string& path() const noexcept { return path_; }

  /// Copies rows `first` .. `first + count - 1` of `tensor` (its first dimension; a scalar is one
  /// row) to `out`, row-major, whatever its strides. Each storage's checksum is compared once.
  /// Errors: indexed::FormatError when the storage is damaged.
  void read_rows(const PickledTensor& tensor, int64_t first, int64_t count, std::byte* out) const;

  /// Tells the system that the pages of `tensor`'s storage are not needed again soon.
  void release(const PickledTensor& tensor) const noexcept;

 private:
  struct Storage {
    int64_t place = 0;
    int64_t bytes = 0;
    const ZipMember* member = nullptr;  ///< nullptr in a stream of pickles
  };

  void open_zip();
  void open_legacy();
  void add_storage(const PickledTensor& tensor, const Storage& storage);
  const std::byte* checked_storage(const PickledTensor& tensor) const;
  [[noreturn]] void fail(const std::string& why) const;

  std::string path_;
  Checksums checksums_;
  std::shared_ptr<const indexed::MappedFile> file_;
  size_t begin_ = 0;  ///< of the torch.save file in file_
  std::span<const std::byte> bytes_;
  std::shared_ptr<Budget> budget_;
  std::unique_ptr<ZipArchive> zip_;
  std::unique_ptr<Pickle> pickle_;
  std::unordered_map<std::string, Storage> storages_;
  mutable std::mutex mutex_;  ///< of verified_
  mutable std::unordered_set<std::string> verified_;
};

/// Bytes of one element of a tensor's dtype.
int64_t element_bytes(const PickledTensor& tensor) noexcept;

}  // namespace convert
