// LogFile: lines on their way into a file that may refuse them for a while. Training never waits
// for a disk and never ends for one: what is not taken is kept in memory up to a bound and tried
// again. Not here: what lines say (iteration_line.h, tensorboard.h). May include: libindexed.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

namespace trainer {

/// Where a log goes, and what is done when that is refused.
struct LogFileOptions {
  std::string path = {};      ///< Also what messages call it.
  int descriptor = -1;        ///< An open descriptor that `path` is a name for; else it is opened.
  std::string noun = "line";  ///< What an entry is called in messages.
  std::string head = {};      ///< What a new file begins with.
  /// Done once before the file is first opened; what it returns is written before all else.
  /// Errors: std::system_error.
  std::function<std::string()> prepare = {};
  /// The entry that stands where `lost` entries are missing, the last of them of `iteration`.
  std::function<std::string(int64_t lost, int64_t iteration)> gap = {};
  /// Says a line to people. Called on the first refusal, on the first loss, and when it is over.
  std::function<void(const std::string&)> say = {};
  size_t most_kept_bytes = size_t{16} << 20;
};

/// A file that only grows, by whole entries in the order they came.
/// State: one thread at a time. What flush() has handed over survives the process.
class LogFile {
 public:
  /// Opens the file, creating its folder if need be.
  /// Errors: std::system_error for what no retry mends (a folder in its place, no permission). A
  /// full or failing disk is no error, neither here nor later.
  explicit LogFile(LogFileOptions options);
  /// Tries a last time; says how many entries were lost.
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Takes an entry, its end included; it waits for flush(), or for 64 KiB.
  void add(std::string entry, int64_t iteration = 0);
  /// Hands everything to the system, or keeps it: above the bound the oldest entries go.
  /// Errors: of a descriptor, the constructor's, at the first try.
  void flush();

  const std::string& path() const noexcept { return options_.path; }

 private:
  struct Entry {
    std::string text;
    int64_t iteration = 0;
  };

  void open();
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
  bool strict_ = true;  ///< Nothing was tried yet: what no retry mends is an error.
  std::string head_;    ///< What of the head is not in the file yet.
  std::deque<Entry> kept_;
  size_t kept_bytes_ = 0;
  size_t done_bytes_ = 0;   ///< Of the first entry, that are in the file.
  int64_t size_bytes_ = 0;  ///< Of the file, after what was written last.
  int refusal_ = 0;         ///< Why the last try failed; 0: it did not.
  int64_t refused_entries_ = 0;
  int64_t lost_ = 0, lost_iteration_ = 0;  ///< Since the last gap that is in kept_.
  int64_t gap_lost_ = 0;                   ///< What the gap at the front of kept_ tells of.
  int64_t all_lost_ = 0;                   ///< Since the first refusal.
};

/// Whether a call that failed so may succeed later without anybody changing a command line: a full
/// or failing disk, a quota, a limit, too few descriptors.
bool may_pass(int error) noexcept;

}  // namespace trainer
