// A start that continues from the memory of several hosts: which checkpoint they have between them,
// and a host that has lost its part gets it back from the others. Not here: one host
// (memory_start.h), the copies while training goes on (checkpoint/memory_checkpoints.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <vector>

#include "tools/cli/console.h"
#include "trainer/checkpoint/memory_checkpoints.h"
#include "trainer/config/train_config.h"
#include "trainer/rendezvous/file_ring.h"
#include "trainer/session/job.h"

namespace trainer {

/// Files that a rank has only while the ranks of its host load from them.
class BorrowedFiles {
 public:
  BorrowedFiles() = default;
  ~BorrowedFiles() { release(); }
  BorrowedFiles(const BorrowedFiles&) = delete;
  BorrowedFiles& operator=(const BorrowedFiles&) = delete;
  /// A new empty file's descriptor. Errors: std::system_error.
  int add();
  /// Once all ranks of the host have loaded.
  void release() noexcept;

 private:
  std::vector<int> descriptors_;
};

/// Continues from the newest checkpoint of which every rank's files are undamaged on its own host
/// or on the next one, unless --save has a newer one. Afterwards every host has its own ranks'
/// files and its copies again. Nothing if there is none. Prints which was taken, and why not a
/// newer one. All ranks call it, also those that are started for the first time, and all get the
/// same. Errors: ops::DeviceError if a partner is lost meanwhile; std::system_error.
std::optional<Checkpoint> newest_over_hosts(const MemoryCheckpoints& memory,
                                            rendezvous::FileRing& ring, BorrowedFiles& borrowed,
                                            const TrainConfig& config, Job& job,
                                            cli::Console& console);

}  // namespace trainer
