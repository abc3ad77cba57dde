// What a run that starts again continues from on disk. --save may hold another run's checkpoints,
// which are none of this run's progress. Not here: checkpoints in memory (memory_start.h), starting
// the ranks again (launcher.h), loading (start.cc).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/cli/console.h"
#include "trainer/config/train_config.h"
#include "trainer/rendezvous/launch.h"
#include "trainer/session/job.h"
#include "trainer/session/start.h"

namespace trainer {

/// The newest checkpoint in --save from which a later start continues.
struct SavedStep {
  int64_t iteration = 0;
  bool optimizer = true;  ///< Without it (--no-save-optim) a run does not go on as it was.
  bool tracked = true;    ///< Whether --load of the folder means it, without --ckpt-step.
};

/// That checkpoint, if run `run` itself has saved it or may have (rendezvous::may_be_one_run), or
/// if the command continues from --save anyway (goes_on_from_save). Where the tracker names another
/// run's, it is the newest one of `run` in the folder: a writer may be killed before it updates the
/// tracker. `run`: rendezvous::Launch::run; if that is empty, any counts.
/// Errors: as Checkpoint::open and find_checkpoint.
std::optional<SavedStep> saved_step(const TrainConfig& config, const std::string& run);

/// The iteration of saved_step; -1: there is none, it cannot be read, or it has no optimizer.
int64_t whole_saved_iteration(const TrainConfig& config, const std::string& run);

/// Whether the tracker of `root` names that iteration; one that cannot be read names none. Errors:
/// none.
bool tracker_names(const std::string& root, int64_t iteration);

/// How many checkpoints in a folder are not of run `run`; all of them if `run` is empty. One that
/// cannot be read is another's. Errors: none.
int64_t checkpoints_of_others(const std::string& root, const std::string& run);

/// Makes `config` that of a later start: it loads what the run has saved, with all of it, because
/// what the command leaves out or replaces is meant for the first start; without its optimizer only
/// where --no-save-optim has left that out. A later start is one that the launcher counts, or the
/// first one of a job that was requeued, if its launcher says which run it is; without --load, any
/// other first start begins anew, as in Megatron. If the run has saved
/// nothing yet, all stays as it was: such a start begins as the first one did. Where the newest
/// checkpoint cannot be read and may be the run's, because the tracker has changed since the run
/// began or another one there is its own, the start will end with the reason. No effect at a first
/// start.
void go_on_after_restart(TrainConfig& config, const rendezvous::Launch& launch,
                         cli::Console& console);

/// Every rank that has met the others calls it with what it begins from. `from_save`:
/// goes_on_from_save of the command itself. Errors: std::runtime_error where a later start would
/// take from --save what may be another job's: of a checkpoint and this start only one knows the
/// job of SLURM.
void expect_own_start(const Start& start, const TrainConfig& config, bool from_save,
                      const Job& job);

/// Whether a run goes on from a checkpoint that it has itself saved without optimizer: in --save,
/// with --no-save-optim. Errors: none.
bool goes_on_without_optimizer(const TrainConfig& config, const Checkpoint& checkpoint);

/// Whether the lines that --metrics-file has are another run's: the file is not in --save, and
/// neither the config.toml there names it nor `own`, the checkpoint there from which the run goes
/// on. Without --save they are its own where it is started again, but not by torchrun.
/// Errors: none.
bool has_metrics_of_others(const TrainConfig& config, const rendezvous::Launch& launch,
                           const CheckpointMeta* own);

}  // namespace trainer
