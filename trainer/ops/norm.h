// Residual add, dropout and norm in one pass, and its backward; norms that another operation
// applies to its input. May include: operation.h, dropout.h. Letters and dtypes as in operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/dropout.h"
#include "trainer/ops/operation.h"

namespace ops {

/// What a norm subtracts and divides by.
enum class Norm : uint8_t { layernorm, rmsnorm };

/// A norm that an operation applies to its input x (R, C), whose statistics are known: (x - mean) *
/// rstd * weight + bias, rounded to the model dtype. It has the bits of ResidualNormForward's y.
struct AppliedNorm {
  Tensor weight;  ///< (C) x's dtype; empty: no norm.
  Tensor bias;    ///< (C) x's dtype; optional.
  Tensor mean;    ///< (R) fp32, of any rank; layernorm only.
  Tensor rstd;    ///< (R) fp32, of any rank.

  explicit operator bool() const noexcept { return bool(weight); }
  void check(const Expect& e, const Tensor& x) const {
    e.shape("weight", weight, x.dtype, {x.columns()});
    if (bias) e.shape("bias", bias, x.dtype, {x.columns()});
    if (mean) e.shape("mean", mean.flat(), DType::f32, {x.rows()});
    e.shape("rstd", rstd.flat(), DType::f32, {x.rows()});
  }
};

/// residual_out = residual + dropout(branch + branch_bias), rounded to the model dtype;  y =
/// norm(residual_out) * weight + bias. Without branch, residual_out must be empty: y =
/// norm(residual). Without y (and weight), only the sum and the statistics that are given. In
/// place: residual_out may be residual or branch; y may be branch.
struct ResidualNormForward {
  static constexpr const char* kName = "residual_norm_forward";
  Norm norm = Norm::layernorm;
  float eps = 1e-5f;
  Tensor y;             ///< (S, B, H) model dtype, out; optional.
  Tensor residual_out;  ///< (S, B, H) model dtype, out; with branch.
  Tensor mean;      ///< (S, B) fp32, out, layernorm only; kept for backward; optional (evaluation).
  Tensor rstd;      ///< (S, B) fp32, out: 1 / sqrt(variance + eps); kept for backward; optional.
  Tensor residual;  ///< (S, B, H) model dtype.
  Tensor branch;    ///< (S, B, H) model dtype; optional.
  Tensor branch_bias;  ///< (H) model dtype; optional: a row-parallel linear's bias, added after its
                       ///< all-reduce.
  Tensor weight;       ///< (H) model dtype.
  Tensor bias;         ///< (H) model dtype; layernorm only; optional.
  Dropout dropout;     ///< On branch + branch_bias.

  void check(Device device) const {
    const Expect e(kName, device);
    const Tensor& r = residual;
    e.rank("residual", r, 3);
    e.model_dtype("residual", r);
    e.that(bool(branch) == bool(residual_out), "branch and residual_out come together");
    if (branch) {
      e.like("branch", branch, r);
      e.like("residual_out", residual_out, r);
      if (branch_bias) e.shape("branch_bias", branch_bias, r.dtype, {r.shape[2]});
      dropout.check(e, r.columns());
    }
    if (y) {
      e.like("y", y, r);
      e.shape("weight", weight, r.dtype, {r.shape[2]});
      if (bias) e.shape("bias", bias, r.dtype, {r.shape[2]});
    }
    if (mean) e.shape("mean", mean, DType::f32, {r.shape[0], r.shape[1]});
    if (rstd) e.shape("rstd", rstd, DType::f32, {r.shape[0], r.shape[1]});
  }
  Cost cost() const {
    return {8 * count(residual), bytes_of({&y, &residual_out, &residual, &branch, &mean, &rstd})};
  }
};

/// dresidual = dresidual_out + norm'(dy);  dbranch = dropout'(dresidual).
/// Without dresidual_out only norm'(dy); without dy (and x, weight) dresidual = dresidual_out.
/// With p = 0 dbranch is dresidual, so leave dbranch empty and use that. In place: dresidual may be
/// dresidual_out; dbranch may be dy. dbranch_bias is the gradient of branch_bias, or of the bias of
/// the linear whose output was the branch; computing it here needs no extra pass.
struct ResidualNormBackward {
  static constexpr const char* kName = "residual_norm_backward";
  Norm norm = Norm::layernorm;
  Tensor dresidual;      ///< (S, B, H) model dtype, out.
  Tensor dbranch;        ///< (S, B, H) model dtype, out; only with dropout.
  Tensor dweight;        ///< (H) grad dtype, out.
  Tensor dbias;          ///< (H) grad dtype, out; optional.
  Tensor dbranch_bias;   ///< (H) grad dtype, out; optional, with dy: column sums of dbranch, of
                         ///< dresidual without dbranch.
  Tensor dy;             ///< (S, B, H) model dtype; optional.
  Tensor dresidual_out;  ///< (S, B, H) model dtype; optional.
  Tensor x;  ///< (S, B, H) model dtype: the normalized input (residual_out, or residual without
             ///< branch).
  Tensor mean, rstd;       ///< (S, B) fp32.
  Tensor weight;           ///< (H) model dtype.
  bool accumulate = true;  ///< Of dweight, dbias and dbranch_bias.
  Dropout dropout;

  void check(Device device) const {
    const Expect e(kName, device);
    const Tensor& d = dresidual;
    e.rank("dresidual", d, 3);
    e.model_dtype("dresidual", d);
    if (dresidual_out) e.like("dresidual_out", dresidual_out, d);
    if (dbranch) {
      e.like("dbranch", dbranch, d);
      dropout.check(e, d.columns());
    }
    e.that(dy || dresidual_out, "dy or dresidual_out must be given");
    e.that(dy || !dbranch_bias, "dbranch_bias needs dy");
    if (!dy) return;
    e.like("dy", dy, d);
    e.like("x", x, d);
    e.shape("weight", weight, d.dtype, {d.shape[2]});
    e.shape("rstd", rstd, DType::f32, {d.shape[0], d.shape[1]});
    if (norm == Norm::layernorm) e.shape("mean", mean, DType::f32, {d.shape[0], d.shape[1]});
    e.grad_dtype("dweight", dweight, d.dtype);
    e.dims("dweight", dweight, {d.shape[2]});
    if (dbias) {
      e.grad_dtype("dbias", dbias, d.dtype);
      e.dims("dbias", dbias, {d.shape[2]});
    }
    if (!dbranch_bias) return;
    e.grad_dtype("dbranch_bias", dbranch_bias, d.dtype);
    e.dims("dbranch_bias", dbranch_bias, {d.shape[2]});
  }
  Cost cost() const {
    return {16 * count(dresidual),
            bytes_of({&dresidual, &dbranch, &dy, &dresidual_out, &x, &mean, &rstd})};
  }
};

using NormOperations = Family<ResidualNormForward, ResidualNormBackward>;

}  // namespace ops
