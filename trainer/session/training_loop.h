// TrainingLoop: the run itself. From a checkpoint or initial weights, step by step, with the log,
// evaluations, checkpoints and every way to end, in Megatron's order within a step: train, log,
// evaluate, save, stop. Not here: choosing device and parts (trainer.cc), computing
// (engine/engine.h), the form of lines (log/).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tools/cli/console.h"
#include "trainer/config/train_config.h"
#include "trainer/data/batch_loader.h"
#include "trainer/engine/engine.h"
#include "trainer/log/metrics.h"
#include "trainer/optim/lr_schedule.h"
#include "trainer/session/interval_clock.h"
#include "trainer/session/job.h"
#include "trainer/session/loss_plot.h"
#include "trainer/session/memory_copies.h"
#include "trainer/session/saver.h"
#include "trainer/session/start.h"
#include "trainer/session/vocabulary.h"

namespace trainer {

/// The parts that a loop uses; all outlive it.
struct LoopParts {
  const TrainConfig& config;
  const ModelSpec& spec;
  Engine& engine;
  const indexed::TrainingData& data;
  Vocabulary vocabulary;
  LrSchedule schedule;
  SharedStop& stop;
  Job& job;
  cli::Console& console;
  LogFile& out;                         ///< Standard output: it may be a file on a full disk.
  MemoryCheckpoints* memory = nullptr;  ///< For --in-memory-checkpoint.
  /// What to change in the command so that it continues the run (to_go_on): a later start's
  /// `config` is no longer the command's.
  std::string to_go_on;
  /// Whether the command continues from --save (goes_on_from_save): what is there is the run's.
  bool from_save = true;
};

/// State: one thread. Owns the logs, the loaders and the saver, but not the engine.
class TrainingLoop {
 public:
  /// Loads `start` or initialises weights; opens logs and the checkpoint folder.
  /// Errors: indexed::FormatError for a damaged checkpoint or too few samples; std::system_error.
  TrainingLoop(LoopParts parts, Start start);

  /// Trains to the end or to the first reason to stop. Returns the exit status. Errors:
  /// std::runtime_error "step N: ..." if gradients are not finite and loss scaling does not handle
  /// it; nothing of that step was applied.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  void begin(Start start);
  std::unique_ptr<BatchLoader> loader(int64_t split) const;
  /// Returns the batch's weight within an evaluation: 1, or the number of tokens that count.
  double fill(const BatchLoader& loader, int64_t consumed, int64_t num_microbatches);
  void step();
  void account(const ops::StepState& result, int64_t batch, double lr);
  [[noreturn]] void refuse_step(const ops::StepState& result, int64_t num_microbatches);
  IterationRecord record(const ops::StepState& result, int64_t batch) const;
  void log_interval(IterationRecord record);
  bool evaluate(int64_t split, const std::string& prefix);
  CheckpointMeta checkpoint_meta() const;
  void save();
  void copy();
  void report_save(const std::optional<Saver::Outcome>& outcome);
  void complete_save();
  int end_early(const std::string& why);
  int end();
  void print_plot();
  void print(const std::string& line);

  LoopParts parts_;
  BatchSchedule batches_;
  std::unique_ptr<BatchLoader> train_, valid_, test_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Metrics> metrics_;
  std::optional<MemoryCopies> copies_;
  LossPlot plot_;
  RunState state_;
  int64_t first_iteration_ = 0;  ///< done before this process.
  int64_t filled_for_ = -1;      ///< consumed samples of the prepared batch; -1: none.
  int64_t skipped_in_a_row_ = 0;
  IntervalClock clock_;           ///< of the interval, in this process.
  int64_t saved_iteration_ = -1;  ///< of the last save that was started.
  bool unnamed_ =
      false;  ///< the checkpoint from which this run started is in --save without a tracker.
  bool restored_ = false;  ///< This run continues from memory; its step may not be on disk.
  bool save_failed_ = false;
  bool ending_ = false;  ///< No step follows.
};

}  // namespace trainer
