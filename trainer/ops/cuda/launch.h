// What every launcher of this folder needs on the host: checked calls, dtype dispatch, grid
// arithmetic. Not here: kernels, and anything inside a kernel (device.cuh). Included by .cu and .cc
// files of ops/cuda only. Counts are in elements, sizes of scratch memory in bytes.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "trainer/ops/cuda/cuda_check.h"
#include "trainer/ops/tensor.h"

namespace ops::cuda {

/// Calls `body` with a null pointer of the tensor's element type: float, __half or __nv_bfloat16.
template <typename Body>
void dispatch_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(static_cast<float*>(nullptr));
    case DType::f16:
      return body(static_cast<__half*>(nullptr));
    case DType::bf16:
      return body(static_cast<__nv_bfloat16*>(nullptr));
    default:
      throw ShapeError(std::string("cuda: dtype: ") + name(dtype) +
                       ": expected fp32, fp16 or bf16");
  }
}

template <typename T>
T* data(const Tensor& t) noexcept {
  return static_cast<T*>(t.data);
}

constexpr int64_t ceil_div(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) noexcept { return ceil_div(a, b) * b; }

/// Blocks for a grid-stride loop over `items`, at most `per_sm` on each multiprocessor.
inline int grid_for(int64_t items, int threads, int multiprocessors, int per_sm) noexcept {
  const int64_t most = static_cast<int64_t>(multiprocessors) * per_sm;
  return static_cast<int>(std::max<int64_t>(1, std::min(ceil_div(items, threads), most)));
}

/// True when rows of `columns` elements can be walked in 16-byte packs from every pointer given.
template <typename... P>
bool packable(int64_t columns, int64_t element_bytes, const P*... pointers) noexcept {
  const uintptr_t bits = (reinterpret_cast<uintptr_t>(pointers) | ... | uintptr_t{0});
  return bits % 16 == 0 && columns * element_bytes % 16 == 0;
}

/// Where a sum over rows goes: fp32 or a 16-bit gradient, set or added to; a null `out` is skipped.
struct SumTarget {
  void* out = nullptr;
  DType dtype = DType::f32;
};
/// Up to three sums next to each other in the same partial rows, `columns` apart.
struct SumTargets {
  SumTarget target[3];
  bool accumulate = false;
};
inline SumTarget sum_target(const Tensor& t) noexcept { return {t.data, t.dtype}; }
/// target[t].out[c] (+)= sum over p of partial[p * stride + t * columns + c], in a fixed order, c <
/// columns. Done: queued on `stream`. Bound by the latency of parts / 32 loads.
void sum_partials(const SumTargets& targets, const float* partial, int64_t parts, int64_t stride,
                  int64_t columns, cudaStream_t stream);

/// Whether the driver can load one of this program's kernels: whether there is code for this GPU.
struct KernelCode {
  cudaError_t status;
  int ptx, binary;  ///< The PTX that it was compiled from, and the capability it was compiled for:
                    ///< 80 is 8.0.
};
KernelCode code_of_kernels() noexcept;

}  // namespace ops::cuda
