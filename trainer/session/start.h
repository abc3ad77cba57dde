// Start: where a run begins, and whether it can. A run and its dry run find both out by the same
// calls, before any memory is allocated, so that what one refuses the other refuses too.
// Not here: what ranks must have in common (common_start.h), starting again (restart.h), loading
// tensors (training_loop.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libindexed/training_data.h"
#include "tools/cli/console.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/train_config.h"
#include "trainer/engine/engine.h"
#include "trainer/optim/lr_schedule.h"
#include "trainer/session/vocabulary.h"

namespace trainer {

/// The checkpoint from which a run starts, opened before any memory is allocated.
struct Start {
  std::optional<Checkpoint> checkpoint;
  bool in_memory = false;     ///< It is not on disk.
  bool weights_only = false;  ///< --finetune, --pretrained-checkpoint.
  bool optimizer = true;      ///< load moments and scaler.

  /// Where the run goes on; all zeros where it begins.
  RunState state() const {
    return checkpoint && !weights_only ? checkpoint->meta().state : RunState{};
  }
};

/// Sets fields of `spec` that the command leaves open from the run's starting checkpoint, which is
/// `in_memory` if that is not null: the family, and the padded vocabulary, if the command's differs
/// only because padding depends on the number of tensor-parallel ranks. Says if that checkpoint has
/// another tokenizer.
/// Errors: indexed::FormatError for a damaged checkpoint.
void follow_checkpoint(const TrainConfig& config, const Vocabulary& vocabulary, ModelSpec& spec,
                       cli::Console& console, const Checkpoint* in_memory);

/// offer_previous for the damaged checkpoint `path` that the command loads, with the flags that
/// take another one: those of --load, or --pretrained-checkpoint where `path` comes from there.
std::string offer_before(const TrainConfig& config, const std::string& path, int64_t iteration);

/// Opens the checkpoint `path` that the command loads.
/// Errors: indexed::FormatError for a damaged one, with what offer_before() says.
Checkpoint open_checkpoint(const std::string& path, const TrainConfig& config);

/// Finds the checkpoint of --load or --pretrained-checkpoint, checks that the model and the
/// schedule are the same, and prints what will happen. `in_memory` takes precedence over both: the
/// run itself has left it. Errors: cli::UsageError for a model or schedule that differs;
/// indexed::FormatError for a damaged checkpoint, naming the previous undamaged one.
Start find_start(const TrainConfig& config, const ModelSpec& spec, LrSchedule& schedule,
                 cli::Console& console, std::optional<Checkpoint> in_memory);

/// Whether --save has a checkpoint of a later step than the one where the run begins; not if it
/// cannot be read. Errors: none.
bool begins_before_others(const TrainConfig& config, const Start& start);

/// Samples that the run will have consumed at its end: a last, partial step takes none.
int64_t samples_of_run(const TrainConfig& config, const RunState& state);

/// Sets what a run takes from where it goes on: the steps of the whole run, the samples that its
/// data must have, and the seed.
void settle_start(TrainConfig& config, EngineOptions& options, const Start& start);

/// Checks that the data has the samples that the run needs from `start` on. Says which evaluations
/// have no documents, and which settings of a step differ from the checkpoint's. Also, if the
/// samples around its step are not those that it records: that they will come in another order, and
/// which flags have changed. Errors: indexed::FormatError for too few samples.
void check_data(const TrainConfig& config, const Start& start, const indexed::TrainingData& data,
                cli::Console& console);

}  // namespace trainer
