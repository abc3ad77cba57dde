// The table of rotary positions that training and generation use. Not here: the rotation
// (ops/attention.h). convert/plain_forward has a table of its own, so that one checks the other.
// May include: spec/spec.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/spec/spec.h"

namespace trainer {

/// (positions, rotary_dim / 2) each, row-major; computed in double.
struct RotaryTables {
  std::vector<float> cosine, sine;
};
/// The tables for positions 0 .. positions - 1. Pair i of position p has the angle p * rate(i),
/// where rate(i) is rotary_base^(-2i / rotary_dim), divided by rotary_interpolation, and changed as
/// rotary_scaling says. Empty for a model without rotary positions.
/// Source: Su et al. 2021 (RoFormer), section 3.2.2; the scaled rates: transformers
/// modeling_rope_utils.py, "linear" and "llama3".
RotaryTables rotary_tables(const ModelSpec& spec, int64_t positions);

}  // namespace trainer
