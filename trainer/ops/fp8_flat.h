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
/// the parts of a matrix, rounded one by one with the same scale, have the bytes that Quantize gives
/// the whole.
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

using Fp8FlatOperations = Family<QuantizeFlat, TransposeFp8>;

}  // namespace ops
