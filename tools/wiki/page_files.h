// SPDX-License-Identifier: MIT
// Where extracted pages go: stdout, or files AA/wiki_00, AA/wiki_01, ..., AB/wiki_00 of a given
// size in a folder, like WikiExtractor's. Only sizes decide which page goes into which file, so any
// number of workers writes the same files. plan() is cheap and serial, pack() may run on any
// thread, write() is serial.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libindexed/output_file.h"

namespace wiki {

/// Where pages go.
struct PageFilesOptions {
  std::string single_file;  ///< not empty: everything goes into this file, between head and tail
  std::string head, tail;
  std::string folder;  ///< "-": stdout
  int64_t file_bytes =
      1 << 20;            ///< a page that would pass this begins a new file; 0: one file for each
                          ///< page
  bool compress = false;  ///< bzip2, and names end in .bz2
  indexed::Existing existing = indexed::Existing::refuse;
};

/// Consecutive lines of one file.
struct Portion {
  int64_t file = 0;
  std::string bytes;
};

/// AA/wiki_00 for 0, AB/wiki_00 for 100; past ZZ the folder's name grows by a letter.
std::string page_file_name(int64_t file);

/// bzip2 of `bytes` as one complete stream; concatenated streams are a valid file. Any thread.
std::string bzip2_packed(std::string_view bytes);

/// Number of the file of that name, packed or not; nullopt if `name` is none of page_file_name's.
std::optional<int64_t> page_file_number(std::string_view name);

/// Writes portions. One thread. A file gets its name when the next begins, or at finish(). Until
/// then the folder contains kUnfinished, so that after a run that ended early, for whatever reason,
/// the same one succeeds: files that it completed are compared, not refused. In the end the folder
/// has no files but this run's, so that its readers get every page once.
class PageFiles {
 public:
  static constexpr std::string_view kUnfinished = ".unfinished";

  explicit PageFiles(PageFilesOptions options) : options_(std::move(options)) {}

  /// Call before anything is read. Errors: std::system_error (EEXIST) for files of an earlier run
  /// that is not replaced.
  void refuse_earlier() const;

  /// Decides which file each line goes to. Call in the order of the pages. Lines to be compressed
  /// are held until they fill a block, so that the files depend only on the lines.
  std::vector<Portion> plan(const std::vector<std::string>& lines);

  /// Errors: std::system_error of the file or of stdout.
  void write(const std::vector<Portion>& portions);

  /// Writes what plan() holds and commits the last file. Without it the unfinished file is removed.
  /// Removes surplus files of an earlier run that is replaced.
  /// Errors: those of write(); std::system_error (EEXIST) if they may not be replaced.
  void finish();

  int64_t files() const { return open_file_ + 1; }
  int64_t bytes_written() const { return bytes_written_; }

 private:
  void open(int64_t file);
  void end_portion(std::vector<Portion>& portions);
  void begin_folder();
  bool in_folder() const { return options_.single_file.empty() && options_.folder != "-"; }
  bool is_own(std::string_view name) const;
  void remove_surplus() const;

  PageFilesOptions options_;
  int64_t planned_file_ = 0;
  int64_t planned_bytes_ = 0;  // in plan()'s current file
  Portion portion_;            // of that file, not yet returned
  int64_t open_file_ = -1;
  int64_t bytes_written_ = 0;
  std::unique_ptr<indexed::OutputFile> output_;
};

}  // namespace wiki
