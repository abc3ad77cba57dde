// Column- and row-parallel linears: a layer's four linears, forward and backward, with tensor
// parallelism, sequence parallelism and FP8. Column parallel (qkv, fc1): a rank has (O/tp, I) of
// the weight and sees all rows of x. Row parallel (proj, fc2): it has (O, I/tp), and its product is
// one term of a sum over ranks. Not here: the collectives (tensor_parallel.h), scales (fp8.h), what
// happens between two linears (block.cc, block_backward.cc). May include: model/layer.h. Source:
// Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022 (sequence parallelism).
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

/// Where the gradient of a linear's bias is computed.
enum class BiasGradient : uint8_t {
  here,       ///< In this linear's backward.
  elsewhere,  ///< In another operation that reads the same numbers anyway.
};

/// A linear's input: activation(values), or norm(values). Only with FP8 does the linear apply them.
struct LinearInput {
  Tensor values;
  ops::Activation activation = ops::Activation::none;
  ops::AppliedNorm norm = {};
  /// BlockKept::quantized of this linear: forward stores there what backward needs, and backward
  /// takes it. Null if there is no backward.
  Quantized* kept = nullptr;
};

/// The input of a block's linear, from the kept tensors.
LinearInput input_of(const Layer& l, BlockKept& kept, Linear linear);

/// y (S, B, O/tp) = activation(x W^T + bias) from this rank's rows of x (S/tp or S, B, I);
/// pre_activation (shaped as y), if given, receives the sum. In FP8 there is no activation.
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
/// The gradient of this rank's rows of x: dy W, summed over ranks. The sum runs at the same time as
/// the weight gradient's product. Releases dy after that product; x's values may be empty if x.kept
/// has what the product needs.
PoolTensor column_parallel_backward(const Layer& l, LinearRoles roles, BiasGradient bias,
                                    OutputGradient dy, const LinearInput& x);

/// partial (S, B, O) = x W^T + addend: one rank's term of the sum that sum_rows() computes. The
/// bias is added here if one rank has the whole weight, otherwise by the norm after the sum.
void row_parallel_forward(const Layer& l, LinearRoles roles, const Tensor& partial,
                          const LinearInput& x, const Tensor& addend);
/// The input gradient dx (R, I/tp) = (dy W) * activation'(pre_activation), and in dbias its column
/// sums: the gradient of the bias that is added before the activation. In FP8 only dx = dy W.
struct InputGradient {
  const char* purpose;
  Tensor pre_activation = {};
  ops::Activation activation = ops::Activation::none;
  Grads::Target dbias = {};
};
/// dx from dbranch (this rank's rows of the gradient of the sum), and the weight's gradient from x.
PoolTensor row_parallel_backward(const Layer& l, LinearRoles roles, BiasGradient bias,
                                 const Tensor& dbranch, const LinearInput& x,
                                 const InputGradient& want);

/// Releases a tensor that the weight gradient's product reads: now, or after a product that runs
/// later.
void release_after_products(const Layer& l, PoolTensor tensor);

}  // namespace trainer
