// Column- and row-parallel linears: a layer's four products, forward and backward, with what tensor
// and sequence parallelism and FP8 add to them. Column parallel (qkv, fc1): a rank holds (O/tp, I)
// of the weight and sees all rows of x. Row parallel (proj, fc2): it holds (O, I/tp), and its
// product is one term of a sum over ranks. Not here: the collectives (tensor_parallel.h), scales
// (fp8.h), what lies between two linears (block.cc, block_backward.cc). May include: model/layer.h.
// Source: Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022 (sequence parallelism).
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/layer.h"
#include "trainer/model/tensor_parallel.h"

namespace trainer {

/// Which parameters a linear has.
struct LinearRoles {
  Linear linear;
  Role weight, bias;
};
inline constexpr LinearRoles kQkv{Linear::qkv, Role::qkv_weight, Role::qkv_bias};
inline constexpr LinearRoles kProj{Linear::proj, Role::proj_weight, Role::proj_bias};
inline constexpr LinearRoles kFc1{Linear::fc1, Role::fc1_weight, Role::fc1_bias};
inline constexpr LinearRoles kFc2{Linear::fc2, Role::fc2_weight, Role::fc2_bias};

/// Where a linear's bias gets its gradient.
enum class BiasGradient : uint8_t {
  here,       ///< With this linear's backward.
  elsewhere,  ///< From an operation that passes over the same numbers anyway.
};

/// What a linear reads: activation(values), where only FP8 may leave the activation to the linear.
struct LinearInput {
  Tensor values;
  ops::Activation activation = ops::Activation::none;
  /// BlockKept::quantized of this linear: forward leaves there what backward wants, which takes it.
  /// Null where there is no backward.
  Quantized* kept = nullptr;
};

/// What each linear of a block reads, as it is kept.
LinearInput input_of(const Layer& l, BlockKept& kept, Linear linear);

/// y (S, B, O/tp) = activation(x W^T + bias) from this rank's rows of x (S/tp or S, B, I);
/// pre_activation (as y) keeps the sum, where given. In FP8 there is no activation.
struct ColumnParallelForward {
  Tensor y, pre_activation;
  LinearInput x;
  ops::Activation activation = ops::Activation::none;
};
void column_parallel_forward(const Layer& l, LinearRoles roles, const ColumnParallelForward& a);

/// The gradient of a column-parallel linear's output (S, B, O/tp): values, or in FP8 values *
/// activation'(pre_activation).
struct OutputGradient {
  PoolTensor values;
  PoolTensor pre_activation = {};
  ops::Activation activation = ops::Activation::none;
};
/// The gradient of this rank's rows of x: dy W, summed over ranks. The sum runs beside the product
/// of the weight's gradient. Releases dy and x after that product; x may be empty where `kept` has
/// what that wants.
PoolTensor column_parallel_backward(const Layer& l, LinearRoles roles, BiasGradient bias,
                                    OutputGradient dy, PoolTensor x, Quantized& kept);

/// partial (S, B, O) = x W^T + addend: one rank's term of the sum that sum_rows() makes. The bias
/// is added here when one rank holds all, else by the norm after the sum.
void row_parallel_forward(const Layer& l, LinearRoles roles, const Tensor& partial,
                          const LinearInput& x, const Tensor& addend);
/// The input gradient dx (R, I/tp) = (dy W) * activation'(pre_activation), and in dbias its column
/// sums: the gradient of the bias that stands before the activation. In FP8 dx = dy W alone.
struct InputGradient {
  const char* purpose;
  Tensor pre_activation = {};
  ops::Activation activation = ops::Activation::none;
  Grads::Target dbias = {};
};
/// dx from dbranch (this rank's rows of the sum's gradient), and the weight's gradient from x.
PoolTensor row_parallel_backward(const Layer& l, LinearRoles roles, BiasGradient bias,
                                 const Tensor& dbranch, const LinearInput& x,
                                 const InputGradient& want);

/// Releases what the product of a weight's gradient reads: now, or after a product made later.
void release_after_products(const Layer& l, PoolTensor tensor);

}  // namespace trainer
