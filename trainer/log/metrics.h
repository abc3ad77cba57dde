// Metrics: one place that the spine reports to, and three where it arrives: the iteration line on
// the console, metrics.jsonl, and TensorBoard. Only one rank of a run has one. What the lines look
// like is iteration_line.h's business, what a TensorBoard file is tensorboard.h's.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
  /// Of those, the last that it had a line for; 0: none.
  int64_t last_interval = 0;
  std::function<void(const std::string&)> say = {};  ///< as LogFileOptions has it.
  size_t most_kept_bytes = LogFileOptions{}.most_kept_bytes;
};

/// The run's numbers on their way out.
/// State: one thread at a time. Every line that was reported survives the process, unless the disk
/// refuses it: then it is kept and tried again (log_file.h), and where lines are lost an event
/// "lines lost" stands in their place. No function throws for what a disk does.
class Metrics {
 public:
  /// Opens the files. What metrics.jsonl says of iterations after first_iteration came from a run
  /// that died after its last checkpoint: those lines, and a line without an end, are removed, so
  /// that the file tells one run. TensorBoard is told the same. Lines that such a run had kept in
  /// memory are missing, and said to be.
  /// Errors: as LogFile.
  Metrics(MetricsOptions options, double time);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// TensorBoard's points of one iteration; they need no interval.
  void points(const IterationRecord& record);
  /// One interval: a line of metrics.jsonl, flushed.
  void interval(const IterationRecord& record);
  /// One evaluation: a line of metrics.jsonl and TensorBoard's points.
  void validation(const ValidationRecord& record);
  /// A line of metrics.jsonl that says {"event": `what`, "iteration": ..., `fields`}; texts are
  /// escaped here.
  void event(std::string_view what, int64_t iteration,
             const std::vector<std::pair<std::string, std::string>>& fields);
  /// Hands everything to the system, or keeps it while that refuses.
  void flush();

 private:
  void line(const std::string& text, int64_t iteration);
  std::string take_over() const;

  MetricsOptions options_;
  std::unique_ptr<LogFile> file_;
  std::unique_ptr<EventWriter> tensorboard_;
};

}  // namespace trainer
