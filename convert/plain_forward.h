// SPDX-License-Identifier: MIT
// One text through one model, on the CPU in fp32, a layer's weights in memory at a time: what
// --verify compares. Operations are the trainer's own CPU ones. Two roads for attention's input:
// the fused weight in the order in which checkpoints of version 2 and later hold it, or q, k and v
// each from its own weight; a mistake in taking the fused weight apart shows as a difference.
// Source: trainer/ops/ops.h; Radford et al. 2019 for the order of operations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/canonical.h"

namespace convert {

/// How q, k and v are computed.
enum class QkvRoad : uint8_t { fused, apart };

/// Logits of a whole sequence: row t, for t in 0 .. tokens.size() - 1, holds padded_vocab_size
/// scores of the token after tokens[t]. No dropout.
/// Errors: indexed::FormatError for more tokens than positions, or a token outside the vocabulary;
/// those of the tensors' sources.
std::vector<float> plain_forward(const CanonicalModel& model, std::span<const int32_t> tokens,
                                 QkvRoad road);

}  // namespace convert
