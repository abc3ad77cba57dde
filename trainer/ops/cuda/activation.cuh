// Activation functions and their slopes inside a kernel, for activation.cu and fp8.cu. Not here:
// kernels. Source: equals cpu/activation.h and rows.h; GELU by Hendrycks and Gimpel 2016, SwiGLU by
// Shazeer 2020.
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/activation.h"
#include "trainer/ops/cuda/device.cuh"

namespace ops::cuda {

constexpr float kSqrt2OverPi = 0.7978845608028654f;
constexpr float kGeluCubic = 0.044715f;

// The tanh form is x * s with s = 1 / (1 + exp(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3), since (1
// + tanh u) / 2 = s. For 16-bit values exponential and reciprocal are the approximate ones: 1e-6
// relative, far below the rounding. With two special functions and ten other operations per
// element, the pass stays bound by memory.
template <typename T>
__device__ __forceinline__ float gelu_gate(float x) {
  const float twice = x * fmaf(2 * kSqrt2OverPi * kGeluCubic, x * x, 2 * kSqrt2OverPi);
  if (sizeof(T) == 4) return 1.0f / (1.0f + expf(-twice));
  float e, s;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(twice * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.0f + e));
  return s;
}

template <typename T>
__device__ __forceinline__ float activate(Activation kind, float x) {
  switch (kind) {
    case Activation::gelu_tanh:
      return x * gelu_gate<T>(x);
    case Activation::gelu_erf:
      return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case Activation::relu:
      return fmaxf(x, 0.0f);
    default:
      return x;
  }
}

template <typename T>
__device__ __forceinline__ float slope(Activation kind, float x) {
  switch (kind) {
    case Activation::gelu_tanh: {
      const float gate = gelu_gate<T>(x), gated = x * gate;
      const float inner = fmaf(6 * kSqrt2OverPi * kGeluCubic, x * x, 2 * kSqrt2OverPi);
      return fmaf(fmaf(-gated, gate, gated), inner, gate);
    }
    case Activation::gelu_erf:
      return 0.5f * (1.0f + erff(x * 0.70710678118654752f)) +
             x * 0.3989422804014327f * expf(-0.5f * x * x);
    case Activation::relu:
      return x > 0.0f ? 1.0f : 0.0f;
    default:
      return 1.0f;
  }
}

}  // namespace ops::cuda
