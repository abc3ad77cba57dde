// SPDX-License-Identifier: MIT
// Reads GPT-NeoX's own checkpoints: a file for each layer and tensor-parallel rank
// (layer_NN-model_TT-model_states.pt), or one per rank if there was no pipeline. The configurations
// beside them describe the model. Not here: finding an iteration in a root folder, and other
// programs' checkpoints (megatron_source.h).
// Source: docs/format/megatron-checkpoint.5.md, "GPT-NeoX"; GPT-NeoX megatron/checkpointing.py,
// megatron/model/transformer.py, tools/ckpts/convert_neox_to_hf.py.
#pragma once

#include <string>

#include "convert/megatron_source.h"

namespace convert {

/// Whether the folder of one iteration is GPT-NeoX's: it has a file of layer 0, or files of ranks
/// with numbered modules ("sequential.0."). Errors: those of reading a rank's file.
bool is_neox_checkpoint(const std::string& folder);

/// Reads it. A note says where ranks' copies of undivided parameters differ. Errors:
/// std::system_error; indexed::FormatError "path: what: why", also for a configuration of an
/// unsupported model, or of another model.
CanonicalModel read_neox(const std::string& folder, const SourceOptions& options);

}  // namespace convert
