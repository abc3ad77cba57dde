// A start that continues from memory: ranks that the launcher has started again find what the ones
// before have left with it. Not here: the checkpoints themselves (checkpoint/memory_checkpoints.h),
// several hosts (memory_hosts.h), other starts (start.cc).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "tools/cli/console.h"
#include "trainer/checkpoint/memory_checkpoints.h"
#include "trainer/config/train_config.h"
#include "trainer/engine/options.h"
#include "trainer/rendezvous/file_ring.h"
#include "trainer/session/job.h"
#include "trainer/spec/spec.h"

namespace trainer {

/// This rank's view of the memory; nothing without --in-memory-checkpoint. `ring`: for saves with
/// several hosts; it outlives the result.
std::optional<MemoryCheckpoints> memory_of(const TrainConfig& config, const Job& job,
                                           rendezvous::FileRing* ring = nullptr);

/// The checkpoint in memory from which a restart continues: the newest complete and undamaged one,
/// unless --save has a newer one. Nothing if there is none, or at a first start. Prints which was
/// taken. Checks every byte, each rank a part; all ranks call it, and all get the same. Checkpoints
/// above the one that the run continues from are removed.
std::optional<Checkpoint> newest_in_memory(const MemoryCheckpoints& memory,
                                           const TrainConfig& config, Job& job,
                                           cli::Console& console);

/// Prints from where a restart continues. Steps of checkpoints, -1 where there is none: `in_memory`
/// and `on_disk` are the newest ones, `taken` is that of memory which is used.
void note_what_is_taken(int64_t taken, int64_t in_memory, int64_t on_disk, cli::Console& console);

/// Says how often a checkpoint goes to memory of so many hosts, and what host memory this takes.
std::string in_memory_note(const TrainConfig& config, const ModelSpec& spec,
                           const EngineOptions& options, int64_t hosts);

/// Bytes of a checkpoint over all ranks.
int64_t checkpoint_bytes(const ModelSpec& spec, const EngineOptions& options, bool optimizer);

}  // namespace trainer
