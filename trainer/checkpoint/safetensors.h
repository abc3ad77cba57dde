// SPDX-License-Identifier: MIT
// One safetensors file: a JSON header followed by named tensors. The reader maps the file and
// checks everything that the format promises before it returns a byte. The writer gets all names
// and shapes first and then streams the bytes. So neither keeps a tensor in memory. Which tensors
// belong to a checkpoint or a Hugging Face folder is decided by their own code (trainer/checkpoint,
// convert/hf_folder.h). Units: bytes unless named otherwise; shapes are whole tensors, row-major.
// Source: docs/format/hf-folder.5.md; huggingface/safetensors, "Format".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"

namespace trainer {

/// Bits of one element of a safetensors dtype ("F32", "BF16", "I64", "F4", ...); 0 when the name is
/// unknown.
int safetensors_dtype_bits(std::string_view dtype) noexcept;

/// What the header says about one tensor.
struct TensorEntry {
  std::string name;
  std::string dtype;           ///< safetensors' own spelling, upper case.
  std::vector<int64_t> shape;  ///< {} is a scalar; a zero is legal.
  int64_t begin = 0;  ///< First byte, counted from the end of the header; set by reader and writer.
  int64_t end = 0;    ///< One past the last byte.

  /// The tensor's bytes in the file.
  int64_t bytes() const noexcept { return end - begin; }
};

/// Bytes that `shape` elements of `dtype` take.
/// Errors: indexed::FormatError for an unknown dtype, a negative dimension, an overflow, or a size
/// that is not whole bytes.
int64_t safetensors_bytes(std::string_view dtype, std::span<const int64_t> shape);

/// A safetensors file opened for reading.
/// State: constant after open(); any number of threads may read.
class SafetensorsFile {
 public:
  /// Maps `path` and checks its header: size, JSON, dtypes, shapes, and that the tensors fill the
  /// rest of the file without gaps or overlaps.
  /// Errors: std::system_error; indexed::FormatError for anything the format forbids.
  static SafetensorsFile open(const std::string& path);

  /// The file's path, for messages.
  const std::string& path() const noexcept { return path_; }

  /// All tensors in the order of their bytes.
  const std::vector<TensorEntry>& tensors() const noexcept { return tensors_; }

  /// The tensor called `name`, or nullptr. Valid as long as this object lives.
  const TensorEntry* find(std::string_view name) const noexcept;

  /// The tensor called `name`. Errors: indexed::FormatError when the file has none.
  const TensorEntry& at(std::string_view name) const;

  /// The bytes of one of this file's entries, as they are in the file; aligned to 8 at most.
  std::span<const std::byte> bytes(const TensorEntry& entry) const noexcept;

  /// Tells the system that the pages of `entry` are not needed again soon, so that reading a large
  /// file keeps little memory resident. The bytes stay readable.
  void release(const TensorEntry& entry) const noexcept { release(entry, 0, entry.bytes()); }

  /// The same for bytes begin .. end - 1 of the tensor.
  void release(const TensorEntry& entry, int64_t begin, int64_t end) const noexcept;

  /// The "__metadata__" strings.
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

 private:
  SafetensorsFile() = default;

  std::string path_;
  indexed::MappedFile file_;
  int64_t data_start_ = 0;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t>
      by_name_;  ///< Views into tensors_, whose buffer never moves.
  std::map<std::string, std::string> metadata_;
};

/// A safetensors file being written. It does not exist under its name before commit(); destroying
/// an uncommitted writer removes what was written. State: one thread at a time.
class SafetensorsWriter {
 public:
  /// Starts the file: `tensors` give name, dtype and shape in the order in which the bytes will
  /// come; their begin and end are set here. The data starts at a multiple of 64 bytes.
  /// Errors: std::system_error (EEXIST when `path` exists and `existing` is refuse);
  /// indexed::FormatError for a duplicate name, a name that is not UTF-8, a bad dtype or shape, or
  /// a header over 100 MB.
  SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors,
                    const std::map<std::string, std::string>& metadata,
                    indexed::Existing existing = indexed::Existing::refuse);

  /// The same into a file that has no name, over what is in it. Errors: std::system_error;
  /// indexed::FormatError as above.
  SafetensorsWriter(const indexed::UnnamedFile& file, std::vector<TensorEntry> tensors,
                    const std::map<std::string, std::string>& metadata);

  /// The tensors with their places, in writing order.
  const std::vector<TensorEntry>& tensors() const noexcept { return tensors_; }

  /// Appends bytes to tensor `name`, which must be the first incomplete one; a tensor may be
  /// written in many pieces. Zero-size tensors need no call.
  /// Errors: std::system_error; std::logic_error when `name` is not next or has all its bytes.
  void append(std::string_view name, std::span<const std::byte> bytes);

  /// Writes bytes `at` .. of tensors()[i], each only once; any number of threads at the same time,
  /// but not mixed with append(). Writing to the disk starts immediately. Errors:
  /// std::system_error; std::logic_error when the bytes go beyond the tensor.
  void write_at(size_t i, int64_t at, std::span<const std::byte> bytes);

  /// Bytes of the whole file, header included.
  int64_t file_bytes() const noexcept;

  /// Flushes and fsyncs; ends all writing. Returns the descriptor of the file, which has no name
  /// yet. Errors: std::system_error.
  int sync();

  /// Flushes, fsyncs and renames.
  /// Errors: std::system_error; std::logic_error when bytes of a tensor are missing.
  void commit();

 private:
  void write_header(const std::map<std::string, std::string>& metadata);
  void skip_whole_tensors() noexcept;

  std::string path_;
  std::vector<TensorEntry> tensors_;
  size_t current_ = 0;               ///< Index of the tensor being written.
  int64_t written_ = 0;              ///< Bytes of data appended so far.
  std::atomic<int64_t> placed_ = 0;  ///< Bytes of data that write_at() wrote.
  int64_t data_start_ = 0;
  indexed::OutputFile out_;
};

}  // namespace trainer
