// Products of matrices for optimizers: plain, with a factor on each term. Not here: the products of
// layers, with what is fused into them (linear.h). May include: operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/operation.h"

namespace ops {

/// d = alpha * op(a) op(b) + beta * c, where op() is the matrix or its transpose. Summed in fp32,
/// rounded once. d may be c, and overlaps neither a nor b. a may be b.
struct MatrixProduct {
  static constexpr const char* kName = "matrix_product";
  Tensor d;  ///< (m, n) fp32 or bf16, out.
  Tensor a;  ///< (m, k), or (k, m) with transpose_a; d's dtype.
  Tensor b;  ///< (k, n), or (n, k) with transpose_b; d's dtype.
  Tensor c;  ///< (m, n) of d's dtype; optional, and needed where beta is not 0.
  float alpha = 1, beta = 0;
  bool transpose_a = false, transpose_b = false;

  /// Terms of one element's sum.
  int64_t depth() const noexcept { return a.shape[transpose_a ? 0 : 1]; }

  void check(Device device) const {
    const Expect e(kName, device);
    e.that(d.dtype == DType::f32 || d.dtype == DType::bf16, "d must be fp32 or bf16");
    e.rank("d", d, 2);
    e.rank("a", a, 2);
    e.rank("b", b, 2);
    const int64_t m = d.shape[0], n = d.shape[1], k = depth();
    e.shape("a", a, d.dtype, {transpose_a ? k : m, transpose_a ? m : k});
    e.shape("b", b, d.dtype, {transpose_b ? n : k, transpose_b ? k : n});
    e.that(beta == 0 || bool(c), "beta without c");
    if (c) e.shape("c", c, d.dtype, {m, n});
  }
  Cost cost() const {
    return {2 * count(d) * static_cast<double>(depth()), bytes_of({&d, &a, &b, &c})};
  }
};

using ProductOperations = Family<MatrixProduct>;

}  // namespace ops
