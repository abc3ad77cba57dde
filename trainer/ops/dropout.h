// Dropout: which elements are dropped, as a function of their position. Not here: where it is
// applied (embedding.h, norm.h, attention.h). May include: operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/operation.h"
#include "trainer/ops/tensor.h"

namespace ops {

/// Dropout by position: element (s, b, i) of a tensor (S, B, C) is dropped when its 16-bit lane is
/// below t = round(p * 65536), else multiplied by 1 / (1 - t / 65536). The lane: Philox4x32-10
/// (Salmon et al. 2011) with counter {i / 8, first_position + s, first_sample + b, iteration} and
/// key {seed, site}; result word (i % 8) / 2, low half for even i, high half for odd i. Attention
/// probabilities: i is the key position, s the query position, and site has the query head added.
/// No state: forward, backward and recompute, on any device and in any layout, draw the same mask.
/// One exception: for 16-bit attention on a GPU, cuDNN draws the mask, from a seed made of these
/// fields and of where the call's batch and heads begin. That mask is the same in forward,
/// backward, recompute and a run repeated in the same layout, but it is not the one defined here.
struct Dropout {
  float p = 0;  ///< 0 turns it off; 0 <= p < 1.
  uint32_t seed = 0;
  uint32_t site = 0;           ///< dropout_site(layer, kind).
  int64_t first_position = 0;  ///< Whole sequence position of row s = 0 (sequence parallel).
  int64_t first_sample = 0;    ///< Index in the global batch of sample b = 0.
  int64_t first_head = 0;      ///< Whole-model index of query head 0 (attention only).
  Tensor state;                ///< StepState in device memory: its `iteration` is read.

  /// For the check of the operation that drops `columns` of a row.
  void check(const Expect& e, int64_t columns) const {
    if (p == 0) return;
    e.that(p > 0 && p < 1, "dropout p must be in 0 <= p < 1");
    e.that(columns > 0, "dropout needs columns");
    e.state("dropout.state", state);
  }
};

/// The places in a layer where dropout is applied.
enum class DropoutKind : uint32_t {
  embedding = 0,
  attention_probabilities = 1,
  attention_output = 2,
  mlp_output = 3
};
/// `layer` counts the whole model's layers from 0; the low 16 bits are left for the head.
constexpr uint32_t dropout_site(int64_t layer, DropoutKind kind) noexcept {
  return (static_cast<uint32_t>(layer) << 18) | (static_cast<uint32_t>(kind) << 16);
}

}  // namespace ops
