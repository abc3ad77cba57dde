// See iteration_line.h. Only formatting, with printf's conversions, which equal those of Python in
// Megatron.
//
// SPDX-License-Identifier: MIT
#include "trainer/log/iteration_line.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <ctime>

namespace trainer {
namespace {

// Appends printf-style text. Every field is short; the buffer holds the longest of them.
[[gnu::format(printf, 2, 3)]] void append(std::string& out, const char* format, ...) {
  char buffer[256];
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  out.append(buffer, static_cast<size_t>(std::clamp(length, 0, int{sizeof buffer} - 1)));
}

double in_mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void append_number(std::string& out, const char* key, double value) {
  if (std::isfinite(value)) {
    append(out, ", \"%s\": %.17g", key, value);
  } else {
    append(out, ", \"%s\": null", key);
  }
}

}  // namespace

double perplexity(double loss) noexcept { return std::exp(std::min(20.0, loss)); }

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "?";
  const int64_t total = std::llround(seconds);
  const int64_t days = total / 86400;
  std::string out;
  if (days > 0) append(out, "%" PRId64 " day%s ", days, days == 1 ? "" : "s");
  append(out, "%" PRId64 ":%02" PRId64 ":%02" PRId64, total / 3600 % 24, total / 60 % 60,
         total % 60);
  return out;
}

std::string format_iteration_line(const IterationRecord& record) {
  std::string out;
  const std::time_t now = static_cast<std::time_t>(record.time);
  std::tm local{};
  localtime_r(&now, &local);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
  append(out, " [%s]", date);
  append(out, " iteration %8" PRId64 "/%8" PRId64 " |", record.iteration, record.train_iters);
  append(out, " consumed samples: %12" PRId64 " |", record.consumed_train_samples);
  append(out, " elapsed time per iteration (ms): %.1f |", record.seconds_per_iteration * 1000.0);
  if (record.tflops_per_device) {
    append(out, " throughput per GPU (TFLOP/s/GPU): %.1f |", *record.tflops_per_device);
  }
  append(out, " learning rate: %.6E |", record.learning_rate);
  append(out, " global batch size: %5" PRId64 " |", record.global_batch_size);
  append(out, " lm loss: %.6E |", record.lm_loss);
  append(out, " loss scale: %.1f |", record.loss_scale);
  append(out, " grad norm: %.3f |", record.grad_norm);
  if (record.num_zeros) append(out, " num zeros: %" PRId64 " |", *record.num_zeros);
  if (record.params_norm) append(out, " params norm: %.3f |", *record.params_norm);
  append(out, " number of skipped iterations: %3" PRId64 " |", record.skipped_iterations);
  append(out, " number of nan iterations: %3" PRId64 " |", record.nan_iterations);
  append(out, " tokens per second: %.1f |", record.tokens_per_second);
  append(out, " time left: %s |", format_duration(record.seconds_left).c_str());
  if (record.slowest) {
    append(out, " slowest rank: %" PRId64 " |", record.slowest->rank);
    append(out, " slowest rank cost (ms): %.1f |", record.slowest->cost_seconds * 1000.0);
    append(out, " exposed communication (ms): %.1f |",
           record.slowest->communication_seconds * 1000.0);
  }
  append(out, " waiting for data (ms): %.1f |", record.data_wait_seconds * 1000.0);
  append(out, " peak memory (MiB): %.1f |", in_mib(record.peak_memory_bytes));
  append(out, " planned memory (MiB): %.1f |", in_mib(record.planned_memory_bytes));
  return out;
}

std::string format_validation_lines(const ValidationRecord& record) {
  std::string line = " validation loss at " + record.prefix + " | ";
  append(line, "lm loss value: %.6E | ", record.lm_loss);
  append(line, "lm loss PPL: %.6E | ", perplexity(record.lm_loss));
  const std::string rule(line.size() + 1, '-');
  return rule + "\n" + line + "\n" + rule;
}

std::string format_iteration_json(const IterationRecord& record) {
  std::string out;
  append(out, "{\"iteration\": %" PRId64 ", \"train_iters\": %" PRId64, record.iteration,
         record.train_iters);
  append(out, ", \"consumed_train_samples\": %" PRId64 ", \"global_batch_size\": %" PRId64,
         record.consumed_train_samples, record.global_batch_size);
  append_number(out, "lm_loss", record.lm_loss);
  append_number(out, "grad_norm", record.grad_norm);
  append_number(out, "learning_rate", record.learning_rate);
  append_number(out, "loss_scale", record.loss_scale);
  if (record.params_norm) append_number(out, "params_norm", *record.params_norm);
  if (record.num_zeros) append(out, ", \"num_zeros\": %" PRId64, *record.num_zeros);
  append(out, ", \"skipped_iterations\": %" PRId64 ", \"nan_iterations\": %" PRId64,
         record.skipped_iterations, record.nan_iterations);
  append_number(out, "seconds_per_iteration", record.seconds_per_iteration);
  if (record.tflops_per_device) append_number(out, "tflops_per_device", *record.tflops_per_device);
  append_number(out, "tokens_per_second", record.tokens_per_second);
  append_number(out, "seconds_left", record.seconds_left);
  if (record.slowest) {
    append(out, ", \"slowest_rank\": %" PRId64, record.slowest->rank);
    append_number(out, "slowest_rank_cost_seconds", record.slowest->cost_seconds);
    append_number(out, "exposed_communication_seconds", record.slowest->communication_seconds);
  }
  append_number(out, "data_wait_seconds", record.data_wait_seconds);
  append(out, ", \"peak_memory_bytes\": %" PRId64 ", \"planned_memory_bytes\": %" PRId64,
         record.peak_memory_bytes, record.planned_memory_bytes);
  append_number(out, "time", record.time);
  return out + "}";
}

std::string format_validation_json(const ValidationRecord& record) {
  std::string out = "{\"validation\": \"" + record.prefix + "\"";
  append(out, ", \"iteration\": %" PRId64 ", \"consumed_train_samples\": %" PRId64,
         record.iteration, record.consumed_train_samples);
  append_number(out, "lm_loss", record.lm_loss);
  append_number(out, "ppl", perplexity(record.lm_loss));
  append_number(out, "time", record.time);
  return out + "}";
}

}  // namespace trainer
