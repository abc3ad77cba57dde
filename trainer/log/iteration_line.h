// The lines that people read and scripts parse: Megatron's iteration line and its validation block,
// character for character, with additional fields at the end of the first. From numbers to text;
// not here: where the lines go (metrics.h: stdout, metrics.jsonl, TensorBoard). Units: times in
// seconds unless a name says otherwise; samples are sequences of seq_length tokens.
// Source: training_log and evaluate_and_print_results of Megatron-LM's
// megatron/training/training.py.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainer {

/// The rank that the others wait for.
struct SlowestRank {
  int64_t rank = 0;
  double cost_seconds = 0;           ///< its work in a step, less the mean over all ranks.
  double communication_seconds = 0;  ///< the time that it waits in a step.
};

/// The values of one logging interval.
struct IterationRecord {
  int64_t iteration = 0;               ///< last iteration of the interval, counted from 1.
  int64_t train_iters = 0;             ///< planned iterations.
  int64_t consumed_train_samples = 0;  ///< over the whole run, resumed parts included.
  int64_t global_batch_size = 0;       ///< samples of the last iteration (ramp-up changes it).
  double seconds_per_iteration = 0;  ///< mean of the interval, without checkpoints and evaluation.
  std::optional<double> tflops_per_device;  ///< printed only with --log-throughput.
  double learning_rate = 0;
  double lm_loss = 0;                  ///< mean over the interval's iterations that were applied.
  double loss_scale = 1;               ///< 1 when there is no scaling.
  double grad_norm = 0;                ///< of the last iteration, before clipping.
  std::optional<double> params_norm;   ///< with --log-params-norm.
  std::optional<int64_t> num_zeros;    ///< zero gradients, with --log-num-zeros-in-grad.
  int64_t skipped_iterations = 0;      ///< in the interval: gradients that overflowed under fp16.
  int64_t nan_iterations = 0;          ///< in the interval: losses that were not finite.
  double tokens_per_second = 0;        ///< all devices together.
  double seconds_left = 0;             ///< until train_iters at this pace.
  std::optional<SlowestRank> slowest;  ///< with several ranks, if the device measures it.
  double data_wait_seconds = 0;        ///< per step, of the rank that waits longest for samples.
  int64_t peak_memory_bytes = 0;       ///< largest device memory in use so far, of the rank that
                                       ///< uses most,
  int64_t planned_memory_bytes = 0;    ///< and what was planned for that rank.
  double time = 0;                     ///< wall clock, seconds since 1970.
};

/// The values of one evaluation.
struct ValidationRecord {
  std::string prefix;  ///< "iteration 1000", "iteration 1000 on validation set", "... on test set".
  int64_t iteration = 0;
  int64_t consumed_train_samples = 0;
  double lm_loss = 0;  ///< mean over tokens that count.
  double time = 0;
};

/// Perplexity as Megatron prints it: exp(min(20, loss)).
double perplexity(double loss) noexcept;

/// A duration for people: `3:07:09`, `2 days 3:07:09`; `?` when unknown
/// (negative or not finite).
std::string format_duration(double seconds);

/// Megatron's iteration line without a newline. After its last field come ` tokens per second: `, `
/// time left: `, of several ranks ` slowest rank: `, ` slowest rank cost (ms): `, ` exposed
/// communication (ms): `, and ` waiting for data (ms): `, ` peak memory (MiB): `, ` planned memory
/// (MiB): `. The date is local time.
std::string format_iteration_line(const IterationRecord& record);

/// Megatron's three validation lines, newlines between and none at the end.
std::string format_validation_lines(const ValidationRecord& record);

/// The record as one JSON object on one line, no newline: every field by its name above, numbers
/// with 17 significant digits, so that equal lines mean equal bits. Numbers that JSON lacks are
/// written as null.
std::string format_iteration_json(const IterationRecord& record);

/// The same for an evaluation: {"validation": "<prefix>", "iteration": ..., "lm_loss": ..., "ppl":
/// ...}.
std::string format_validation_json(const ValidationRecord& record);

}  // namespace trainer
