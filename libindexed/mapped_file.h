// SPDX-License-Identifier: MIT
// MappedFile: a whole file as read-only memory. Owns the mapping; the descriptor is closed once the
// file is mapped, so thousands of datasets fit under a small `ulimit -n`. An empty file is an empty
// span (mmap refuses it). If another process cuts the file short while it is mapped, reading past
// the new end is SIGBUS, as is reading a bad sector: describe_fault() finds the file and the place,
// from a table of all mappings that a signal handler can read. Inside the new last page there is no
// signal: the bytes after the end read as zeros. check_mapped_files() finds that; every output
// calls it before it gets its name (output_file.h).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace indexed {

struct MappingSlot;

/// A read-only mapping of one regular file; move-only; any number of threads may read.
class MappedFile {
 public:
  /// How the bytes will be read; a hint for the kernel's read-ahead.
  enum class Access { normal, sequential, random };

  /// Which changes of the file check_mapped_files() refuses.
  enum class Refuse {
    changes,  ///< any change of its size or modification time while it is mapped
    cuts,  ///< only that it is cut short: for files that stay mapped for hours, to which others may
           ///< append, and which they may touch
  };

  /// An empty span, no file.
  MappedFile() = default;

  /// Maps `path`.
  /// Errors: std::system_error carrying errno and path; also for anything that is not a regular
  /// file.
  explicit MappedFile(const std::string& path, Access access = Access::normal,
                      Refuse refuse = Refuse::changes);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

  /// Tells the kernel that these bytes are not needed soon; they stay readable. Long sequential
  /// reads call it for what they have read, so that a process does not seem as large as the files
  /// that it reads.
  void release(size_t offset, size_t size) const noexcept;
  void release() const noexcept { release(0, size_); }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  MappingSlot* slot_ = nullptr;  // in the table of the signal handler
};

/// For the handler of SIGBUS: if `address` lies in a MappedFile, writes one line without its end to
/// `line` ("PATH: byte N: the file was cut short to M bytes while it was read"), at most `size`
/// bytes, and returns its length; else 0. Async-signal-safe.
size_t describe_fault(const void* address, char* line, size_t size) noexcept;

/// Checks every file that is mapped, and, of those that were mapped before, how each was when its
/// mapping ended. A file that was removed or replaced under its name is still the file that was
/// opened, so only cuts count for it. A cut is noticed wherever it changes a byte: the last byte of
/// the file that is not zero would be zero, or SIGBUS. Any thread may call it.
/// Errors: FormatError "PATH: the file was cut short to M bytes while it was read", or "PATH: the
/// file was changed while it was read", for the first that is found; from then on always, until
/// forget_changed_files().
void check_mapped_files();

/// For a process that goes on with other files after such an error: forgets what was found. What is
/// still mapped is found again.
void forget_changed_files() noexcept;

/// Reads one byte of each page, so that an unreadable page raises SIGBUS here: for bytes that
/// write(2) refused with EFAULT.
void touch(std::span<const std::byte> bytes) noexcept;

}  // namespace indexed
