// --use-checkpoint-args: what a checkpoint says about the model, as flags that the command did not
// give. Not here: the checks of the result (config/derive.cc), the comparison with the checkpoint
// (start.cc). Source: Megatron-LM checkpointing.py, load_args_from_checkpoint.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/config/flags.h"

namespace trainer {

/// Sets every flag of the model that `given` lacks from the checkpoint below --load: its shape from
/// the model record, the rest (sequence length, padding of the vocabulary, tokenizer) from the
/// configuration stored there, where one is. Without a stored --seq-length it is as long as the
/// model has positions.
/// State: `config` and `given`; nothing without --use-checkpoint-args. Before derive_and_check().
/// Errors: cli::UsageError without --load or for a stored value that its flag refuses;
/// std::runtime_error when there is no checkpoint; indexed::FormatError for a damaged one.
void take_checkpoint_args(TrainConfig& config, Given& given);

}  // namespace trainer
