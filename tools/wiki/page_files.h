// SPDX-License-Identifier: MIT
// Where extracted pages go: stdout, or files AA/wiki_00, AA/wiki_01, ..., AB/wiki_00 of a given
// size in a folder, as WikiExtractor lays them. Which page goes into which file depends on sizes
// alone, so any number of workers writes the same files. plan() is cheap and serial, pack() is for
// any thread, write() is serial again.
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
      1 << 20;            ///< a file that holds something is not filled past this; 0: a file a page
  bool compress = false;  ///< bzip2, and names end in .bz2
  indexed::Existing existing = indexed::Existing::refuse;
};

/// Lines that go into one file, one behind the other.
struct Portion {
  int64_t file = 0;
  std::string bytes;
};

/// AA/wiki_00 for 0, AB/wiki_00 for 100; past ZZ the folder's name grows by a letter.
std::string page_file_name(int64_t file);

/// bzip2 of `bytes` as one whole stream; streams one behind the other are a valid file. Any thread.
std::string bzip2_packed(std::string_view bytes);

/// Writes portions. One thread. A file has its name once the next begins, or at finish(). Until
/// then the folder holds kUnfinished, so that after a run that ended early, by whatever cause, the
/// same one goes through: files that it left whole are compared, not refused.
class PageFiles {
 public:
  static constexpr std::string_view kUnfinished = ".unfinished";

  explicit PageFiles(PageFilesOptions options) : options_(std::move(options)) {}

  /// Says which file each line goes to. Call in the order of the pages. What is to be compressed is
  /// held until there is a block's worth, so that the files depend on the lines alone.
  std::vector<Portion> plan(const std::vector<std::string>& lines);

  /// Errors: std::system_error of the file or of stdout.
  void write(const std::vector<Portion>& portions);

  /// Writes what plan() holds and commits the last file. Without it the file under work is removed.
  void finish();

  int64_t files() const { return open_file_ + 1; }
  int64_t bytes_written() const { return bytes_written_; }

 private:
  void open(int64_t file);
  void end_portion(std::vector<Portion>& portions);
  void begin_folder();

  PageFilesOptions options_;
  int64_t planned_file_ = 0;
  int64_t planned_bytes_ = 0;  // in the file that plan() is at
  Portion portion_;            // of that file, not yet given out
  int64_t open_file_ = -1;
  int64_t bytes_written_ = 0;
  std::unique_ptr<indexed::OutputFile> output_;
};

}  // namespace wiki
