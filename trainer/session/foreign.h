// Foreign checkpoints: folders of Megatron-LM, Megatron-DeepSpeed and transformers, told from the
// trainer's own by what lies in them, so that a run that names one is refused with the command that
// makes a start of it. Not here: reading them (convert/, which knows the trainer's checkpoints and
// not the other way round).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "trainer/config/train_config.h"

namespace trainer {

/// What lies at `path`, of another program: "Megatron-LM's checkpoint", "Megatron-core's torch_dist
/// checkpoint", "DeepSpeed's checkpoint", "a transformers folder"; empty for the trainer's own, and
/// where nothing is known of it. Reads names only, and a tracker.
std::string foreign_checkpoint(const std::string& path);

/// Refuses a foreign --load, --pretrained-checkpoint or --save, and one that is no folder.
/// Errors: cli::UsageError naming flag, path, kind and the command that makes a start of it.
void refuse_foreign(const TrainConfig& config);

}  // namespace trainer
