// Activation functions and their derivatives, of one element and of a row; gelu_tanh and swiglu are
// computed in rows.h. Source: Hendrycks and Gimpel 2016 (GELU, and its tanh form); Shazeer 2020
// (SwiGLU).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/ops/activation.h"
#include "trainer/ops/cpu/rows.h"

namespace ops::cpu {

inline constexpr float kSqrtHalf = 0.7071067811865476f;
inline constexpr float kInvSqrtTwoPi = 0.3989422804014327f;

inline float sigmoid(float x) noexcept { return 1.0f / (1.0f + std::exp(-x)); }

template <Activation kActivation>
float activate(float x) noexcept {
  if constexpr (kActivation == Activation::gelu_erf) {
    return 0.5f * x * (1.0f + std::erf(x * kSqrtHalf));
  } else if constexpr (kActivation == Activation::relu) {
    return x < 0 ? 0.0f : x;  // NaN stays NaN
  } else {
    return x;
  }
}

template <Activation kActivation>
float derivative(float x) noexcept {
  if constexpr (kActivation == Activation::gelu_erf) {
    return 0.5f * (1.0f + std::erf(x * kSqrtHalf)) + x * kInvSqrtTwoPi * std::exp(-0.5f * x * x);
  } else if constexpr (kActivation == Activation::relu) {
    return x > 0 ? 1.0f : 0.0f;
  } else {
    return 1.0f;
  }
}

/// Calls body.template operator()<A>() for the activation A; those that rows.h computes count as
/// none.
template <class Body>
void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::gelu_erf:
      return body.template operator()<Activation::gelu_erf>();
    case Activation::relu:
      return body.template operator()<Activation::relu>();
    case Activation::none:
    case Activation::gelu_tanh:
    case Activation::swiglu:
      return body.template operator()<Activation::none>();
  }
}

/// y = activation(x), not swiglu; y may be x.
inline void activate_row(Activation activation, float* y, const float* x, int64_t n) {
  if (activation == Activation::gelu_tanh) return row_gelu_tanh(y, x, n);
  with_activation(activation, [&]<Activation kActivation>() {
    for (int64_t i = 0; i < n; ++i) y[i] = activate<kActivation>(x[i]);
  });
}

/// d *= activation'(x), not swiglu.
inline void activate_row_backward(Activation activation, float* d, const float* x, int64_t n) {
  if (activation == Activation::gelu_tanh) return row_gelu_tanh_backward(d, x, n);
  with_activation(activation, [&]<Activation kActivation>() {
    for (int64_t i = 0; i < n; ++i) d[i] *= derivative<kActivation>(x[i]);
  });
}

/// dx (2n) = swiglu'(x) dy, of x (2n) as [gate | up] and dy (n).
inline void swiglu_row_backward(float* dx, const float* dy, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float gate = x[i], up = x[n + i], s = sigmoid(gate), d = dy[i];
    dx[i] = d * up * s * (1.0f + gate * (1.0f - s));
    dx[n + i] = d * gate * s;
  }
}

}  // namespace ops::cpu
