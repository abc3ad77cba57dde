// SPDX-License-Identifier: MIT
// Room: tools/train. Counted pieces that do not fit in memory: sorted runs in one unnamed file
// beside the output, and their exact sum. Counts are never approximate. What still does not fit in
// memory in the end is left out by a rule that the caller reports: all pieces that occur less often
// than a limit. Not here: cutting and counting (bpe-train.cc), learning (libtok/train.h).
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libtok/train.h"

namespace train {

/// Owns the descriptor of a scratch file.
class ScratchFile {
 public:
  ScratchFile() = default;
  explicit ScratchFile(int fd) : fd_(fd) {}
  ScratchFile(ScratchFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ScratchFile& operator=(ScratchFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ScratchFile();
  int fd() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// Sorted runs of counted pieces on disk. add() may be called by several threads at once.
class PieceRuns {
 public:
  /// The file is created beside `beside` when the first run is added.
  explicit PieceRuns(std::string beside) : beside_(std::move(beside)) {}

  /// Writes a run. Errors: std::system_error (a full disk).
  void add(const tok::PieceCounts& counts);

  bool empty() const noexcept { return runs_.empty(); }
  int64_t bytes() const noexcept { return end_; }

  /// Calls `each` with every distinct piece and its total count, ascending by bytes. The view is
  /// valid during the call. Memory: at most about `buffer_bytes`.
  /// Errors: std::system_error; std::runtime_error if the file has been changed.
  void sum(int64_t buffer_bytes,
           const std::function<void(std::string_view piece, int64_t count)>& each) const;

 private:
  struct Run {
    int64_t begin;
    int64_t end;
  };

  std::string beside_;
  ScratchFile file_;
  std::mutex mutex_;
  std::vector<Run> runs_;
  int64_t end_ = 0;
};

/// The lowest count for which all pieces with at least that count fit into `memory` bytes for
/// learning, and what that leaves out.
struct Limit {
  int64_t least_count = 1;
  int64_t pieces = 0;       ///< left out
  int64_t occurrences = 0;  ///< of these pieces
};

/// Finds that limit from the number of pieces with each count. Counts of kMany and above are one
/// class, which is never left out.
class LimitFinder {
 public:
  static constexpr int64_t kMany = 4096;

  LimitFinder() : pieces_(kMany + 1), bytes_(kMany + 1) {}
  void add(std::string_view piece, int64_t count);
  Limit find(int64_t memory) const;

 private:
  std::vector<int64_t> pieces_;
  std::vector<int64_t> bytes_;
};

}  // namespace train
