// MemoryCopies: the checkpoints of --in-memory-checkpoint while training goes on, and what is said
// of them. Not here: how one is written (saver.h), where it is kept
// (checkpoint/memory_checkpoints.h), how a start continues from it (memory_start.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/cli/console.h"
#include "trainer/log/metrics.h"
#include "trainer/session/saver.h"

namespace trainer {

/// State: one thread. All ranks make the same calls at the same steps.
class MemoryCopies {
 public:
  /// What it speaks to; all outlive it.
  struct Voice {
    bool speaks = true;                             ///< One rank of a run does.
    std::function<void(const std::string&)> print;  ///< A line of the run's output.
    cli::Console& console;
    Metrics& metrics;
  };

  /// As Saver, whose `options` name memory. `interval`: steps from one copy to the next.
  MemoryCopies(Engine& engine, SaverOptions options, int64_t interval, Voice voice);

  /// Starts a copy. Waits for the last one first; the first time that it waits for more than a
  /// second, it says so. Errors: DeviceFault.
  void start(CheckpointMeta meta);
  /// Reports a copy that has ended since the last call: the first complete one, and each that could
  /// not be made.
  void report() { report(saver_.outcome()); }
  /// Waits for a copy in progress, and reports it.
  void finish() { report(saver_.finish()); }

 private:
  void report(const std::optional<Saver::Outcome>& outcome);

  Saver saver_;
  int64_t interval_;
  Voice voice_;
  int64_t started_ = 0;
  bool one_is_complete_ = false;
  bool waited_ = false;  ///< Long, and that was said.
};

}  // namespace trainer
