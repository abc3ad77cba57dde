// Weights in flat memory as FP8: what a rank does with its part of a weight before the ranks gather
// all parts as bytes, and the transposed layout, which is made from the gathered bytes. A part is a
// range of a weight's elements, so it may begin and end within a row. Not here: whole tensors and
// products (fp8.h), which weights these are (model/fp8.h), the gathering (parallel/weights.h). May
// include: operation.h, fp8.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/fp8.h"
#include "trainer/ops/operation.h"

namespace ops {

/// Parts of weights begin and end at multiples of this many elements.
inline constexpr int64_t kFlatGranule = 128;

/// out = round(x * factor);  amax = max(amax, |x|). Rounding, saturation and NaN as in Quantize. So
/// the parts of a matrix, rounded one by one with the same scale, have the bytes that Quantize
/// gives the whole.
struct QuantizeFlat {
  static constexpr const char* kName = "quantize_flat";
  Tensor out;    ///< (n) fp8, out; optional.
  Tensor scale;  ///< (4) fp32; with out.
  Tensor amax;   ///< (1) fp32, in and out; optional.
  Tensor x;      ///< (n) model dtype; n is a multiple of kFlatGranule.

  void check(Device device) const {
    const Expect e(kName, device);
    e.model_dtype("x", x);
    const int64_t n = x.elements();
    e.shape("x", x, x.dtype, {n});
    e.that(n % kFlatGranule == 0, "elements must be a multiple of 128");
    e.that(out || amax, "out or amax must be given");
    if (amax) e.shape("amax", amax, DType::f32, {1});
    if (!out) return;
    e.that(is_fp8(out.dtype), "out is e4m3 or e5m2");
    e.dims("out", out, {n});
    e.shape("scale", scale, DType::f32, {kScaleSize});
  }
  Cost cost() const { return {4.0 * count(x), bytes_of({&out, &x})}; }
};

/// Where a part of a matrix (R, C) with a scale for every 128x128 is: elements from `first` on, row
/// by row.
struct FlatPlace {
  int64_t first = 0;  ///< A multiple of kFlatGranule.
  int64_t rows = 0, columns = 0;

  int64_t row_blocks() const noexcept { return scale_blocks(rows); }
  int64_t column_blocks() const noexcept { return scale_blocks(columns); }
  /// Of a part x of the matrix, and the largest magnitudes of the matrix' blocks.
  void check(const Expect& e, const Tensor& x, const Tensor& amax) const {
    const int64_t n = x.elements();
    e.model_dtype("x", x);
    e.shape("x", x, x.dtype, {n});
    e.that(n % kFlatGranule == 0 && first % kFlatGranule == 0,
           "first and elements must be multiples of 128");
    e.that(rows % kFp8Granule == 0 && columns % kFp8Granule == 0,
           "R and C must be multiples of 16");
    e.that(first >= 0 && first + n <= rows * columns, "x must lie within the matrix");
    e.shape("amax", amax, DType::f32, {row_blocks(), column_blocks()});
  }
};

/// amax = max(amax, |x|) of each block of 128x128 that x has a part of.
struct AmaxOfBlocks {
  static constexpr const char* kName = "amax_of_blocks";
  Tensor amax;  ///< (blocks of R, blocks of C) fp32, in and out.
  Tensor x;     ///< (n) model dtype.
  FlatPlace place;

  void check(Device device) const { place.check(Expect(kName, device), x, amax); }
  Cost cost() const { return {2.0 * count(x), bytes_of({&x})}; }
};

/// out = round(x * factor), with the factor that follows from its block's amax as in
/// QuantizeInBlocks. So the parts of a matrix have the bytes that QuantizeInBlocks gives the whole.
struct QuantizeFlatInBlocks {
  static constexpr const char* kName = "quantize_flat_in_blocks";
  Tensor out;   ///< (n) fp8, out.
  Tensor amax;  ///< (blocks of R, blocks of C) fp32: of the whole matrix.
  Tensor x;     ///< (n) model dtype.
  FlatPlace place;
  int32_t margin = 0;
  bool power_of_two = true;

  void check(Device device) const {
    const Expect e(kName, device);
    place.check(e, x, amax);
    e.that(is_fp8(out.dtype), "out is e4m3 or e5m2");
    e.dims("out", out, {x.elements()});
  }
  Cost cost() const { return {4.0 * count(x), bytes_of({&out, &x})}; }
};

/// The scales of a matrix (R, C) and of its transpose, in square blocks, that follow from amax as
/// in QuantizeInBlocks.
struct ScalesOfBlocks {
  static constexpr const char* kName = "scales_of_blocks";
  Tensor row_scale;     ///< scale_shape(square_block, R, C) fp32, out.
  Tensor column_scale;  ///< scale_shape(square_block, C, R) fp32, out.
  Tensor amax;          ///< (blocks of R, blocks of C) fp32.
  DType dtype = DType::e4m3;
  int32_t margin = 0;
  bool power_of_two = true;

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("amax", amax, 2);
    const int64_t r = amax.shape[0], c = amax.shape[1];
    e.shape("amax", amax, DType::f32, {r, c});
    e.shape("row_scale", row_scale, DType::f32, {r, (c + 3) / 4 * 4});
    e.shape("column_scale", column_scale, DType::f32, {c, (r + 3) / 4 * 4});
    e.that(is_fp8(dtype), "dtype is e4m3 or e5m2");
  }
  Cost cost() const { return {count(amax), bytes_of({&row_scale, &column_scale, &amax})}; }
};

/// columns = the transpose of rows.
struct TransposeFp8 {
  static constexpr const char* kName = "transpose_fp8";
  Tensor columns;  ///< (C, R) fp8, out.
  Tensor rows;     ///< (R, C) the same fp8; R and C are multiples of 16.

  void check(Device device) const {
    const Expect e(kName, device);
    const int64_t r = rows.rows(), c = rows.columns();
    e.that(is_fp8(rows.dtype), "rows is e4m3 or e5m2");
    e.dims("rows", rows, {r, c});
    e.that(r % kFp8Granule == 0 && c % kFp8Granule == 0, "R and C must be multiples of 16");
    e.shape("columns", columns, rows.dtype, {c, r});
  }
  Cost cost() const { return {0, bytes_of({&columns, &rows})}; }
};

using Fp8FlatOperations =
    Family<QuantizeFlat, AmaxOfBlocks, QuantizeFlatInBlocks, ScalesOfBlocks, TransposeFp8>;

}  // namespace ops
