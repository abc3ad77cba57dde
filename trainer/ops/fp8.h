// FP8: a linear's operands in eight bits, each tensor with one scale, and their products. Here: the
// formats' constants, how a tensor is quantized, how scales follow from the largest values, and the
// one form of product that the hardware supports. Not here: when and with which recipe
// (model/fp8.h), rounding on the host (number.h). May include: operation.h, activation.h, linear.h.
// Letters and dtypes as in operation.h; "fp8" is e4m3 or e5m2. A scale is four fp32, since cuBLASLt
// wants its address to be a multiple of 16: the inverse that a product multiplies by, the factor
// that a value is multiplied by before it is rounded, and two unused ones.
// Source: Micikevicius et al. 2022, "FP8 formats for deep learning"; OCP OFP8.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/activation.h"
#include "trainer/ops/linear.h"
#include "trainer/ops/operation.h"

namespace ops {

constexpr bool is_fp8(DType dtype) noexcept { return dtype == DType::e4m3 || dtype == DType::e5m2; }
/// The largest finite number: 448 or 57344.
constexpr float largest_fp8(DType dtype) noexcept {
  return dtype == DType::e5m2 ? 57344.0f : 448.0f;
}
/// Numbers of a scale, and which is which.
inline constexpr int64_t kScaleSize = 4;
enum : int64_t { kScaleInverse, kScaleFactor };
/// Rows, inner sizes and columns of an fp8 product are multiples of this.
inline constexpr int64_t kFp8Granule = 16;

/// v = x, or activation(x), or x * activation'(pre_activation);  rows = round(v * factor) and
/// columns its transpose;  amax = max(amax, |v|);  dbias (+)= column sums of v. Rounds to nearest
/// even; finite values beyond the largest become the largest; NaN and Inf become NaN, and amax then
/// is not finite. Any output may be omitted. Swiglu: x (R, 2C) as [gate | up] forward; backward x
/// (R, C/2) is the gradient, and v (R, C) that of [gate | up].
struct Quantize {
  static constexpr const char* kName = "quantize";
  Tensor rows;     ///< (R, C) fp8, out; optional.
  Tensor columns;  ///< (C, R) fp8, out; optional.
  Tensor scale;    ///< (4) fp32; with rows or columns.
  Tensor amax;     ///< (1) fp32, in and out; optional.
  Tensor dbias;    ///< (C) grad dtype, in and out; optional.
  bool accumulate_bias = true;
  Tensor x;               ///< (R, C) model dtype.
  Tensor pre_activation;  ///< (R, C) model dtype: for the backward forms; optional.
  Activation activation = Activation::none;

  /// R and C of v.
  int64_t row_count() const noexcept { return x.rows(); }
  int64_t column_count() const noexcept {
    if (pre_activation) return pre_activation.columns();
    return activation == Activation::swiglu ? x.columns() / 2 : x.columns();
  }
  void check(Device device) const {
    const Expect e(kName, device);
    const int64_t r = row_count(), c = column_count();
    e.model_dtype("x", x);
    e.that(r % kFp8Granule == 0 && c % kFp8Granule == 0, "R and C must be multiples of 16");
    e.that(rows || columns || amax || dbias, "rows, columns, amax or dbias must be given");
    const int64_t in = activation != Activation::swiglu ? c : pre_activation ? c / 2 : 2 * c;
    e.matrix("x", x, x.dtype, r, in);
    if (pre_activation) e.matrix("pre_activation", pre_activation, x.dtype, r, c);
    e.that(!pre_activation || activation != Activation::none, "a slope needs an activation");
    if (rows || columns) e.shape("scale", scale, DType::f32, {kScaleSize});
    if (rows) e.matrix("rows", rows, rows.dtype, r, c);
    if (columns) e.dims("columns", columns, {c, r});
    for (const Tensor* t : {&rows, &columns})
      e.that(!*t || is_fp8(t->dtype), "rows and columns are e4m3 or e5m2");
    e.that(!rows || !columns || rows.dtype == columns.dtype, "rows and columns differ in dtype");
    if (amax) e.shape("amax", amax, DType::f32, {1});
    if (!dbias) return;
    e.grad_dtype("dbias", dbias, x.dtype);
    e.dims("dbias", dbias, {c});
  }
  Cost cost() const {
    return {(activation == Activation::none ? 4.0 : 16.0) * count(x),
            bytes_of({&rows, &columns, &x, &pre_activation})};
  }
};

/// Which of a tensor's recent largest values its scale is computed from. Source: Transformer
/// Engine's amax_compute_algo.
enum class AmaxChoice : uint8_t { most_recent, max };

/// Scales from largest values, of n tensors of one dtype: amax becomes the newest entry of history,
/// if there is one, and the oldest is dropped; a = amax, or with `max` the largest of history;
/// factor = largest_fp8 / a / 2^margin, inverse = 1 / factor, both between 2^-126 and 2^126; amax =
/// 0. Where a is 0 or not finite the scale stays as it is, or without history becomes 1. An amax
///    that is not finite is not stored in history: the previous newest entry is repeated instead.
struct UpdateScales {
  static constexpr const char* kName = "update_scales";
  Tensor scale;    ///< (n, 4) fp32, in and out.
  Tensor amax;     ///< (n) fp32, in and out.
  Tensor history;  ///< (n, h) fp32, newest first, in and out; optional.
  DType dtype = DType::e4m3;
  int32_t margin = 0;
  AmaxChoice choice = AmaxChoice::most_recent;

  void check(Device device) const {
    const Expect e(kName, device);
    const int64_t n = amax.elements();
    e.shape("amax", amax, DType::f32, {n});
    e.shape("scale", scale, DType::f32, {n, kScaleSize});
    if (history) {
      e.rank("history", history, 2);
      e.shape("history", history, DType::f32, {n, history.shape[1]});
    }
    e.that(is_fp8(dtype), "dtype is e4m3 or e5m2");
  }
  Cost cost() const { return {count(amax), bytes_of({&scale, &amax, &history})}; }
};

/// y (M, N) = (a b^T) * a_scale.inverse * b_scale.inverse + bias + addend, summed in fp32. A
/// linear's three products: forward x W^T, backward dy (W^T)^T, and for the weight dy^T (x^T)^T, so
/// each operand is contiguous along the summed dimension. At most one operand is e5m2. y may be
/// addend.
struct Fp8Product {
  static constexpr const char* kName = "fp8_product";
  Tensor y;                 ///< (M, N) model dtype or fp32, out.
  Tensor a, b;              ///< (M, K) and (N, K) fp8.
  Tensor a_scale, b_scale;  ///< (4) fp32.
  Tensor bias;              ///< (N) y's dtype; optional.
  Tensor addend;            ///< (M, N) y's dtype; optional.
  /// Partial sums may be kept with 14 bits (Hopper's tensor cores), which is faster; else they are
  /// promoted to fp32 every 128 terms.
  bool fast_sums = true;

  void check(Device device) const {
    const Expect e(kName, device);
    e.that(is_fp8(a.dtype) && is_fp8(b.dtype), "a and b are e4m3 or e5m2");
    e.that(a.dtype == DType::e4m3 || b.dtype == DType::e4m3, "a and b are both e5m2");
    const int64_t m = a.rows(), n = b.rows(), k = a.columns();
    e.matrix("a", a, a.dtype, m, k);
    e.matrix("b", b, b.dtype, n, k);
    e.that(m % kFp8Granule == 0 && n % kFp8Granule == 0 && k % kFp8Granule == 0,
           "sizes must be multiples of 16");
    e.shape("a_scale", a_scale, DType::f32, {kScaleSize});
    e.shape("b_scale", b_scale, DType::f32, {kScaleSize});
    e.model_dtype("y", y);
    e.matrix("y", y, y.dtype, m, n);
    if (bias) e.shape("bias", bias, y.dtype, {n});
    if (addend) e.matrix("addend", addend, y.dtype, m, n);
  }
  Cost cost() const { return {product_flops(a, b), bytes_of({&y, &a, &b, &addend})}; }
};

using Fp8Operations = Family<Quantize, UpdateScales, Fp8Product>;

}  // namespace ops
