// The backward product before an activation: dpre = (dy W) * gelu'(pre), with the bias gradient's
// sums, in one kernel. Saves the pass over three (R, F) matrices that follows the plain product.
// Lives here: which GPUs and calls it supports, its launch. Not here: the kernel
// (dgelu_gemm.cu), the use of it or of the plain product (linear.cc). Included by ops/cuda only.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/ops/gpus.h"
#include "trainer/ops/linear.h"

namespace ops::cuda {

/// Whether this program has the kernel and `gpu` runs it: Hopper's code runs only on Hopper.
bool dgelu_gemm_runs_on(Capability gpu) noexcept;

/// Rows of a tile, and warps per tile: each leaves one row of sums.
constexpr int kDgeluTileRows = 128, kDgeluTileWarps = 4;

/// Whether dgelu_gemm supports the call and is faster: tanh GELU in bf16, no addend, rows
/// of 16-byte packs, and no more than 2560 outputs of the layer above (measured on an H200: 20%
/// less time at 768, 8% at 2048, 8% more at 4096, where cuBLASLt's larger tiles win).
bool dgelu_gemm_takes(const LinearBackwardInput& args) noexcept;

/// Rows of partial sums that dgelu_gemm leaves, and their bytes.
int64_t dgelu_gemm_partial_rows(int64_t rows) noexcept;
int64_t dgelu_gemm_scratch(int64_t rows, int64_t columns) noexcept;

/// args.dx = (args.dy args.weight) * gelu'(args.pre_activation); partial[p][c], p <
/// dgelu_gemm_partial_rows, are sums over rows of the unrounded product, added up by
/// sum_partials. Errors: DeviceError. Done: queued on `stream`; the same bits each time.
void dgelu_gemm(const LinearBackwardInput& args, float* partial, cudaStream_t stream);

}  // namespace ops::cuda
