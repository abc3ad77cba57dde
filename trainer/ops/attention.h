// Rotary positions and causal attention, on packed q, k and v. Not here: the linears around them
// (linear.h). May include: operation.h, dropout.h. Letters and dtypes as in operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/dropout.h"
#include "trainer/ops/operation.h"

namespace ops {

/// Rotates the first `2 * table columns` dimensions of every q and k head in place; v stays.
/// half: pairs are (i, i + rotary/2) (NeoX, Llama); interleaved: (2i, 2i + 1) (GPT-J).
struct Rotary {
  static constexpr const char* kName = "rotary";
  Tensor qkv;           ///< (S, B, G, N/G + 2, D) as (S, B, G*(N/G+2)*D) model dtype, in place.
  Tensor positions;     ///< (S, B) int32.
  Tensor cosine, sine;  ///< (positions, rotary / 2) fp32.
  int64_t num_attention_heads = 0, num_query_groups = 0;
  bool interleaved = false;
  bool inverse = false;  ///< Backward: rotates by the negative angle.

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("qkv", qkv, 3);
    e.model_dtype("qkv", qkv);
    const int64_t heads = num_attention_heads + 2 * num_query_groups;
    e.that(heads > 0 && qkv.shape[2] % heads == 0, "heads must divide the columns of qkv");
    e.shape("positions", positions, DType::i32, {qkv.shape[0], qkv.shape[1]});
    e.rank("cosine", cosine, 2);
    e.that(2 * cosine.shape[1] <= qkv.shape[2] / heads, "more rotated dimensions than kv_channels");
    e.shape("sine", sine, DType::f32, {cosine.shape[0], cosine.shape[1]});
    e.shape("cosine", cosine, DType::f32, {cosine.shape[0], cosine.shape[1]});
  }
  Cost cost() const { return {3 * count(qkv), 2 * bytes_of({&qkv})}; }
};

/// How a packed qkv row is laid out: for each of G groups, N/G query heads, then one key and one
/// value head, D each (Megatron's order; with G = N it is q, k, v of head 0, then of head 1, ...).
struct AttentionShape {
  int64_t num_attention_heads = 0;  ///< N held here.
  int64_t num_query_groups = 0;     ///< G held here; divides N.
  int64_t kv_channels = 0;          ///< D.
  float softmax_scale = 0;          ///< 1 / sqrt(D) as a rule.
  bool causal = true;

  /// For the checks below: whether qkv is packed as this shape says.
  void check(const Expect& e, const char* what, const Tensor& qkv) const {
    e.that(num_query_groups > 0 && num_attention_heads % num_query_groups == 0,
           "num_query_groups must divide num_attention_heads");
    e.rank(what, qkv, 3);
    e.model_dtype(what, qkv);
    e.dims(
        what, qkv,
        {qkv.shape[0], qkv.shape[1], (num_attention_heads + 2 * num_query_groups) * kv_channels});
  }
  /// Flops of one product of queries and keys: pairs times heads times channels.
  double product_flops(const Tensor& qkv) const noexcept {
    const double s = static_cast<double>(qkv.shape[0]);
    const double pairs = causal ? 0.5 * s * (s + 1) : s * s;
    return 2.0 * pairs * static_cast<double>(qkv.shape[1] * num_attention_heads * kv_channels);
  }
};

/// out = dropout(softmax(q k^T * scale, keys first_key[query] .. query)) v.
struct AttentionForward {
  static constexpr const char* kName = "attention_forward";
  AttentionShape shape;
  Tensor out;    ///< (S, B, N * D) model dtype, out.
  Tensor stats;  ///< (B, N, S) fp32, out: log of the sum of exp of scaled scores; kept; optional
                 ///< (evaluation).
  Tensor qkv;    ///< (S, B, G * (N/G + 2) * D) model dtype.
  Tensor first_key;  ///< (S, B) int32, optional: first key position a query may see
                     ///< (--reset-attention-mask).
  Dropout dropout;

  void check(Device device) const {
    const Expect e(kName, device);
    shape.check(e, "qkv", qkv);
    const int64_t s = qkv.shape[0], b = qkv.shape[1], n = shape.num_attention_heads;
    e.shape("out", out, qkv.dtype, {s, b, n * shape.kv_channels});
    if (stats) e.shape("stats", stats, DType::f32, {b, n, s});
    if (first_key) e.shape("first_key", first_key, DType::i32, {s, b});
    dropout.check(e, s);
  }
  Cost cost() const { return {2 * shape.product_flops(qkv), bytes_of({&out, &stats, &qkv})}; }
};

/// dqkv of AttentionForward. Deterministic: the same bits for the same input.
struct AttentionBackward {
  static constexpr const char* kName = "attention_backward";
  AttentionShape shape;
  Tensor dqkv;  ///< As qkv, out; every element is written.
  Tensor dout;  ///< (S, B, N * D) model dtype.
  Tensor out, stats, qkv, first_key;
  Dropout dropout;

  void check(Device device) const {
    const Expect e(kName, device);
    shape.check(e, "qkv", qkv);
    const int64_t s = qkv.shape[0], b = qkv.shape[1], n = shape.num_attention_heads;
    e.like("dqkv", dqkv, qkv);
    e.shape("out", out, qkv.dtype, {s, b, n * shape.kv_channels});
    e.like("dout", dout, out);
    e.shape("stats", stats, DType::f32, {b, n, s});
    if (first_key) e.shape("first_key", first_key, DType::i32, {s, b});
    dropout.check(e, s);
  }
  Cost cost() const {
    return {5 * shape.product_flops(qkv), bytes_of({&dqkv, &dout, &out, &stats, &qkv})};
  }
};

/// Attention of S new positions against a cache of T, for generation: writes k and v of qkv into
/// the cache at cached .. cached + S - 1, then out as AttentionForward over keys 0 .. cached + s,
/// or the last `window` of them. No dropout.
struct AttentionDecode {
  static constexpr const char* kName = "attention_decode";
  AttentionShape shape;
  Tensor out;                     ///< (S, B, N * D) model dtype, out.
  Tensor qkv;                     ///< (S, B, G * (N/G + 2) * D).
  Tensor key_cache, value_cache;  ///< (T, B, G * D) model dtype, in and out.
  int64_t cached = 0;
  int64_t window = 0;  ///< 0: all keys.

  void check(Device device) const {
    const Expect e(kName, device);
    shape.check(e, "qkv", qkv);
    const int64_t s = qkv.shape[0], b = qkv.shape[1];
    e.shape("out", out, qkv.dtype, {s, b, shape.num_attention_heads * shape.kv_channels});
    e.rank("key_cache", key_cache, 3);
    e.shape("key_cache", key_cache, qkv.dtype,
            {key_cache.shape[0], b, shape.num_query_groups * shape.kv_channels});
    e.like("value_cache", value_cache, key_cache);
    e.that(cached >= 0 && cached + s <= key_cache.shape[0], "the cache is too short");
    e.that(window >= 0, "window must be 0 or more");
  }
  Cost cost() const {
    return {4 * count(out) * static_cast<double>(cached + qkv.shape[0]),
            bytes_of({&out, &qkv, &key_cache, &value_cache})};
  }
};

using AttentionOperations = Family<Rotary, AttentionForward, AttentionBackward, AttentionDecode>;

}  // namespace ops
