// BatchSchedule of train_config.h: the global batch size as a function of the samples consumed so
// far. Pure arithmetic; the division is done in double because Megatron's is.
// Source: Megatron-LM core/num_microbatches_calculator.py.
//
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "trainer/config/train_config.h"

namespace trainer {

BatchSchedule::BatchSchedule(const TrainConfig& config)
    : samples_per_microbatch_(config.micro_batch_size * config.derived.data_parallel_size),
      full_(config.derived.global_batch_size),
      start_(config.derived.rampup_start),
      increment_(config.derived.rampup_increment),
      ramp_samples_(config.derived.rampup_samples) {}

int64_t BatchSchedule::global_batch_size(int64_t consumed_samples) const noexcept {
  if (increment_ == 0 || consumed_samples > ramp_samples_ || full_ == start_) return full_;
  // A double division as Megatron's: the increments share the ramp's samples evenly, whole or not.
  const double samples_per_increment =
      static_cast<double>(ramp_samples_) / static_cast<double>((full_ - start_) / increment_);
  const int64_t steps =
      samples_per_increment > 0
          ? static_cast<int64_t>(static_cast<double>(consumed_samples) / samples_per_increment)
          : (full_ - start_) / increment_;
  return std::min(full_, start_ + steps * increment_);
}

int64_t BatchSchedule::steps_for(int64_t train_samples) const noexcept {
  int64_t steps = 0, consumed = 0;
  if (increment_ != 0) {
    while (consumed <= ramp_samples_ && consumed + global_batch_size(consumed) <= train_samples) {
      consumed += global_batch_size(consumed);
      ++steps;
    }
    if (consumed <= ramp_samples_) return steps;
  }
  return steps + (train_samples - consumed) / full_;
}

int64_t BatchSchedule::samples_after(int64_t steps) const noexcept {
  int64_t consumed = 0;
  for (; steps > 0 && increment_ != 0 && consumed <= ramp_samples_; --steps) {
    consumed += global_batch_size(consumed);
  }
  return consumed + steps * full_;
}

}  // namespace trainer
