// SPDX-License-Identifier: MIT
// MappedFile: a whole file as read-only memory. Owns the mapping; the descriptor is closed as soon
// as the mapping stands, so thousands of datasets fit under a small `ulimit -n`. An empty file is
// an empty span (mmap itself refuses it). If another process cuts the file short while it is
// mapped, reading past the new end is SIGBUS.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace indexed {

/// A read-only mapping of one regular file; move-only; any number of threads may read.
class MappedFile {
 public:
  /// How the bytes will be read; a hint for the kernel's read-ahead.
  enum class Access { normal, sequential, random };

  /// An empty span, no file.
  MappedFile() = default;

  /// Maps `path`.
  /// Errors: std::system_error carrying errno and path; also for anything that is not a regular
  /// file.
  explicit MappedFile(const std::string& path, Access access = Access::normal);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

  /// Tells the kernel that these bytes are not needed soon; their contents stay readable. Long
  /// walks call it behind themselves, so that a process does not seem as large as the files it
  /// reads.
  void release(size_t offset, size_t size) const noexcept;
  void release() const noexcept { release(0, size_); }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace indexed
