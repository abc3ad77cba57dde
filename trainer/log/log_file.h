// LogFile: writes lines to a file that may fail for a while. Training never waits for a disk and
// never ends because of one: lines that cannot be written are kept in memory up to a bound and
// tried again. Not here: the content of lines (iteration_line.h, tensorboard.h). May include:
// libindexed.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace trainer {

/// Where a log goes, and what to do when writing fails.
struct LogFileOptions {
  std::string path = {};      ///< Also its name in messages.
  int descriptor = -1;        ///< An open descriptor, which `path` names; otherwise the file is
                              ///< opened.
  bool exclusive = false;     ///< A regular file is locked: nobody else may write it so.
  std::string noun = "line";  ///< The name of an entry in messages.
  std::string head = {};      ///< The beginning of a new file.
  /// Called once before the file is first opened; its result is written first.
  /// Errors: std::system_error.
  std::function<std::string()> prepare = {};
  /// The entry that replaces `lost` missing entries, the last of which was of `iteration`.
  std::function<std::string(int64_t lost, int64_t iteration)> gap = {};
  /// Prints a message. Called on the first failure, on the first loss, and when writing works
  /// again.
  std::function<void(const std::string&)> say = {};
  size_t most_kept_bytes = size_t{16} << 20;
};

/// A file that only grows, by complete entries in order. State: one thread at a time. What flush()
/// has written survives the process.
class LogFile {
 public:
  /// Opens the file, creating its folder if need be.
  /// Errors: std::system_error for problems that a retry cannot solve (a folder in its place, no
  /// permission). A full or failing disk is not an error, neither here nor later.
  /// std::runtime_error for an exclusive file that another trainer writes.
  explicit LogFile(LogFileOptions options);
  /// Tries a last time; reports how many entries were lost.
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Takes an entry, including its line end; it is written by flush(), or with 64 KiB of others.
  void add(std::string entry, int64_t iteration = 0);
  /// Writes everything, or keeps it: above the bound the oldest entries are dropped. Errors: with a
  /// descriptor, those of the constructor, at the first try.
  void flush();

  const std::string& path() const noexcept { return options_.path; }

 private:
  struct Entry {
    std::string text;
    int64_t iteration = 0;
  };

  void open();
  void open_locked();
  void close() noexcept;
  void write_all();
  size_t write(const std::string& bytes);
  [[noreturn]] void fail() const;
  std::string next_batch();
  void consume(size_t bytes);
  void refused(int error);
  void forget_oldest();
  void say(const std::string& line) const;

  LogFileOptions options_;
  int fd_ = -1;
  bool prepared_ = false;
  bool strict_ = true;  ///< Nothing was tried yet: a problem that a retry cannot solve is an error.
  std::string head_;    ///< The part of the head that is not yet in the file.
  std::deque<Entry> kept_;
  size_t kept_bytes_ = 0;
  size_t done_bytes_ = 0;   ///< Bytes of the first entry that are in the file.
  int64_t size_bytes_ = 0;  ///< Size of the file after the last write.
  int refusal_ = 0;         ///< Why the last try failed; 0: it succeeded.
  int64_t refused_entries_ = 0;
  int64_t lost_ = 0, lost_iteration_ = 0;  ///< Since the last gap entry in kept_.
  int64_t gap_lost_ = 0;                   ///< The entries that the gap at the front of kept_
                                           ///< replaces.
  int64_t all_lost_ = 0;                   ///< Since the first refusal.
};

/// Whether a call with this error may succeed later without changing the command line: a full or
/// failing disk, a quota, a limit, too few descriptors.
bool may_pass(int error) noexcept;

}  // namespace trainer
