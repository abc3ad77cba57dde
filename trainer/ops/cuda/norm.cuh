// A norm's arithmetic inside a kernel, for norm.cu and for the quantizing kernels, which must get
// the same bits: the operations and their order are fixed here. Not here: statistics, kernels.
// Source: equals cpu/rows.h.
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/cuda/device.cuh"

namespace ops::cuda {

/// The bias of a norm that has none: adding it changes no number, not even the sign of a zero.
constexpr float kNoBias = -0.0f;

/// One element of a norm's output, before it is rounded.
__device__ __forceinline__ float normed(float x, float mean, float rstd, float weight, float bias) {
  return fmaf((x - mean) * rstd, weight, bias);
}

}  // namespace ops::cuda
