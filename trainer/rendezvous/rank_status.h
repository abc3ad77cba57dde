// RankStatus: what a rank is doing, written by the threads that do it, read by the one that tells
// the others. Not here: what is concluded from it (server.h). May include: the C++ library.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace rendezvous {

/// What the run is at.
enum class Phase : uint8_t { start, load, data, step, evaluate, save, end };
/// "start", "loading", "data", "step", "evaluation", "save", "end".
const char* name(Phase phase) noexcept;

/// A moment of a rank.
struct Status {
  Phase phase = Phase::start;
  int64_t step = 0;        ///< 0 before the first.
  uint64_t progress = 0;   ///< Grows with everything that ends: a collective, a step, a file.
  bool waiting = false;    ///< In a collective, for the others.
  bool resumable = false;  ///< A whole checkpoint is there that the same command goes on from.
  std::string call;        ///< The last collective: "all-reduce of 200 fp32 (number 7)".
};

/// Any thread may write or read.
class RankStatus {
 public:
  void enter(Phase phase, int64_t step);
  /// Something ended that is no collective.
  void progress();
  /// A collective begins, and ends.
  void begin_call(std::string call);
  void end_call();
  /// A collective was queued on a device, which will do it some time.
  void queued(std::string call);
  void set_resumable(bool resumable);
  Status status() const;
  /// The thread that computes has stood for so long, until a collective was done; and how long it
  /// has in all.
  void add_wait(std::chrono::nanoseconds wait) noexcept { waited_ns_ += wait.count(); }
  std::chrono::nanoseconds waited() const noexcept { return std::chrono::nanoseconds(waited_ns_); }

 private:
  mutable std::mutex mutex_;
  Status status_;
  std::atomic<int64_t> waited_ns_ = 0;
};

}  // namespace rendezvous
