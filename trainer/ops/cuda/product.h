// The cuBLASLt key of a MatrixProduct: for its launch, and for the timing before the first step.
// May include: ops/product.h, gemm.h.
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/cuda/gemm.h"
#include "trainer/ops/product.h"

namespace ops::cuda {

GemmKey product_key(const MatrixProduct& args) noexcept;

}  // namespace ops::cuda
