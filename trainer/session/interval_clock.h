// IntervalClock: how the time of a logging interval was spent, on this rank, and the comparison of
// all ranks: which is slowest, its cost, the waiting. Not here: the line's format
// (log/iteration_line.h), measuring waits (comm/host_queue.h). Units: seconds.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/log/iteration_line.h"

namespace trainer {

/// One rank's interval: means of its steps, and its memory at the end.
struct RankTimes {
  double step = 0;  ///< Wall time of one step.
  double data = 0;  ///< The part of it spent waiting for samples.
  /// The part of it spent waiting for other ranks and their data; nothing if the device does not
  /// measure it.
  std::optional<double> communication;
  int64_t peak_bytes = 0, planned_bytes = 0;

  /// One line, and back. Errors: std::runtime_error for another text.
  std::string text() const;
  static RankTimes from_text(const std::string& text);
};

/// Sums up an interval. State: one thread.
class IntervalClock {
 public:
  /// One step has ended.
  void add(double step, double data, std::optional<double> communication, double tokens);
  /// Begins a new interval.
  void restart() { *this = {}; }

  double seconds_per_step() const noexcept { return step_ / counted(); }
  double tokens_per_second() const noexcept { return tokens_ / step_; }
  RankTimes times(int64_t peak_bytes, int64_t planned_bytes) const;

 private:
  double counted() const noexcept { return steps_ > 0 ? static_cast<double>(steps_) : 1; }

  int64_t steps_ = 0;
  double step_ = 0, data_ = 0, communication_ = 0, tokens_ = 0;
  bool knows_communication_ = true;
};

/// Fills `record` from the ranks' times, in rank order. Steps of all ranks take the same time, so
/// the slowest is the one that works longest in a step; its cost is its work less the ranks' mean.
/// The time that it waits itself is exposed communication, and with a pipeline the bubble.
void add_ranks(std::span<const RankTimes> ranks, IterationRecord& record);

}  // namespace trainer
