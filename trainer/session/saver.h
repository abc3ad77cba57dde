// Saver: writes checkpoints beside the training. A save starts copies of the engine's tensors to
// host memory and returns; a thread of its own waits for them, writes, and meets those of the other
// ranks. Not here: what a checkpoint looks like (checkpoint/), what is copied (snapshot.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/session/snapshot.h"

namespace trainer {

/// What to write, where, and how much of it stays.
struct SaverOptions {
  std::string root;
  bool optimizer = true;
  bool background = true;  ///< false: save() returns when the checkpoint is on disk.
  int64_t keep_last = 0;   ///< 0: all.
  bool ahead = false;      ///< There are steps before the first save: see Snapshot.
  WriterPlace place = {};  ///< Among the ranks.
};

/// At most one save is under way; a second one waits for it. Every rank saves at the same steps.
/// State: one thread at a time may call it.
class Saver {
 public:
  /// Takes the root folder. Errors: as CheckpointRoot.
  Saver(Engine& engine, SaverOptions options);
  /// Waits for what is under way.
  ~Saver();

  /// Starts a checkpoint with `meta` (files and tensors are filled in). Errors: DeviceFault. A disk
  /// that refuses, or memory that cannot be had, is no exception: see outcome().
  void save(CheckpointMeta meta);

  /// How a save ended.
  struct Outcome {
    int64_t iteration = 0;
    std::string error;   ///< empty: it is whole on disk.
    std::string remark;  ///< what could not be removed of older ones; empty: nothing.
  };
  /// The outcome of a save that has ended since the last call; nothing while it goes on.
  std::optional<Outcome> outcome();
  /// Waits for the end of a save, if one is under way; then as outcome().
  std::optional<Outcome> finish();

  /// Iteration of the last checkpoint known to be whole; -1 where there is none.
  int64_t last_whole() const noexcept { return last_whole_; }

 private:
  void write() noexcept;

  SaverOptions options_;
  CheckpointRoot root_;
  Snapshot snapshot_;
  CheckpointMeta meta_;
  std::string failure_;  ///< Why there is nothing to write.
  std::thread thread_;
  bool pending_ = false;  ///< A save was begun whose outcome nobody has asked for.
  std::atomic<bool> done_ = false;
  Outcome outcome_;
  int64_t last_whole_ = -1;
};

}  // namespace trainer
