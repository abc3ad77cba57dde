// GPT-NeoX's files of --config, taken as if flags said what they say. Not here: their keys
// (config/neox.cc).
//
// SPDX-License-Identifier: MIT
#pragma once

#include "tools/cli/console.h"
#include "trainer/config/flags.h"
#include "trainer/config/train_config.h"

namespace trainer {

/// Adds to `given` what the files of config.neox_config give, and names keys without effect in a
/// note. Errors: those of apply_neox(), and of a file that cannot be read.
void take_neox(TrainConfig& config, Given& given, cli::Console& console);

}  // namespace trainer
