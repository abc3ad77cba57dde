// Foreign checkpoints: recognises folders of Megatron-LM, Megatron-DeepSpeed and transformers by
// their contents, so that a run that names one is refused with the command that converts it. Not
// here: reading them (convert/, which depends on the trainer's checkpoints, not the other way
// round).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "trainer/config/train_config.h"

namespace trainer {

/// The kind of another program's checkpoint at `path`: "Megatron-LM's checkpoint", "Megatron-core's
/// torch_dist checkpoint", "DeepSpeed's checkpoint", "a transformers folder"; empty for the
/// trainer's own, and if unknown. Reads only names, and a tracker.
std::string foreign_checkpoint(const std::string& path);

/// Refuses a foreign --load, --pretrained-checkpoint or --save, and one that is not a folder.
/// Errors: cli::UsageError naming flag, path, kind and the command that converts it.
void refuse_foreign(const TrainConfig& config);

}  // namespace trainer
