// SPDX-License-Identifier: MIT
// A ZIP file in memory, as torch.save writes them: the checked central directory, and each member's
// bytes in place. Supports Zip64, stored members without copying, deflated ones of moderate size;
// not encryption, other methods or archives split over disks. Not here: the members of a checkpoint
// (torch_file.h). Units: bytes.
// Source: PKWARE APPNOTE.TXT 6.3.10; docs/format/torch-file.5.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/budget.h"

namespace convert {

/// A member of the central directory, with its place from its own header.
struct ZipMember {
  std::string name;
  uint32_t crc32 = 0;
  int64_t stored_bytes = 0;  ///< in the file
  int64_t bytes = 0;         ///< after inflating
  int64_t header = 0;        ///< of the member's own header
  int64_t place = 0;         ///< of the first stored byte
  bool deflated = false;
};

/// A ZIP archive in memory.
class ZipArchive {
 public:
  /// Reads the directory of the archive that fills `file`, charging `budget`; `path` is for
  /// messages. Errors: indexed::FormatError for anything that is not a complete ZIP file, names
  /// that leave the archive or occur twice, members that leave the file or overlap one another or
  /// the directory.
  ZipArchive(std::span<const std::byte> file, std::string path, Budget& budget);

  /// All members in the order of the directory.
  const std::vector<ZipMember>& members() const noexcept { return members_; }

  /// The member of this name, or nullptr.
  const ZipMember* find(const std::string& name) const noexcept;

  /// The bytes of a stored member. Errors: indexed::FormatError when it is deflated.
  std::span<const std::byte> stored(const ZipMember& member) const;

  /// The bytes of a member, inflated when need be, at most `limit`.
  /// Errors: indexed::FormatError for a damaged stream, more than `limit` bytes, or a deflated
  /// member of more than 1 MiB that grows more than 64-fold, which no pickle does.
  std::vector<std::byte> inflate(const ZipMember& member, int64_t limit) const;

  /// Whether the member's bytes have the directory's checksum. Stored members only. `done` is
  /// called after each 16 MiB with their place and size, so that pages can be released.
  bool intact(const ZipMember& member,
              const std::function<void(size_t place, size_t size)>& done = {}) const;

 private:
  void read_directory();
  void read_member(int64_t& position, int64_t end);
  void locate(ZipMember& member, int64_t header) const;
  void refuse_overlaps(int64_t directory) const;
  uint64_t number(int64_t position, int bytes) const;
  [[noreturn]] void fail(const std::string& why) const;

  std::span<const std::byte> file_;
  std::string path_;
  Budget& budget_;
  std::vector<ZipMember> members_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace convert
