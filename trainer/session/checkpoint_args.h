// --use-checkpoint-args: sets flags about the model that the command did not give from the
// checkpoint. Not here: the checks of the result (config/derive.cc), the comparison with the
// checkpoint (start.cc). Source: Megatron-LM checkpointing.py, load_args_from_checkpoint.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "trainer/config/flags.h"

namespace trainer {

/// Sets every flag of the model that `given` lacks from the checkpoint below --load: its shape from
/// the model record, the rest (sequence length, padding of the vocabulary, tokenizer) from the
/// stored configuration, if there is one. Without a stored --seq-length it is the model's number of
/// positions. The tokenizer is that of the checkpoint's own root (checkpoint/named_tokenizer.h).
/// Returns that function's message for the user, or nothing.
/// State: changes `config` and `given`; nothing without --use-checkpoint-args. Call before
/// derive_and_check(). Errors: cli::UsageError without --load or for a stored value that its flag
/// refuses; std::runtime_error if there is no checkpoint; indexed::FormatError for a damaged one.
std::string take_checkpoint_args(TrainConfig& config, Given& given);

}  // namespace trainer
