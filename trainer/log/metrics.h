// Metrics: receives the run's numbers and writes them to three places: the iteration line on the
// console, metrics.jsonl, and TensorBoard. Only one rank of a run has one. Not here: the form of
// the lines (iteration_line.h), TensorBoard's files (tensorboard.h).
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

/// Where to write, and which tags besides Megatron's standard ones.
struct MetricsOptions {
  std::string metrics_file = {};  ///< empty: none.
  /// An open descriptor that metrics_file names: nothing is taken over from it. -1: none.
  int descriptor = -1;
  std::string tensorboard_dir = {};  ///< empty: none.
  bool loss_scale = true;            ///< tag loss-scale.
  bool timers = false;               ///< tags iteration-time and throughput.
  bool validation_ppl = false;       ///< tag "lm loss validation ppl".
  int64_t world_size = 0;            ///< tag world-size; 0: none.
  int64_t first_iteration = 0;       ///< iterations already done by the run that this one resumes.
  /// The last of these for which it had a line; 0: none.
  int64_t last_interval = 0;
  /// What has those iterations lies elsewhere: the metrics file may have another run's lines.
  bool from_elsewhere = false;
  bool only_adds = false;  ///< A run that only evaluates removes no line.
  /// The checkpoints of later iterations are still there, and so their lines are kept in a file of
  /// their own: metrics.1.jsonl for metrics.jsonl, or the next number that is free.
  bool moves_later = false;
  /// Lines that would have to be removed are another run's: then the run does not begin.
  bool is_of_others = false;
  std::function<void(const std::string&)> say = {};  ///< as in LogFileOptions.
  size_t most_kept_bytes = LogFileOptions{}.most_kept_bytes;
};

/// Puts a copy into the place of a link to a file, or of a file with several names: in a folder
/// that was copied with links, the metrics beside a run's checkpoints would be written into
/// another run's. A link to a FIFO or a device stays. Errors: std::system_error.
void own_metrics_file(const std::string& path);

/// Writes the run's numbers. State: one thread at a time. Every reported line survives the process,
/// unless the disk refuses it: then it is kept and tried again (log_file.h), and an event "lines
/// lost" replaces lost lines. No function throws because of a disk.
class Metrics {
 public:
  /// Opens the files. Lines of metrics.jsonl about iterations after first_iteration came from a run
  /// that died after its last checkpoint: these, and an incomplete line, are removed, so that the
  /// file describes one run. The same is done for TensorBoard. Lines that such a run had kept in
  /// memory are reported as missing. With `from_elsewhere` it is only said which lines stay. It is
  /// said which lines are removed, or moved.
  /// Errors: as LogFile; std::runtime_error naming a metrics file that has other content, that
  /// another trainer writes, or whose lines to be removed are another run's (`is_of_others`).
  Metrics(MetricsOptions options, double time);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// The configuration in force from `iteration` on, for TensorBoard's texts.
  void configuration(const std::string& toml, int64_t iteration, double time);
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
  /// Writes everything, or keeps it while writing fails.
  void flush();

 private:
  void line(const std::string& text, int64_t iteration);
  std::string take_over() const;

  MetricsOptions options_;
  std::unique_ptr<LogFile> file_;
  std::unique_ptr<EventWriter> tensorboard_;
};

}  // namespace trainer
