// SPDX-License-Identifier: MIT
// Room: tools/stream. Threads take parts in order; the calling one sinks. Pieces of the first part
// that is not at its end are let in whatever waits, so that the run goes on.
#include "tools/stream/ordered_parts.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace stream {
namespace {

/// A part that is worked on, or was and has pieces left.
struct Lane {
  std::deque<Piece> pieces;
  bool ended = false;
  std::exception_ptr failure;  ///< behind the pieces
};

/// Unwinds a part whose pieces nobody takes any more.
struct Stopped {};

class OrderedParts {
 public:
  explicit OrderedParts(const OrderedPartsJob& job) : job_(job) {}

  ~OrderedParts() { stop(); }

  void run() {
    start_threads();
    while (sink_next()) {
    }
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void start_threads() {
    for (int64_t i = 0; i < job_.threads; ++i) {
      try {
        threads_.emplace_back([this] { serve(); });
      } catch (const std::system_error&) {
        if (i == 0) throw;
        return;  // no more are to be had: those that are there do the work
      }
    }
  }

  void stop() {
    const Lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  void serve() {
    while (true) {
      PartWork part;
      Lane* lane = nullptr;
      {
        const Lock turn(source_mutex_);
        if (!wait_for_room()) return;
        lane = open_next(part);
      }
      if (lane == nullptr) return;
      if (part) work(part, *lane);
    }
  }

  /// False where nothing more is to be read.
  bool wait_for_room() {
    Lock lock(mutex_);
    changed_.wait(lock, [&] {
      return stopped_ || source_ended_ || lanes_.empty() || waiting_bytes_ < job_.memory;
    });
    return !stopped_ && !source_ended_;
  }

  /// The lane of the next part; null at the end. A source that fails is a part that fails.
  Lane* open_next(PartWork& part) {
    std::exception_ptr failure;
    try {
      part = job_.source();
    } catch (...) {
      failure = std::current_exception();
    }
    const Lock lock(mutex_);
    source_ended_ = !part;
    changed_.notify_all();
    if (!part && !failure) return nullptr;
    Lane& lane = lanes_.emplace_back();
    lane.failure = failure;
    lane.ended = failure != nullptr;
    return &lane;
  }

  void work(const PartWork& part, Lane& lane) {
    std::exception_ptr failure;
    try {
      part([&](Piece&& piece) { give(std::move(piece), lane); });
    } catch (const Stopped&) {
      return;
    } catch (...) {
      failure = std::current_exception();
    }
    const Lock lock(mutex_);
    lane.failure = failure;
    lane.ended = true;
    changed_.notify_all();
  }

  void give(Piece&& piece, Lane& lane) {
    const auto bytes = static_cast<int64_t>(piece.bytes.size());
    Lock lock(mutex_);
    changed_.wait(lock, [&] {
      const bool awaited = &lane == &lanes_.front() && lane.pieces.empty();
      return stopped_ || awaited || waiting_bytes_ + bytes <= job_.memory;
    });
    if (stopped_) throw Stopped{};
    waiting_bytes_ += bytes;
    lane.pieces.push_back(std::move(piece));
    changed_.notify_all();
  }

  /// False at the end.
  bool sink_next() {
    Lock lock(mutex_);
    changed_.wait(lock, [&] {
      if (lanes_.empty()) return source_ended_;
      return !lanes_.front().pieces.empty() || lanes_.front().ended;
    });
    if (lanes_.empty()) return false;
    Lane& lane = lanes_.front();
    if (lane.pieces.empty()) {
      if (lane.failure) std::rethrow_exception(lane.failure);
      lanes_.pop_front();
      changed_.notify_all();
      return true;
    }
    const Piece piece = std::move(lane.pieces.front());
    lane.pieces.pop_front();
    waiting_bytes_ -= static_cast<int64_t>(piece.bytes.size());
    changed_.notify_all();
    lock.unlock();
    job_.sink(piece);
    return true;
  }

  const OrderedPartsJob& job_;
  std::mutex source_mutex_;  // taken first
  std::mutex mutex_;         // of all below
  std::condition_variable changed_;
  std::deque<Lane> lanes_;  // of the parts that are not sunk, in order
  int64_t waiting_bytes_ = 0;
  bool source_ended_ = false;
  bool stopped_ = false;
  std::vector<std::jthread> threads_;  // last: joined before the rest goes
};

}  // namespace

void run_ordered_parts(const OrderedPartsJob& job) {
  if (job.threads > 1) return OrderedParts(job).run();
  for (PartWork part = job.source(); part; part = job.source()) {
    part([&](Piece&& piece) { job.sink(piece); });
  }
}

}  // namespace stream
