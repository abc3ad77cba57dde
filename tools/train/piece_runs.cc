// SPDX-License-Identifier: MIT
// Runs: [size, 4 bytes][count, 8 bytes][piece], ascending by piece, in this machine's byte order,
// since the file never outlives the process.
#include "tools/train/piece_runs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <queue>
#include <stdexcept>
#include <system_error>

#include "libindexed/output_file.h"

namespace train {
namespace {

constexpr size_t kHeadBytes = 12;

void write_at(int fd, std::string_view bytes, int64_t offset, const std::string& beside) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      throw std::system_error(errno, std::generic_category(), "scratch file beside " + beside);
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
    offset += wrote;
  }
}

/// Reads one run from its beginning to its end through a buffer.
class RunReader {
 public:
  RunReader(int fd, int64_t begin, int64_t end, size_t buffer_bytes)
      : fd_(fd), next_(begin), end_(end), buffer_(buffer_bytes) {}

  /// Moves to the next piece; false after the last.
  bool next() {
    if (!ensure(kHeadBytes)) return false;
    uint32_t size;
    std::memcpy(&size, buffer_.data() + at_, 4);
    std::memcpy(&count_, buffer_.data() + at_ + 4, 8);
    if (!ensure(kHeadBytes + size)) throw std::runtime_error("scratch file: a run ends in a piece");
    piece_ = std::string_view(buffer_.data() + at_ + kHeadBytes, size);
    at_ += kHeadBytes + size;
    return true;
  }
  std::string_view piece() const { return piece_; }
  int64_t count() const { return count_; }

 private:
  /// Reads until the buffer has `bytes` from the current place on; false at the run's end.
  bool ensure(size_t bytes) {
    while (filled_ - at_ < bytes) {
      if (next_ == end_) {
        if (filled_ == at_) return false;
        throw std::runtime_error("scratch file: a run is cut short");
      }
      std::memmove(buffer_.data(), buffer_.data() + at_, filled_ - at_);
      filled_ -= at_;
      at_ = 0;
      if (buffer_.size() < bytes) buffer_.resize(bytes);
      const size_t wanted = static_cast<size_t>(
          std::min<int64_t>(end_ - next_, static_cast<int64_t>(buffer_.size() - filled_)));
      const ssize_t got = pread(fd_, buffer_.data() + filled_, wanted, next_);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        throw std::system_error(got < 0 ? errno : EIO, std::generic_category(), "scratch file");
      }
      filled_ += static_cast<size_t>(got);
      next_ += got;
    }
    return true;
  }

  int fd_;
  int64_t next_;
  int64_t end_;
  std::vector<char> buffer_;
  size_t at_ = 0;
  size_t filled_ = 0;
  std::string_view piece_;
  int64_t count_ = 0;
};

}  // namespace

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) close(fd_);
}

void PieceRuns::add(const tok::PieceCounts& counts) {
  if (counts.size() == 0) return;
  constexpr size_t kBlockBytes = 1 << 20;
  const auto pieces = counts.sorted();
  int64_t size = 0;
  for (const auto& [piece, count] : pieces) size += static_cast<int64_t>(kHeadBytes + piece.size());
  int64_t at;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (file_.fd() < 0) file_ = ScratchFile(indexed::open_scratch_file(beside_));
    at = end_;
    end_ += size;
    runs_.push_back({at, end_});
  }
  std::string block;
  for (const auto& [piece, count] : pieces) {
    const uint32_t piece_size = static_cast<uint32_t>(piece.size());
    block.append(reinterpret_cast<const char*>(&piece_size), 4);
    block.append(reinterpret_cast<const char*>(&count), 8);
    block.append(piece);
    if (block.size() < kBlockBytes) continue;
    write_at(file_.fd(), block, at, beside_);
    at += static_cast<int64_t>(block.size());
    block.clear();
  }
  write_at(file_.fd(), block, at, beside_);
}

void PieceRuns::sum(int64_t buffer_bytes,
                    const std::function<void(std::string_view, int64_t)>& each) const {
  std::vector<std::unique_ptr<RunReader>> readers;
  const size_t buffer = static_cast<size_t>(
      std::clamp<int64_t>(buffer_bytes / static_cast<int64_t>(runs_.size() + 1), 4 << 10, 1 << 20));
  const auto later = [](const RunReader* a, const RunReader* b) { return a->piece() > b->piece(); };
  std::priority_queue<RunReader*, std::vector<RunReader*>, decltype(later)> queue(later);
  for (const Run& run : runs_) {
    readers.push_back(std::make_unique<RunReader>(file_.fd(), run.begin, run.end, buffer));
    if (readers.back()->next()) queue.push(readers.back().get());
  }
  std::string piece;
  while (!queue.empty()) {
    piece.assign(queue.top()->piece());
    int64_t count = 0;
    while (!queue.empty() && queue.top()->piece() == piece) {
      RunReader* reader = queue.top();
      queue.pop();
      count += reader->count();
      if (reader->next()) queue.push(reader);
    }
    each(piece, count);
  }
}

void LimitFinder::add(std::string_view piece, int64_t count) {
  const size_t bin = static_cast<size_t>(std::min(count, kMany));
  ++pieces_[bin];
  bytes_[bin] += static_cast<int64_t>(piece.size());
}

Limit LimitFinder::find(int64_t memory) const {
  int64_t pieces = 0;
  int64_t bytes = 0;
  size_t least = kMany + 1;
  while (least > 1) {
    const int64_t more_pieces = pieces + pieces_[least - 1];
    const int64_t more_bytes = bytes + bytes_[least - 1];
    if (least <= kMany &&
        static_cast<int64_t>(tok::training_memory_bytes(more_pieces, more_bytes)) > memory) {
      break;
    }
    pieces = more_pieces;
    bytes = more_bytes;
    --least;
  }
  Limit limit{.least_count = static_cast<int64_t>(least)};
  for (size_t count = 1; count < least; ++count) {
    limit.pieces += pieces_[count];
    limit.occurrences += pieces_[count] * static_cast<int64_t>(count);
  }
  return limit;
}

}  // namespace train
