// SPDX-License-Identifier: MIT
// The forward pass of --verify: one text through one model, on the CPU in fp32, with one layer's
// weights in memory at a time. Operations are the trainer's own CPU ones. There are two ways to
// compute attention's input: with the fused weight in the order of checkpoints of version 2 and
// later, or q, k and v each with its own weight; a mistake in splitting the fused weight shows as a
// difference.
// Source: trainer/ops/ops.h; Radford et al. 2019 for the order of operations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convert/canonical.h"

namespace convert {

/// How q, k and v are computed: by one fused weight, or by three.
enum class QkvRoad : uint8_t { fused, apart };

/// Logits of a whole sequence: row t, for t in 0 .. tokens.size() - 1, has padded_vocab_size scores
/// for the token after tokens[t]. No dropout.
/// Errors: indexed::FormatError for more tokens than positions, or a token outside the vocabulary;
/// those of the tensors' sources.
std::vector<float> plain_forward(const CanonicalModel& model, std::span<const int32_t> tokens,
                                 QkvRoad road);

}  // namespace convert
