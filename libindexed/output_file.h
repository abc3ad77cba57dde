// SPDX-License-Identifier: MIT
// OutputFile: a file that appears only when it is complete. It is written as `.NAME.PID.tmp` beside
// the target (temporary_names.h) and takes the target's name in commit(): flush, fsync, rename,
// fsync of the folder. The destructor unlinks an uncommitted temporary file, and so does a signal
// handler, from a fixed table (remove_temporaries). After SIGKILL the next OutputFile for the same
// target removes it. commit_set() gives several files their names in an order that never leaves an
// index beside data that it does not describe; signals wait until all have names (NamingSection).
// After a SIGKILL in between, left_unfinished() is true and Existing::same accepts the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace indexed {

/// What to do when the target exists.
enum class Existing {
  refuse,
  replace,
  replace_link,  ///< as replace, but a link is itself replaced: what it leads to is another's
  same,          ///< it stays if it has the same bytes; else commit() refuses
};

/// The temporary files of processes that were killed while they wrote `path`: no running process
/// holds them. Call before opening an OutputFile for the same path, which removes them.
std::vector<std::string> left_temporaries(const std::string& path);

/// Whether there is one.
bool left_unfinished(const std::string& path);

/// The file that an OutputFile for `path` makes or replaces: `path`, or what a link of this name
/// leads to. Errors: std::system_error for a link that leads nowhere, or to an open file.
std::string target_of(const std::string& path);

/// Refuses, before any work, what an OutputFile for `path` would refuse when it is opened. Errors:
/// std::system_error as there, EBUSY excepted.
void refuse_bad_target(const std::string& path, Existing existing);

/// An open file that has no name, as memory from memfd_create(); and what messages call it.
struct UnnamedFile {
  int fd = -1;
  std::string name;
};

/// Owns one temporary file until commit() or destruction. One thread at a time, except for
/// write_at().
class OutputFile {
 public:
  /// Opens the temporary file beside `path`; `path` itself is unchanged until commit. A symbolic
  /// link is followed, unless `existing` is replace_link. The new file has the permissions, group
  /// and access list (acl(5)) of one that it replaces; where the system refuses the group or the
  /// list, nobody but the owner gets a right that they did not have.
  /// Errors: std::system_error carrying path and errno: EEXIST when the target exists and
  /// `existing` is refuse, ENOTSUP when it is not a regular file, EBUSY when another live process
  /// writes the same target.
  explicit OutputFile(std::string path, Existing existing = Existing::refuse);

  /// Writes over an unnamed file from its first byte on, and leaves the caller's descriptor and its
  /// offset alone. commit() cuts it to size(); without it, what was written stays. Errors:
  /// std::system_error.
  explicit OutputFile(const UnnamedFile& file);

  /// For one file of several that must come from one run: refuses a target that another process is
  /// writing, also when both replace it. Of two that ask at the same time one is refused. Waits for
  /// up to two seconds. A file system without locks shows no other. Errors: std::system_error,
  /// EBUSY.
  void refuse_second_writer() const;

  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Appends bytes, through a buffer.
  /// Errors: std::system_error carrying path and errno (ENOSPC, EFBIG, EIO).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// Appends up to `bytes` bytes of another file from `offset` on, copied by the kernel: they do
  /// not pass through this process, and are shared if the file system supports that. Returns how
  /// many; 0 if the kernel refuses or fails for any reason: then read and write them, which works
  /// or gives the error.
  int64_t append_from(int fd, int64_t offset, int64_t bytes);

  /// Writes bytes at `offset`, bypassing the buffer; size() grows if they end past it. Any number
  /// of threads may call it at the same time for disjoint ranges, if none calls write().
  void write_at(int64_t offset, std::span<const std::byte> bytes);

  /// Has the system begin to write these bytes, which write_at() wrote, to the disk, so that
  /// sync() finds little left to wait for. Any thread.
  void begin_writing_back(int64_t offset, int64_t bytes) noexcept;

  /// Hands the buffer to the operating system.
  void flush();

  /// flush(), and frees the buffer. Ends all writing.
  void end_writing();

  /// end_writing() and fsync; the temporary file keeps its name.
  void sync();

  /// sync(), then renames to the target and syncs its folder; after that this object is empty.
  /// Errors: std::system_error; FormatError if a mapped input was changed while it was read
  /// (check_mapped_files). On failure the destructor removes the temporary file and the old target,
  /// if any, stays; where only the folder could not be synced, the file has its name, and the error
  /// says so.
  void commit();

  /// Bytes written so far, including the buffer's.
  int64_t size() const noexcept { return size_; }

  /// The target, as given.
  const std::string& path() const noexcept { return path_; }

  /// The descriptor of the temporary file, for pread; flush() first.
  int fd() const noexcept { return fd_; }

 private:
  friend void sync_all(std::span<OutputFile* const> files);
  friend void commit_set(std::span<OutputFile* const> files, size_t num_last,
                         std::span<const std::string> surplus);

  void open_temporary(mode_t mode);
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

/// sync() of all. Writing to the disk starts for all of them before the first wait: a journaling
/// file system then needs one commit, not one for each file.
void sync_all(std::span<OutputFile* const> files);

/// Commits files that belong together, so that the names of the last `num_last` mean that all are
/// complete: syncs all; removes the old targets of the last ones, and `surplus`, files of the old
/// set that the new one does not have; renames from the first to the last; syncs the folders. For a
/// dataset: {manifest, bin, idx}. For several, all indices are last, so that no reader finds old
/// and new ones together. Errors: those of commit(); then a last file that has not got its name
/// exists under neither, new or old, unless nothing was changed yet. Where only the last sync of
/// the folders fails, all have their names, and the error says so.
void commit_set(std::span<OutputFile* const> files, size_t num_last = 1,
                std::span<const std::string> surplus = {});

/// While one exists, a signal that ends the process waits (remove_temporaries), so that outputs
/// that belong together get their names all at once or not at all. The end of the last one raises
/// the pending signal. Once a signal's files go, the constructor never returns. If an error ends
/// one after a first rename, the temporary files that exist then stay for left_unfinished(); those
/// of later OutputFiles are removed as always.
class NamingSection {
 public:
  NamingSection() noexcept;
  ~NamingSection();
  NamingSection(const NamingSection&) = delete;
  NamingSection& operator=(const NamingSection&) = delete;

 private:
  int errors_before_;
};

/// A finished file that has no final name yet, or a folder of such files, two levels at most: as
/// long as this object exists, remove_temporaries() removes it, too, a folder if it is empty then.
/// Made before the file or folder, so that no moment is left out.
class RemoveOnSignal {
 public:
  /// Errors: std::system_error if there are too many.
  explicit RemoveOnSignal(const std::string& path);
  RemoveOnSignal(RemoveOnSignal&& other) noexcept;
  RemoveOnSignal& operator=(RemoveOnSignal&&) = delete;
  ~RemoveOnSignal();

 private:
  int slot_;
};

/// For the handler of a signal that ends the process: unlinks the temporary files of all
/// OutputFiles, after which none may be used, and every file and empty folder that a RemoveOnSignal
/// holds. Returns true, and the process must end: a NamingSection of another thread waits for that.
/// False if the handler must return, because files are being renamed: the end of that raises
/// `signal`, if it is not 0. Async-signal-safe.
bool remove_temporaries(int signal) noexcept;

/// Opens an unnamed file in the folder of `beside` for reading and writing, which vanishes when
/// closed: scratch space on the output's disk. Returns the descriptor. Errors: std::system_error.
int open_scratch_file(const std::string& beside);

}  // namespace indexed
