// Arguments of rotary and attention, on packed q/k/v.
// Not here: the linears around them (layer_args.h). Letters, dtypes and Dropout as there.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/layer_args.h"
#include "trainer/ops/tensor.h"

namespace ops {

/// Rotates the first `2 * table columns` dimensions of every q and k head in place; v stays.
/// half: pairs are (i, i + rotary/2) (NeoX, Llama); interleaved: (2i, 2i + 1) (GPT-J).
struct Rotary {
  Tensor qkv;           ///< (S, B, G, N/G + 2, D) as (S, B, G*(N/G+2)*D) model dtype, in place.
  Tensor positions;     ///< (S, B) int32.
  Tensor cosine, sine;  ///< (positions, rotary / 2) fp32.
  int64_t num_attention_heads = 0, num_query_groups = 0;
  bool interleaved = false;
  bool inverse = false;  ///< Backward: rotates by the negative angle.
};

/// How a packed qkv row is cut: for each of G groups, N/G query heads, then one key and one value
/// head, D each (Megatron's order; with G = N it is q, k, v of head 0, then of head 1, ...).
struct AttentionShape {
  int64_t num_attention_heads = 0;  ///< N held here.
  int64_t num_query_groups = 0;     ///< G held here; divides N.
  int64_t kv_channels = 0;          ///< D.
  float softmax_scale = 0;          ///< 1 / sqrt(D) as a rule.
  bool causal = true;
};

/// out = dropout(softmax(q k^T * scale, keys first_key[query] .. query)) v.
struct AttentionForward {
  AttentionShape shape;
  Tensor out;    ///< (S, B, N * D) model dtype, out.
  Tensor stats;  ///< (B, N, S) fp32, out: log of the sum of exp of scaled scores; kept; optional
                 ///< (evaluation).
  Tensor qkv;    ///< (S, B, G * (N/G + 2) * D) model dtype.
  Tensor first_key;  ///< (S, B) int32, optional: first key position a query may see
                     ///< (--reset-attention-mask).
  Dropout dropout;
};

/// dqkv of AttentionForward. Deterministic: the same bits for the same input.
struct AttentionBackward {
  AttentionShape shape;
  Tensor dqkv;  ///< As qkv, out; every element is written.
  Tensor dout;  ///< (S, B, N * D) model dtype.
  Tensor out, stats, qkv, first_key;
  Dropout dropout;
};

/// Attention of S new positions against a cache of T, for generation: writes k and v of qkv into
/// the cache at cached .. cached + S - 1, then out as AttentionForward over keys 0 .. cached + s.
/// No dropout.
struct AttentionDecode {
  AttentionShape shape;
  Tensor out;                     ///< (S, B, N * D) model dtype, out.
  Tensor qkv;                     ///< (S, B, G * (N/G + 2) * D).
  Tensor key_cache, value_cache;  ///< (T, B, G * D) model dtype, in and out.
  int64_t cached = 0;
};

}  // namespace ops
