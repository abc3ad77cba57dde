// SPDX-License-Identifier: MIT
// OutputFile: a file that is not there until it is whole. It is written as `.NAME.PID.tmp` beside
// the target and takes the target's name in commit(): flush, fsync, rename, fsync of the folder. A
// destructor without commit unlinks the temporary, and so does a signal handler, from a fixed table
// (remove_temporaries). What SIGKILL leaves behind is removed by the next OutputFile for the same
// target. commit_set() gives several files their names in the order that never leaves an index
// beside data it does not describe; signals wait until all have theirs (NamingSection), and what a
// SIGKILL in between left is told by left_unfinished() and taken over by Existing::same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace indexed {

/// What to do when the target exists.
enum class Existing {
  refuse,
  replace,
  same,  ///< it stays if it holds the same bytes; else commit() refuses
};

/// Whether a process that was killed was writing `path`: its temporary is still there, and no live
/// process holds it. Ask before opening an OutputFile for the same path, which removes it.
bool left_unfinished(const std::string& path);

/// Owns one temporary file until commit() or destruction. Not for several threads at once,
/// write_at() excepted.
class OutputFile {
 public:
  /// Opens the temporary beside `path`; `path` itself stays as it is until commit. A symbolic link
  /// is followed. Errors: std::system_error carrying path and errno: EEXIST when the target exists
  /// and `existing` is refuse, ENOTSUP when it is not a regular file, EBUSY when another live
  /// process writes the same target.
  explicit OutputFile(std::string path, Existing existing = Existing::refuse);

  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Appends bytes, through a buffer.
  /// Errors: std::system_error carrying path and errno (ENOSPC, EFBIG, EIO).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// Appends up to `bytes` bytes that another file has from `offset` on, where the kernel copies
  /// between the two: they pass through no memory of this process, and are shared where the file
  /// system can. Returns how many; 0 where that is refused or goes wrong, for whatever reason:
  /// reading and writing them does it, or says why not.
  int64_t append_from(int fd, int64_t offset, int64_t bytes);

  /// Writes bytes at a place, past the buffer; size() grows when they end behind it. Any number of
  /// threads may call it at the same time for disjoint places, if none calls write().
  void write_at(int64_t offset, std::span<const std::byte> bytes);

  /// Has the system begin to write these bytes, which write_at() wrote, to the disk, so that
  /// sync() finds little left to wait for. Any thread.
  void begin_writing_back(int64_t offset, int64_t bytes) noexcept;

  /// Hands the buffer to the operating system.
  void flush();

  /// flush(), and gives the buffer's memory back. Ends all writing.
  void end_writing();

  /// end_writing() and fsync; the temporary keeps its name.
  void sync();

  /// sync(), then the target has its name and its folder is synced; after that this object is
  /// empty. Errors: std::system_error; on failure the temporary is removed on destruction and the
  /// old target, if any, stays.
  void commit();

  /// Bytes written so far, the buffer's included.
  int64_t size() const noexcept { return size_; }

  /// The target, as given.
  const std::string& path() const noexcept { return path_; }

  /// The descriptor of the temporary, for pread; flush() first.
  int fd() const noexcept { return fd_; }

 private:
  friend void sync_all(std::span<OutputFile* const> files);
  friend void commit_set(std::span<OutputFile* const> files);

  void open_temporary();
  [[noreturn]] void fail_writing(std::span<const std::byte> bytes) const;
  void write_fully(const std::byte* data, size_t size);
  void start_writing_back(int64_t written) noexcept;
  void check_target() const;
  void rename_into_place();
  void forget() noexcept;

  std::string path_;
  std::string target_;     // path_ with links resolved
  std::string temporary_;  // empty once committed
  Existing existing_;
  int fd_ = -1;
  int slot_ = -1;  // in the table of the signal handler
  int64_t size_ = 0;
  int64_t write_behind_ = 0;  // bytes up to here were sent towards the disk
  bool synced_ = false;
  size_t buffered_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
};

/// sync() of all. The disk begins on all of them before the first is waited for: a file system that
/// keeps a journal then has one turn to wait for, not one a file.
void sync_all(std::span<OutputFile* const> files);

/// Commits files that belong together, so that the last one's name says that all are whole: syncs
/// all; removes the old target of the last; renames from the first to the last; syncs the folders.
/// For a dataset: {manifest, bin, idx}. Errors: std::system_error; then the last file has no name,
/// new or old, unless nothing was touched yet.
void commit_set(std::span<OutputFile* const> files);

/// While one lives, a signal that ends the process waits (remove_temporaries): outputs that belong
/// together get their names all or not at all. The end of the last one raises what came. Where an
/// error ends one after a first name was given, temporaries stay for left_unfinished().
class NamingSection {
 public:
  NamingSection() noexcept;
  ~NamingSection();
  NamingSection(const NamingSection&) = delete;
  NamingSection& operator=(const NamingSection&) = delete;

 private:
  int errors_before_;
};

/// For the handler of a signal that ends the process: unlinks the temporaries of all live
/// OutputFiles, after which none is used again, and returns true; false when the handler has to
/// return instead, because names are being given. Async-signal-safe.
bool remove_temporaries(int signal) noexcept;

/// An unnamed file in the folder of `beside`, read and written, gone when closed: scratch space on
/// the disk that the output will need anyway. Returns the descriptor. Errors: std::system_error.
int open_scratch_file(const std::string& beside);

}  // namespace indexed
