// Activation functions as operations of their own, for where no linear layer fuses them. Not here:
// linears (linear.h).
// May include: operation.h. Letters and dtypes as there.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/operation.h"

namespace ops {

/// gelu_tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); gelu_erf: x Phi(x); relu; swiglu:
/// silu(gate) * up.
enum class Activation : uint8_t { none, gelu_tanh, gelu_erf, relu, swiglu };

/// y = activation(x); swiglu takes x (R, 2F) as [gate | up] and returns (R, F). May run in place,
/// except swiglu.
struct ActivationForward {
  static constexpr const char* kName = "activation_forward";
  Tensor y, x;
  Activation activation = Activation::none;

  void check(Device device) const {
    const Expect e(kName, device);
    e.model_dtype("x", x);
    const int64_t columns = activation == Activation::swiglu ? x.columns() / 2 : x.columns();
    e.that(activation != Activation::swiglu || x.columns() % 2 == 0, "swiglu needs even columns");
    e.matrix("x", x, x.dtype, x.rows(), x.columns());
    e.matrix("y", y, x.dtype, x.rows(), columns);
  }
  Cost cost() const { return {10 * count(y), bytes_of({&y, &x})}; }
};

/// dx = dy * activation'(x). dx may be dy except swiglu; dx may be x.
struct ActivationBackward {
  static constexpr const char* kName = "activation_backward";
  Tensor dx, dy, x;
  Activation activation = Activation::none;

  void check(Device device) const {
    const Expect e(kName, device);
    e.model_dtype("x", x);
    const int64_t columns = activation == Activation::swiglu ? x.columns() / 2 : x.columns();
    e.matrix("x", x, x.dtype, x.rows(), x.columns());
    e.matrix("dx", dx, x.dtype, x.rows(), x.columns());
    e.matrix("dy", dy, x.dtype, x.rows(), columns);
  }
  Cost cost() const { return {16 * count(dy), bytes_of({&dx, &dy, &x})}; }
};

using ActivationOperations = Family<ActivationForward, ActivationBackward>;

}  // namespace ops
