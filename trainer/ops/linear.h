// Linear layers: the product with everything that the fastest device fuses with it, forward and
// backward. Not here: activations on their own (activation.h), splitting over tensor ranks
// (model/). May include: operation.h, activation.h. Letters and dtypes as in operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

#include "trainer/ops/activation.h"
#include "trainer/ops/operation.h"

namespace ops {

/// Flops of the product of x (R, I) and weight (O, I).
inline double product_flops(const Tensor& x, const Tensor& weight) noexcept {
  return 2.0 * static_cast<double>(x.rows()) * count(weight);
}

/// Some outputs of a linear whose weight lies in several places.
struct WeightPiece {
  const void* data = nullptr;      ///< Their numbers, of the weight's dtype.
  int64_t first = 0, outputs = 0;  ///< Which outputs: first .. first + outputs - 1.
  /// Numbers from one row in memory to the next. A row has the weights of an output; of a
  /// transposed weight, those of an input.
  int64_t row = 0;
};

/// y = activation(x weight^T + bias) + addend. The activation is not swiglu (that is
/// activation_forward). addend excludes an activation; y may be addend.
struct LinearForward {
  static constexpr const char* kName = "linear_forward";
  Tensor y;               ///< (R, O) model dtype, out.
  Tensor pre_activation;  ///< (R, O) model dtype, out: before the activation, kept for backward;
                          ///< optional.
  Tensor x;               ///< (R, I) model dtype.
  Tensor weight;          ///< (O, I) model dtype, or bf16 beside fp32 on the CPU.
  Tensor bias;            ///< (O) model dtype; optional.
  Tensor addend;          ///< (R, O) model dtype; optional: the residual, or another branch.
  Activation activation = Activation::none;
  /// weight lies as (I, O), on the CPU: as a file of GPT-2 has it. No result depends on it.
  bool weight_is_transposed = false;
  /// The weight's pieces, on the CPU, when it does not lie in one: as files have q, k and v. Each
  /// output is in one of them. Of `weight` only shape and dtype count then. Neighbours in memory
  /// should be neighbours here: they are multiplied together. No result depends on it. Excludes
  /// addend.
  std::span<const WeightPiece> pieces = {};

  int64_t outputs() const noexcept { return weight.shape[weight_is_transposed ? 1 : 0]; }

  void check(Device device) const {
    const Expect e(kName, device);
    e.model_dtype("x", x);
    e.rank("weight", weight, 2);
    e.that(!weight_is_transposed || device == Device::cpu, "a transposed weight is for the CPU");
    e.matrix("x", x, x.dtype, x.rows(), weight.shape[weight_is_transposed ? 0 : 1]);
    e.weight_dtype("weight", weight, x.dtype);
    e.matrix("weight", weight, weight.dtype, weight.shape[0], weight.shape[1]);
    e.that(y.dtype == DType::f32 || y.dtype == x.dtype, "y must be of the model dtype or fp32");
    e.matrix("y", y, y.dtype, x.rows(), outputs());
    if (pre_activation) e.matrix("pre_activation", pre_activation, y.dtype, x.rows(), outputs());
    if (bias) e.shape("bias", bias, x.dtype, {outputs()});
    if (addend) e.matrix("addend", addend, y.dtype, x.rows(), outputs());
    e.that(!addend || activation == Activation::none, "addend excludes an activation");
    e.that(activation != Activation::swiglu, "swiglu is not an epilogue: use activation_forward");
    if (!pieces.empty()) check_pieces(e, device);
  }
  void check_pieces(const Expect& e, Device device) const {
    e.that(device == Device::cpu, "a weight in pieces is for the CPU");
    e.that(!addend, "a weight in pieces excludes an addend");
    int64_t total = 0;
    for (const WeightPiece& piece : pieces) {
      const bool inside = piece.data != nullptr && piece.outputs > 0 && piece.first >= 0 &&
                          piece.first + piece.outputs <= outputs();
      e.that(inside, "a piece of the weight is outside of the outputs");
      e.that(piece.row >= (weight_is_transposed ? piece.outputs : x.columns()),
             "rows of a piece of the weight overlap");
      total += piece.outputs;
    }
    e.that(total == outputs(), "the weight's pieces must have each output once");
  }
  Cost cost() const {
    return {product_flops(x, weight), bytes_of({&y, &pre_activation, &x, &weight, &addend})};
  }
};

/// dx = (dy weight) * activation'(pre_activation) + addend; dbias (+)= column sums of that product.
/// pre_activation, activation and dbias belong to the linear *before* this one, whose output is
/// this one's x. dx may be addend. addend excludes an activation and dbias.
struct LinearBackwardInput {
  static constexpr const char* kName = "linear_backward_input";
  Tensor dx;              ///< (R, I) model dtype, out.
  Tensor dy;              ///< (R, O) model dtype.
  Tensor weight;          ///< (O, I) model dtype.
  Tensor pre_activation;  ///< (R, I) model dtype; optional.
  Activation activation = Activation::none;
  Tensor dbias;  ///< (I) grad dtype; optional.
  bool accumulate_bias = true;
  Tensor addend;  ///< (R, I) model dtype; optional.

  void check(Device device) const {
    const Expect e(kName, device);
    e.model_dtype("dy", dy);
    e.rank("weight", weight, 2);
    e.matrix("dy", dy, dy.dtype, dy.rows(), weight.shape[0]);
    e.matrix("weight", weight, dy.dtype, weight.shape[0], weight.shape[1]);
    e.matrix("dx", dx, dy.dtype, dy.rows(), weight.shape[1]);
    const bool sloped = activation != Activation::none;
    e.that(activation != Activation::swiglu, "swiglu is not an epilogue: use activation_backward");
    if (sloped) e.matrix("pre_activation", pre_activation, dy.dtype, dy.rows(), weight.shape[1]);
    if (dbias) {
      e.grad_dtype("dbias", dbias, dy.dtype);
      e.dims("dbias", dbias, {weight.shape[1]});
    }
    if (addend) e.matrix("addend", addend, dy.dtype, dy.rows(), weight.shape[1]);
    e.that(!addend || (!sloped && !dbias), "addend excludes an activation and dbias");
  }
  Cost cost() const {
    return {product_flops(dy, weight), bytes_of({&dx, &dy, &weight, &pre_activation, &addend})};
  }
};

/// dweight (+)= dy^T x;  dbias (+)= column sums of dy. dweight may be empty (bias only).
struct LinearBackwardWeight {
  static constexpr const char* kName = "linear_backward_weight";
  Tensor dweight;  ///< (O, I) grad dtype, out; optional.
  Tensor dbias;    ///< (O) grad dtype, out; optional.
  Tensor dy;       ///< (R, O) model dtype.
  Tensor x;        ///< (R, I) model dtype; needed with dweight.
  bool accumulate = true;

  void check(Device device) const {
    const Expect e(kName, device);
    e.model_dtype("dy", dy);
    e.that(dweight || dbias, "dweight or dbias must be given");
    if (dweight) {
      e.grad_dtype("dweight", dweight, dy.dtype);
      e.rank("dweight", dweight, 2);
      e.dims("dweight", dweight, {dy.columns(), x.columns()});
      e.matrix("x", x, dy.dtype, dy.rows(), x.columns());
    }
    if (dbias) {
      e.grad_dtype("dbias", dbias, dy.dtype);
      e.dims("dbias", dbias, {dy.columns()});
    }
    e.matrix("dy", dy, dy.dtype, dy.rows(), dy.columns());
  }
  Cost cost() const {
    const Tensor none;
    const Tensor& again = accumulate ? dweight : none;
    return {dweight ? product_flops(dy, dweight) : count(dy),
            bytes_of({&dweight, &again, &dy, &x})};
  }
};

using LinearOperations = Family<LinearForward, LinearBackwardInput, LinearBackwardWeight>;

}  // namespace ops
