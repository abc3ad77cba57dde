// RankStatus: what a rank is doing, written by its threads, read by the one that sends heartbeats.
// Not here: conclusions from it (server.h). May include: the C++ library.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace rendezvous {

/// The phase of the run.
enum class Phase : uint8_t { start, load, data, step, evaluate, save, end };
/// "start", "loading", "data", "step", "evaluation", "save", "end".
const char* name(Phase phase) noexcept;

/// A snapshot of a rank.
struct Status {
  Phase phase = Phase::start;
  int64_t step = 0;        ///< 0 before the first.
  uint64_t progress = 0;   ///< Incremented when anything is completed: a collective, a step, a
                           ///< file.
  bool waiting = false;    ///< Waiting for the others in a collective.
  bool resumable = false;  ///< There is a complete checkpoint from which the same command
                           ///< continues.
  bool first_evaluation = false;  ///< Which may take long, as a first step may.
  std::string call;               ///< The last collective: "all-reduce of 200 fp32 (number 7)".
};

/// Any thread may write or read.
class RankStatus {
 public:
  void enter(Phase phase, int64_t step);
  /// Something other than a collective was completed.
  void progress();
  /// A collective begins, and ends.
  void begin_call(std::string call);
  void end_call();
  /// A collective was queued on a device, which will run it later.
  void queued(std::string call);
  void set_resumable(bool resumable);
  Status status() const;
  /// add_wait(): the computing thread has waited this long for a collective; waited(): the total.
  void add_wait(std::chrono::nanoseconds wait) noexcept { waited_ns_ += wait.count(); }
  std::chrono::nanoseconds waited() const noexcept { return std::chrono::nanoseconds(waited_ns_); }

 private:
  mutable std::mutex mutex_;
  Status status_;
  bool evaluated_ = false;
  std::atomic<int64_t> waited_ns_ = 0;
};

}  // namespace rendezvous
