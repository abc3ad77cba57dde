// Activation functions and their derivatives, one element at a time.
// Source: Hendrycks and Gimpel 2016 (GELU, and its tanh form); Shazeer 2020 (SwiGLU).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "trainer/ops/layer_args.h"

namespace ops::cpu {

inline constexpr float kSqrtTwoOverPi = 0.7978845608028654f;
inline constexpr float kSqrtHalf = 0.7071067811865476f;
inline constexpr float kInvSqrtTwoPi = 0.3989422804014327f;
inline constexpr float kGeluCubic = 0.044715f;

/// tanh through one exp; absolute error about 1e-7, which is what 1 + tanh needs.
inline float tanh_by_exp(float x) noexcept { return 1.0f - 2.0f / (std::exp(2.0f * x) + 1.0f); }
inline float sigmoid(float x) noexcept { return 1.0f / (1.0f + std::exp(-x)); }

template <Activation kActivation>
float activate(float x) noexcept {
  if constexpr (kActivation == Activation::gelu_tanh) {
    return 0.5f * x * (1.0f + tanh_by_exp(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x)));
  } else if constexpr (kActivation == Activation::gelu_erf) {
    return 0.5f * x * (1.0f + std::erf(x * kSqrtHalf));
  } else if constexpr (kActivation == Activation::relu) {
    return x < 0 ? 0.0f : x;  // NaN stays NaN
  } else {
    return x;
  }
}

template <Activation kActivation>
float derivative(float x) noexcept {
  if constexpr (kActivation == Activation::gelu_tanh) {
    const float t = tanh_by_exp(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x));
    const float inner = kSqrtTwoOverPi * (1.0f + 3.0f * kGeluCubic * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
  } else if constexpr (kActivation == Activation::gelu_erf) {
    return 0.5f * (1.0f + std::erf(x * kSqrtHalf)) + x * kInvSqrtTwoPi * std::exp(-0.5f * x * x);
  } else if constexpr (kActivation == Activation::relu) {
    return x > 0 ? 1.0f : 0.0f;
  } else {
    return 1.0f;
  }
}

/// Calls body.template operator()<A>() for the activation A; swiglu counts as none.
template <class Body>
void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::gelu_tanh:
      return body.template operator()<Activation::gelu_tanh>();
    case Activation::gelu_erf:
      return body.template operator()<Activation::gelu_erf>();
    case Activation::relu:
      return body.template operator()<Activation::relu>();
    case Activation::none:
    case Activation::swiglu:
      return body.template operator()<Activation::none>();
  }
}

}  // namespace ops::cpu
