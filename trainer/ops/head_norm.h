// A norm of each query and key head of packed q, k and v, before rotary, and its backward. Not
// here: norms of the residual stream (norm.h). May include: operation.h, norm.h, attention.h.
// Letters and dtypes as in operation.h. Source: Henry et al. 2020 (query-key normalization);
// Dehghani et al. 2023; Megatron-core's --qk-layernorm.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/attention.h"
#include "trainer/ops/norm.h"
#include "trainer/ops/operation.h"

namespace ops {

/// What forward and backward share: the heads of `x`, and their weights.
struct HeadNorm {
  Norm norm = Norm::rmsnorm;
  int64_t num_attention_heads = 0, num_query_groups = 0;
  Tensor x;                   ///< (S, B, G, N/G + 2, D) as (S, B, G*(N/G+2)*D) model dtype.
  Tensor mean, rstd;          ///< (S, B, G * (N/G + 1)) fp32, mean for layernorm only.
  Tensor q_weight, k_weight;  ///< (D) model dtype.

  /// Columns of mean and rstd: a group's query heads, then its key head.
  int64_t normed_heads() const noexcept { return num_attention_heads + num_query_groups; }
  int64_t kv_channels() const noexcept {
    return x.shape[2] / (num_attention_heads + 2 * num_query_groups);
  }
  void check(const Expect& e) const {
    e.that(num_query_groups > 0 && num_attention_heads % num_query_groups == 0,
           "num_query_groups must divide num_attention_heads");
    e.rank("x", x, 3);
    e.model_dtype("x", x);
    e.that(x.shape[2] % (num_attention_heads + 2 * num_query_groups) == 0,
           "heads must divide the columns of x");
    e.shape("q_weight", q_weight, x.dtype, {kv_channels()});
    e.shape("k_weight", k_weight, x.dtype, {kv_channels()});
    for (const auto& [what, t] : {std::pair("mean", &mean), std::pair("rstd", &rstd)})
      if (*t) e.shape(what, *t, DType::f32, {x.shape[0], x.shape[1], normed_heads()});
  }
};

/// y = each q and k head of x, normed over its D channels, times its weight, plus its bias; v is
/// copied. y may be x.
struct HeadNormForward {
  static constexpr const char* kName = "head_norm_forward";
  HeadNorm heads;  ///< mean and rstd: out, kept for backward; optional (evaluation).
  float eps = 1e-5f;
  Tensor y;               ///< As x, out.
  Tensor q_bias, k_bias;  ///< (D) model dtype; layernorm only; optional.

  void check(Device device) const {
    const Expect e(kName, device);
    heads.check(e);
    e.like("y", y, heads.x);
    if (q_bias) e.like("q_bias", q_bias, heads.q_weight);
    if (k_bias) e.like("k_bias", k_bias, heads.k_weight);
  }
  Cost cost() const { return {8 * count(y), bytes_of({&y, &heads.x, &heads.mean, &heads.rstd})}; }
};

/// dx of HeadNormForward, and the gradients of its weights and biases. dx may be dy.
struct HeadNormBackward {
  static constexpr const char* kName = "head_norm_backward";
  HeadNorm heads;
  Tensor dx;                    ///< As x, out.
  Tensor dy;                    ///< As x.
  Tensor dq_weight, dk_weight;  ///< (D) grad dtype, out.
  Tensor dq_bias, dk_bias;      ///< (D) grad dtype, out; optional.
  bool accumulate = true;       ///< Of all four.

  void check(Device device) const {
    const Expect e(kName, device);
    heads.check(e);
    e.that(bool(heads.rstd), "rstd must be given");
    e.that(heads.mean || heads.norm == Norm::rmsnorm, "layernorm needs mean");
    e.like("dx", dx, heads.x);
    e.like("dy", dy, heads.x);
    for (const auto& [what, t] :
         {std::pair("dq_weight", &dq_weight), std::pair("dk_weight", &dk_weight),
          std::pair("dq_bias", &dq_bias), std::pair("dk_bias", &dk_bias)}) {
      const std::string_view name = what;
      if (!*t && name.ends_with("bias")) continue;
      e.grad_dtype(what, *t, heads.x.dtype);
      e.dims(what, *t, {heads.kv_channels()});
    }
  }
  Cost cost() const {
    return {16 * count(dx), bytes_of({&dx, &dy, &heads.x, &heads.mean, &heads.rstd})};
  }
};

using HeadNormOperations = Family<HeadNormForward, HeadNormBackward>;

}  // namespace ops
