// Saver: writes checkpoints, on disk or in memory, while training continues. A save starts copies
// of the engine's tensors to host memory and returns; a separate thread waits for them, writes, and
// coordinates with those of the other ranks. Not here: the form of a checkpoint (checkpoint/), what
// is copied (snapshot.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/memory_checkpoints.h"
#include "trainer/session/snapshot.h"

namespace trainer {

/// What to write, where, and how many checkpoints to keep.
struct SaverOptions {
  std::string root;
  /// In memory in place of a root folder; outlives the Saver.
  MemoryCheckpoints* memory = nullptr;
  bool optimizer = true;
  bool background = true;  ///< false: save() returns when the checkpoint is on disk.
  int64_t keep_last = 0;   ///< 0: all.
  bool only_own = false;   ///< Older checkpoints of other runs stay: see CheckpointRoot.
  bool ahead = false;      ///< Steps precede the first save: see Snapshot.
  WriterPlace place = {};  ///< This rank's place among the ranks.
};

/// At most one save is in progress; a second one waits for it. Every rank saves at the same steps.
/// State: one thread at a time may call it.
class Saver {
 public:
  /// Locks the root folder. Errors: as CheckpointRoot.
  Saver(Engine& engine, SaverOptions options);
  /// Waits for a save in progress.
  ~Saver();

  /// Starts a checkpoint with `meta` (files and tensors are filled in). Errors: DeviceFault. A
  /// failing disk, or too little memory, does not throw: see outcome().
  void save(CheckpointMeta meta);

  /// How a save ended.
  struct Outcome {
    int64_t iteration = 0;
    std::string error;   ///< empty: it is complete on disk.
    std::string remark;  ///< which older ones could not be removed; empty: none.
    double seconds = 0;  ///< from save() to its end.
  };
  /// The outcome of a save that has ended since the last call; nothing while it is in progress.
  std::optional<Outcome> outcome();
  /// Waits for the end of a save, if one is in progress; then like outcome().
  std::optional<Outcome> finish();

  /// Iteration of the last checkpoint known to be complete; -1 if there is none.
  int64_t last_whole() const noexcept { return last_whole_; }

 private:
  void write() noexcept;
  void check_memory() const;

  SaverOptions options_;
  std::optional<CheckpointRoot> root_;  ///< Not in memory.
  Snapshot snapshot_;
  CheckpointMeta meta_;
  std::string failure_;  ///< Why this rank has nothing to write.
  std::chrono::steady_clock::time_point begun_;
  std::thread thread_;
  bool pending_ = false;  ///< A save was started whose outcome has not been returned.
  std::atomic<bool> done_ = false;
  Outcome outcome_;
  int64_t last_whole_ = -1;
};

}  // namespace trainer
