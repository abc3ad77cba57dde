// Products of matrices for optimizers, by cuBLASLt. Our rows are its columns, so d = op(a) op(b) is
// D^T = op(b)^T op(a)^T, and a transpose here is none there.
// Source: equals cpu/product.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/product.h"

#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {

GemmKey product_key(const MatrixProduct& args) noexcept {
  return {.m = args.d.shape[1],
          .n = args.d.shape[0],
          .k = args.depth(),
          .lda = args.b.shape[1],
          .ldb = args.a.shape[1],
          .ldd = args.d.shape[1],
          .transpose_a = args.transpose_b,
          .transpose_b = args.transpose_a,
          .add_c = args.beta != 0,
          .a = args.d.dtype,
          .b = args.d.dtype,
          .d = args.d.dtype};
}

int64_t scratch_bytes(CudaOps&, const MatrixProduct&) { return Gemm::kWorkspaceBytes; }

void launch(CudaOps& cuda, const MatrixProduct& args) {
  if (args.d.elements() == 0) return;
  const GemmCall call{.a = args.b.data,
                      .b = args.a.data,
                      .c = args.beta != 0 ? args.c.data : nullptr,
                      .d = args.d.data,
                      .alpha = args.alpha,
                      .beta = args.beta};
  cuda.gemm().run(product_key(args), call, cuda.scratch(scratch_bytes(cuda, args)), cuda.stream(),
                  !cuda.capturing());
}

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::MatrixProduct>;
