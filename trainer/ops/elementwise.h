// Operations on all elements of a tensor alike: constants, copies, sums, initial values. Not here:
// activations (activation.h). May include: operation.h. Letters and dtypes as there.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/operation.h"

namespace ops {

/// dst = 0 (all bytes), or a constant.
struct Fill {
  static constexpr const char* kName = "fill";
  Tensor dst;  ///< fp32, bf16, fp16 or int32.
  float value = 0;

  void check(Device device) const {
    const Expect e(kName, device);
    e.that(bool(dst) && dst.device == device, "dst must be on this device");
    e.that(value == 0 || Expect::is_float(dst.dtype) || dst.dtype == DType::i32,
           "integers other than int32 can only be filled with 0");
  }
  Cost cost() const { return {0, bytes_of({&dst})}; }
};

/// dst = src, converted.
struct Copy {
  static constexpr const char* kName = "copy";
  Tensor dst, src;  ///< Equal element counts. Float dtypes may differ: rounds to nearest even.

  void check(Device device) const {
    const Expect e(kName, device);
    e.that(dst && src && dst.device == device && src.device == device,
           "dst and src must be on this device");
    e.that(dst.elements() == src.elements(), "dst and src must have equally many elements");
    e.that(dst.dtype == src.dtype || (Expect::is_float(dst.dtype) && Expect::is_float(src.dtype)),
           "only float dtypes are converted");
  }
  Cost cost() const { return {0, bytes_of({&dst, &src})}; }
};

/// dst (+)= a * alpha for gradients and bench code: dst fp32, bf16 or fp16 and a of any float
/// dtype.
struct Add {
  static constexpr const char* kName = "add";
  Tensor dst, a;
  float alpha = 1;

  void check(Device device) const {
    const Expect e(kName, device);
    e.model_dtype("dst", dst);
    e.model_dtype("a", a);
    e.matrix("a", a.flat().view({a.elements(), 1}), a.dtype, dst.elements(), 1);
  }
  Cost cost() const { return {count(dst), bytes_of({&dst, &dst, &a})}; }
};

/// Normal(0, std) by position in the whole tensor: element e of the whole draws from Philox4x32-10
/// with counter {e / 4 low, e / 4 high, 0, 0} and key {seed, stream}: words (0, 1) give the pair e
/// % 4 = 0, 1 and words (2, 3) the pair 2, 3 by Box-Muller: u = (a + 0.5) / 2^32, t = b / 2^32, r =
/// sqrt(-2 ln u): r cos(2 pi t), r sin(2 pi t).
struct NormalFill {
  static constexpr const char* kName = "normal_fill";
  Tensor out;  ///< (rows, columns) or (columns), any float dtype.
  float std = 1;
  uint32_t seed = 0;
  uint32_t stream = 0;        ///< One per parameter: hash of its name.
  int64_t whole_columns = 0;  ///< Columns of the whole tensor.
  int64_t first_row = 0;      ///< Where out begins in the whole.
  int64_t first_column = 0;

  void check(Device device) const {
    const Expect e(kName, device);
    e.model_dtype("out", out);
    e.matrix("out", out, out.dtype, out.rows(), out.columns());
    e.that(first_column >= 0 && first_row >= 0 && first_column + out.columns() <= whole_columns,
           "out must lie within whole_columns");
  }
  Cost cost() const { return {100 * count(out), bytes_of({&out})}; }
};

using ElementwiseOperations = Family<Fill, Copy, Add, NormalFill>;

}  // namespace ops
