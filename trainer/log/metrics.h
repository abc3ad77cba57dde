// Metrics: one place that the spine reports to, and three where it arrives: the iteration line on
// the console, metrics.jsonl, and TensorBoard. Only one rank of a run has one. What the lines look
// like is iteration_line.h's business, what a TensorBoard file is tensorboard.h's.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/log/iteration_line.h"
#include "trainer/log/tensorboard.h"

namespace trainer {

/// Where to report, and what besides Megatron's standard tags.
struct MetricsOptions {
  std::string metrics_file = {};     ///< empty: none.
  std::string tensorboard_dir = {};  ///< empty: none.
  bool loss_scale = true;            ///< tag loss-scale.
  bool timers = false;               ///< tags iteration-time and throughput.
  bool validation_ppl = false;       ///< tag "lm loss validation ppl".
  int64_t world_size = 0;            ///< tag world-size; 0: not asked for.
  int64_t first_iteration = 0;  ///< iterations already done by the run that this one goes on from.
};

/// The run's numbers on their way out.
/// State: one thread at a time. Every line that was reported survives the process.
class Metrics {
 public:
  /// Opens the files. What metrics.jsonl says of iterations after first_iteration came from a run
  /// that died after its last checkpoint: those lines, and a line without an end, are removed, so
  /// that the file tells one run. TensorBoard is told the same.
  /// Errors: std::system_error.
  Metrics(MetricsOptions options, double time);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// TensorBoard's points of one iteration; they need no interval. Errors: std::system_error.
  void points(const IterationRecord& record);
  /// One interval: a line of metrics.jsonl, flushed. Errors: std::system_error.
  void interval(const IterationRecord& record);
  /// One evaluation: a line of metrics.jsonl and TensorBoard's points. Errors: std::system_error.
  void validation(const ValidationRecord& record);
  /// A line of metrics.jsonl that says {"event": `what`, "iteration": ..., `fields`}; texts are
  /// escaped here.
  void event(std::string_view what, int64_t iteration,
             const std::vector<std::pair<std::string, std::string>>& fields);
  /// Hands everything to the system.
  void flush();

 private:
  void line(const std::string& text);

  MetricsOptions options_;
  std::FILE* file_ = nullptr;
  std::unique_ptr<EventWriter> tensorboard_;
};

}  // namespace trainer
