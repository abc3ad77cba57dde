// IntervalClock: where the time of a logging interval went, on this rank, and what all ranks
// together make of it: who is slowest, what that costs, what was waited for. Not here: what the
// line looks like (log/iteration_line.h), who waits (comm/host_queue.h). Units: seconds.
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
  double step = 0;  ///< Of one step, by the wall.
  double data = 0;  ///< Of that, waiting for samples.
  /// Of that, waiting for other ranks and for what they send; nothing where the device does not
  /// tell.
  std::optional<double> communication;
  int64_t peak_bytes = 0, planned_bytes = 0;

  /// One line, and back. Errors: std::runtime_error for another text.
  std::string text() const;
  static RankTimes from_text(const std::string& text);
};

/// Adds up an interval. State: one thread.
class IntervalClock {
 public:
  /// One step has ended.
  void add(double step, double data, std::optional<double> communication, double tokens);
  /// Forgets everything: a new interval.
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

/// What the ranks' times say, in rank order, put into `record`. Steps of all ranks last equally
/// long, so the slowest is the one that works longest in a step; it costs what its work lasts over
/// the ranks' mean. What it waits itself is communication that nothing hides, and with a pipeline
/// the bubble.
void add_ranks(std::span<const RankTimes> ranks, IterationRecord& record);

}  // namespace trainer
