// BatchSchedule of train_config.h: the global batch size as a function of the samples consumed so
// far. Pure arithmetic; the division is done in double because Megatron's is.
// Source: Megatron-LM core/num_microbatches_calculator.py.
//
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "tools/cli/fields.h"
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

// How many steps from `consumed` on, which lies in the ramp, have the size of the first: those that
// begin in the ramp, up to the next increment. The size never falls, so that they are searched by
// doubling and halving; a ramp may have more steps than can be counted one by one.
int64_t BatchSchedule::equal_steps(int64_t consumed) const noexcept {
  const int64_t size = global_batch_size(consumed);
  const int64_t last = (ramp_samples_ - consumed) / size;  // the last that begins in the ramp.
  int64_t equal = 0, stride = 1;
  const auto reaches = [&] {
    return stride <= last - equal && global_batch_size(consumed + (equal + stride) * size) == size;
  };
  for (; reaches() && stride <= last / 2; stride *= 2) equal += stride;
  for (; stride > 0; stride /= 2)
    if (reaches()) equal += stride;
  return equal + 1;
}

int64_t BatchSchedule::steps_for(int64_t train_samples, int64_t consumed) const noexcept {
  if (consumed >= train_samples) return 0;
  int64_t steps = 0;
  while (increment_ != 0 && consumed <= ramp_samples_) {
    const int64_t size = global_batch_size(consumed);
    const int64_t equal = std::min(equal_steps(consumed), (train_samples - consumed) / size);
    if (equal == 0) return steps;
    consumed += equal * size;
    steps += equal;
  }
  return steps + (train_samples - consumed) / full_;
}

int64_t BatchSchedule::samples_after(int64_t steps, int64_t consumed) const noexcept {
  while (steps > 0 && increment_ != 0 && consumed <= ramp_samples_) {
    const int64_t equal = std::min(equal_steps(consumed), steps);
    consumed += equal * global_batch_size(consumed);
    steps -= equal;
  }
  return consumed + steps * full_;
}

std::map<int64_t, int64_t> BatchSchedule::steps_by_microbatches(int64_t steps,
                                                                int64_t consumed) const {
  std::map<int64_t, int64_t> counts;
  while (steps > 0 && increment_ != 0 && consumed <= ramp_samples_) {
    const int64_t equal = std::min(equal_steps(consumed), steps);
    counts[num_microbatches(consumed)] += equal;
    consumed += equal * global_batch_size(consumed);
    steps -= equal;
  }
  if (steps > 0) counts[full_ / samples_per_microbatch_] += steps;
  return counts;
}

int64_t steps_of_run(const TrainConfig& config, int64_t done, int64_t consumed_samples) {
  const BatchSchedule schedule(config);
  int64_t steps = config.train_iters.value_or(cli::kMaxInteger);
  if (config.train_samples)
    steps = done + schedule.steps_for(*config.train_samples, consumed_samples);
  if (config.train_tokens) {
    const int64_t samples = *config.train_tokens / config.seq_length +
                            (*config.train_tokens % config.seq_length > 0 ? 1 : 0);
    const int64_t whole = schedule.steps_for(samples, consumed_samples);
    const bool more = schedule.samples_after(whole, consumed_samples) < samples;
    steps = std::min(steps, done + whole + (more ? 1 : 0));
  }
  return steps;
}

}  // namespace trainer
