// SPDX-License-Identifier: MIT
// GPT-NeoX's own checkpoints, read: a file for each layer and tensor-parallel rank
// (layer_NN-model_TT-model_states.pt), or one a rank where there was no pipeline; which model they
// hold stands in the configurations beside them. Resolving a root folder, and other programs'
// checkpoints, are megatron_source.h's.
// Source: docs/format/megatron-checkpoint.5.md, "GPT-NeoX"; GPT-NeoX megatron/checkpointing.py,
// megatron/model/transformer.py, tools/ckpts/convert_neox_to_hf.py.
#pragma once

#include <string>

#include "convert/megatron_source.h"

namespace convert {

/// Whether the folder of one iteration is GPT-NeoX's: it has a file of layer 0, or the files of
/// ranks whose modules are numbered ("sequential.0."). Errors: those of reading a rank's file.
bool is_neox_checkpoint(const std::string& folder);

/// Reads it. A note says where ranks' copies of what is not divided differ.
/// Errors: std::system_error; indexed::FormatError "path: what: why", also for a configuration of a
/// model that is not supported, or that is another's.
CanonicalModel read_neox(const std::string& folder, const SourceOptions& options);

}  // namespace convert
