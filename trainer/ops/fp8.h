// FP8: a linear's operands in eight bits with their scales, and their products. Here: the formats'
// constants, how a tensor is quantized, how scales follow from the largest values, and the one form
// of product that the hardware supports. Not here: when and with which recipe (model/fp8.h),
// rounding on the host (number.h). May include: operation.h, activation.h, linear.h, norm.h.
// Letters and dtypes as in operation.h; "fp8" is e4m3 or e5m2. A tensor's only scale is four fp32,
// since cuBLASLt wants its address to be a multiple of 16: the inverse that a product multiplies
// by, the factor that a value is multiplied by before it is rounded, and two unused ones. Of
// several scales only the inverses are kept.
// Source: Micikevicius et al. 2022, "FP8 formats for deep learning"; OCP OFP8.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/activation.h"
#include "trainer/ops/linear.h"
#include "trainer/ops/norm.h"
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

/// Which values of an operand (R, K), contiguous along the summed dimension K, share a scale: all;
/// a row; 128 adjacent values of a row; 128 rows by 128 columns. The last block of a row or column
/// may be smaller. Source: cublasLtMatmulMatrixScale_t (SCALAR, OUTER_VEC, VEC128, BLK128x128).
enum class Scaling : uint8_t { tensor, row, row_block, square_block };
inline constexpr int64_t kScaleBlock = 128;

constexpr int64_t scale_blocks(int64_t n) noexcept { return (n + kScaleBlock - 1) / kScaleBlock; }
/// The scales of an operand (rows, depth) are a matrix of fp32: (1, 4); (1, rows); (blocks of K,
/// rows); (blocks of rows, blocks of K and zeros up to a multiple of 4). Source: cuBLAS, 3.1.4.5.
struct ScaleShape {
  int64_t rows, columns;
  constexpr int64_t count() const noexcept { return rows * columns; }
};
constexpr ScaleShape scale_shape(Scaling scaling, int64_t rows, int64_t depth) noexcept {
  if (scaling == Scaling::row) return {1, rows};
  if (scaling == Scaling::row_block) return {scale_blocks(depth), rows};
  if (scaling == Scaling::tensor) return {1, kScaleSize};
  return {scale_blocks(rows), (scale_blocks(depth) + 3) / 4 * 4};
}

/// R and C of a quantized v, and the check of what it is computed from: x, pre_activation,
/// activation and norm of Quantize or QuantizeInBlocks.
template <class Args>
int64_t quantized_columns(const Args& a) noexcept {
  if (a.pre_activation) return a.pre_activation.columns();
  return a.activation == Activation::swiglu ? a.x.columns() / 2 : a.x.columns();
}
template <class Args>
void check_quantized(const Expect& e, const Args& a) {
  const int64_t r = a.row_count(), c = a.column_count();
  e.model_dtype("x", a.x);
  e.that(r % kFp8Granule == 0 && c % kFp8Granule == 0, "R and C must be multiples of 16");
  const int64_t in = a.activation != Activation::swiglu ? c : a.pre_activation ? c / 2 : 2 * c;
  e.matrix("x", a.x, a.x.dtype, r, in);
  if (a.pre_activation) e.matrix("pre_activation", a.pre_activation, a.x.dtype, r, c);
  e.that(!a.pre_activation || a.activation != Activation::none, "a slope needs an activation");
  e.that(!a.norm || a.activation == Activation::none, "a norm or an activation, not both");
  if (a.norm) a.norm.check(e, a.x);
  if (a.rows) e.matrix("rows", a.rows, a.rows.dtype, r, c);
  if (a.columns) e.dims("columns", a.columns, {c, r});
  for (const Tensor* t : {&a.rows, &a.columns})
    e.that(!*t || is_fp8(t->dtype), "rows and columns are e4m3 or e5m2");
  e.that(!a.rows || !a.columns || a.rows.dtype == a.columns.dtype,
         "rows and columns differ in dtype");
  if (!a.dbias) return;
  e.grad_dtype("dbias", a.dbias, a.x.dtype);
  e.dims("dbias", a.dbias, {c});
}

/// v = x, norm(x), activation(x), or x * activation'(pre_activation);  rows = round(v * factor) and
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
  AppliedNorm norm = {};

  /// R and C of v.
  int64_t row_count() const noexcept { return x.rows(); }
  int64_t column_count() const noexcept { return quantized_columns(*this); }
  void check(Device device) const {
    const Expect e(kName, device);
    check_quantized(e, *this);
    e.that(rows || columns || amax || dbias, "rows, columns, amax or dbias must be given");
    if (rows || columns) e.shape("scale", scale, DType::f32, {kScaleSize});
    if (amax) e.shape("amax", amax, DType::f32, {1});
  }
  Cost cost() const {
    return {(activation == Activation::none && !norm ? 4.0 : 16.0) * count(x),
            bytes_of({&rows, &columns, &x, &pre_activation, &norm.mean, &norm.rstd})};
  }
};

/// v as in Quantize, rounded with scales of its own values: rows' scales are of rows or blocks of
/// v, columns' of those of its transpose. Of each block: a is its largest magnitude, factor =
/// largest_fp8 / a / 2^margin, between 2^-126 and 2^126, with power_of_two rounded down to a power
/// of two; where a is 0 or not finite, factor is 1; the scale is 1 / factor. Rounding, saturation,
/// NaN and dbias as in Quantize. A NaN or Inf so stays one, in its own block. Source: Transformer
/// Engine's Float8BlockScaling; torchao's row-wise recipe.
struct QuantizeInBlocks {
  static constexpr const char* kName = "quantize_in_blocks";
  Tensor rows;          ///< (R, C) fp8, out; optional.
  Tensor columns;       ///< (C, R) fp8, out; optional.
  Tensor row_scale;     ///< scale_shape(scaling, R, C) fp32, out; with rows.
  Tensor column_scale;  ///< scale_shape(scaling, C, R) fp32, out; with columns.
  Tensor dbias;         ///< (C) grad dtype, in and out; optional.
  bool accumulate_bias = true;
  Tensor x;               ///< (R, C) model dtype, and for other forms as in Quantize.
  Tensor pre_activation;  ///< (R, C) model dtype: for the backward forms; optional.
  Activation activation = Activation::none;
  AppliedNorm norm = {};
  Scaling scaling = Scaling::row;  ///< Not tensor.
  int32_t margin = 0;
  bool power_of_two = true;

  int64_t row_count() const noexcept { return x.rows(); }
  int64_t column_count() const noexcept { return quantized_columns(*this); }
  void check(Device device) const {
    const Expect e(kName, device);
    check_quantized(e, *this);
    e.that(rows || columns, "rows or columns must be given");
    e.that(scaling != Scaling::tensor, "one scale for the tensor: use quantize");
    const auto scales = [&](const char* what, const Tensor& t, int64_t r, int64_t c) {
      const ScaleShape shape = scale_shape(scaling, r, c);
      e.shape(what, t, DType::f32, {shape.rows, shape.columns});
    };
    if (rows) scales("row_scale", row_scale, row_count(), column_count());
    if (columns) scales("column_scale", column_scale, column_count(), row_count());
  }
  Cost cost() const {
    // Columns' scales of whole columns are found in a pass of their own.
    const double reads = scaling == Scaling::row && columns ? 2 : 1;
    return {reads * (activation == Activation::none && !norm ? 4.0 : 16.0) * count(x),
            bytes_of({&rows, &columns, &row_scale, &column_scale}) +
                reads * bytes_of({&x, &pre_activation, &norm.mean, &norm.rstd})};
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

/// y (M, N) = a b^T + bias + addend, where a and b are their values times their scales; summed in
/// fp32. A linear's three products: forward x W^T, backward dy (W^T)^T, and for the weight dy^T
/// (x^T)^T, so each operand is contiguous along the summed dimension. At most one operand is e5m2.
/// y may be addend. Both operands have one scale, or scales of rows, or of blocks, at least one of
/// them of row blocks. Source: cuBLAS 13, 3.1.4.
struct Fp8Product {
  static constexpr const char* kName = "fp8_product";
  Tensor y;                 ///< (M, N) model dtype or fp32, out.
  Tensor a, b;              ///< (M, K) and (N, K) fp8.
  Tensor a_scale, b_scale;  ///< scale_shape() fp32; (4) if there is one scale.
  Tensor bias;              ///< (N) y's dtype; optional.
  Tensor addend;            ///< (M, N) y's dtype; optional.
  /// Partial sums may be kept with 14 bits (Hopper's tensor cores), which is faster; else they are
  /// promoted to fp32 every 128 terms. Not with blocks.
  bool fast_sums = true;
  Scaling a_scaling = Scaling::tensor, b_scaling = Scaling::tensor;

  bool in_blocks() const noexcept {
    return a_scaling == Scaling::row_block || b_scaling == Scaling::row_block;
  }
  void check(Device device) const {
    const Expect e(kName, device);
    e.that(is_fp8(a.dtype) && is_fp8(b.dtype), "a and b are e4m3 or e5m2");
    e.that(a.dtype == DType::e4m3 || b.dtype == DType::e4m3, "a and b are both e5m2");
    const int64_t m = a.rows(), n = b.rows(), k = a.columns();
    e.matrix("a", a, a.dtype, m, k);
    e.matrix("b", b, b.dtype, n, k);
    e.that(m % kFp8Granule == 0 && n % kFp8Granule == 0 && k % kFp8Granule == 0,
           "sizes must be multiples of 16");
    const auto blocks = [](Scaling s) {
      return s == Scaling::row_block || s == Scaling::square_block;
    };
    e.that(in_blocks() ? blocks(a_scaling) && blocks(b_scaling)
                       : a_scaling == b_scaling && !blocks(a_scaling),
           "a and b both have one scale, or scales of rows, or of blocks that are not both square");
    e.that(!in_blocks() || !fast_sums, "sums of blocks are fp32");
    const auto scales = [&](const char* what, const Tensor& t, Scaling s, int64_t rows) {
      const ScaleShape shape = scale_shape(s, rows, k);
      if (s == Scaling::tensor) return e.shape(what, t, DType::f32, {kScaleSize});
      e.shape(what, t, DType::f32, {shape.rows, shape.columns});
    };
    scales("a_scale", a_scale, a_scaling, m);
    scales("b_scale", b_scale, b_scaling, n);
    e.model_dtype("y", y);
    e.matrix("y", y, y.dtype, m, n);
    if (bias) e.shape("bias", bias, y.dtype, {n});
    if (addend) e.matrix("addend", addend, y.dtype, m, n);
  }
  Cost cost() const {
    return {product_flops(a, b), bytes_of({&y, &a, &b, &a_scale, &b_scale, &addend})};
  }
};

using Fp8Operations = Family<Quantize, QuantizeInBlocks, UpdateScales, Fp8Product>;

}  // namespace ops
