// Arguments of the operations inside a layer: embedding, norm, linear, activation, rotary,
// attention. Not here: loss and optimizer (step_args.h), what each operation promises about streams
// (ops.h). Shapes: S sequence, B micro-batch, R = S*B rows, H hidden, F ffn hidden, N query heads,
// G key/value groups, D head size, V vocabulary rows held here. On a tensor-parallel rank these are
// the rank's own counts. "model dtype" is fp32, bf16 or fp16, one for all activations and model
// parameters of a model; sums, softmax, norms and all statistics are fp32. "grad dtype" is fp32 or
// the model dtype. Optional tensors may be empty. "+=" where `accumulate`, "=" where not: the first
// micro-batch of a step passes accumulate = false, so gradients are never zeroed.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/tensor.h"

namespace ops {

/// Dropout by position: element (s, b, i) of a tensor (S, B, C) is dropped when its 16-bit lane is
/// below t = round(p * 65536), else multiplied by 1 / (1 - t / 65536). The lane: Philox4x32-10
/// (Salmon et al. 2011) with counter {i / 8, first_position + s, first_sample + b, iteration} and
/// key {seed, site}; result word (i % 8) / 2, low half for even i, high half for odd i. Attention
/// probabilities: i is the key position, s the query position, and site has the query head added.
/// No state: forward, backward and recompute, on any device and in any layout, draw the same mask.
/// The one exception: of attention in 16 bits on a GPU cuDNN draws the mask, from a seed made of
/// these fields and of where the call's batch and heads begin; it is the same forward, backward, in
/// recompute and in a run repeated in the same layout, but not the law's.
struct Dropout {
  float p = 0;  ///< 0 turns it off; 0 <= p < 1.
  uint32_t seed = 0;
  uint32_t site = 0;           ///< dropout_site(layer, kind).
  int64_t first_position = 0;  ///< Whole sequence position of row s = 0 (sequence parallel).
  int64_t first_sample = 0;    ///< Index in the global batch of sample b = 0.
  int64_t first_head = 0;      ///< Whole-model index of query head 0 (attention only).
  Tensor state;                ///< StepState in device memory: its `iteration` is read.
};
/// The places of a layer that drop.
enum class DropoutKind : uint32_t {
  embedding = 0,
  attention_probabilities = 1,
  attention_output = 2,
  mlp_output = 3
};
/// `layer` counts the whole model's layers from 0; the low 16 bits are left for the head.
constexpr uint32_t dropout_site(int64_t layer, DropoutKind kind) noexcept {
  return (static_cast<uint32_t>(layer) << 18) | (static_cast<uint32_t>(kind) << 16);
}

/// x = dropout(token_table[tokens - first_token] + position_table[positions]).
/// Tokens outside first_token .. first_token + V - 1 add nothing (vocabulary parallel).
struct EmbeddingForward {
  Tensor x;               ///< (S, B, H) model dtype, out.
  Tensor tokens;          ///< (S, B) int32.
  Tensor token_table;     ///< (V, H) model dtype; optional.
  Tensor positions;       ///< (S, B) int32; needed when position_table is given.
  Tensor position_table;  ///< (positions, H) model dtype; optional.
  int64_t first_token = 0;
  Dropout dropout;
};

/// Adds dropout'(dx) into the rows of the tables' gradients, always "+=" except where accumulate is
/// false, which sets the whole table gradient. Order of addition is fixed: by row position,
/// ascending.
struct EmbeddingBackward {
  Tensor dx;               ///< (S, B, H) model dtype.
  Tensor tokens;           ///< (S, B) int32.
  Tensor dtoken_table;     ///< (V, H) grad dtype; optional.
  Tensor positions;        ///< (S, B) int32.
  Tensor dposition_table;  ///< (positions, H) grad dtype; optional.
  int64_t first_token = 0;
  bool accumulate_tokens = true;
  bool accumulate_positions = true;
  Dropout dropout;
};

/// What a norm subtracts and divides by.
enum class Norm : uint8_t { layernorm, rmsnorm };

/// residual_out = residual + dropout(branch + branch_bias), rounded to the model dtype;  y =
/// norm(residual_out) * weight + bias. Without branch, residual_out must be empty: y =
/// norm(residual). Without y (and weight), only the sum. In place: residual_out may be residual or
/// branch; y may be branch.
struct ResidualNormForward {
  Norm norm = Norm::layernorm;
  float eps = 1e-5f;
  Tensor y;             ///< (S, B, H) model dtype, out; optional.
  Tensor residual_out;  ///< (S, B, H) model dtype, out; with branch.
  Tensor mean;      ///< (S, B) fp32, out, layernorm only; kept for backward; optional (evaluation).
  Tensor rstd;      ///< (S, B) fp32, out: 1 / sqrt(variance + eps); kept for backward; optional.
  Tensor residual;  ///< (S, B, H) model dtype.
  Tensor branch;    ///< (S, B, H) model dtype; optional.
  Tensor branch_bias;  ///< (H) model dtype; optional: a row-parallel linear's bias, added after its
                       ///< all-reduce.
  Tensor weight;       ///< (H) model dtype.
  Tensor bias;         ///< (H) model dtype; layernorm only; optional.
  Dropout dropout;     ///< On branch + branch_bias.
};

/// dresidual = dresidual_out + norm'(dy);  dbranch = dropout'(dresidual).
/// Without dresidual_out only norm'(dy); without dy (and x, weight) dresidual = dresidual_out.
/// With p = 0 dbranch is dresidual, so leave dbranch empty and use that. In place: dresidual may be
/// dresidual_out; dbranch may be dy. dbranch_bias is the gradient of branch_bias, or of the bias of
/// the linear whose output was the branch: here it costs no pass of its own.
struct ResidualNormBackward {
  Norm norm = Norm::layernorm;
  Tensor dresidual;      ///< (S, B, H) model dtype, out.
  Tensor dbranch;        ///< (S, B, H) model dtype, out; only with dropout.
  Tensor dweight;        ///< (H) grad dtype, out.
  Tensor dbias;          ///< (H) grad dtype, out; optional.
  Tensor dbranch_bias;   ///< (H) grad dtype, out; optional, with dy: column sums of dbranch, of
                         ///< dresidual without dbranch.
  Tensor dy;             ///< (S, B, H) model dtype; optional.
  Tensor dresidual_out;  ///< (S, B, H) model dtype; optional.
  Tensor x;  ///< (S, B, H) model dtype: what was normed (residual_out, or residual without branch).
  Tensor mean, rstd;       ///< (S, B) fp32.
  Tensor weight;           ///< (H) model dtype.
  bool accumulate = true;  ///< Of dweight, dbias and dbranch_bias.
  Dropout dropout;
};

/// gelu_tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); gelu_erf: x Phi(x); relu; swiglu:
/// silu(gate) * up.
enum class Activation : uint8_t { none, gelu_tanh, gelu_erf, relu, swiglu };

/// y = activation(x weight^T + bias) + addend. The activation is not swiglu (that is
/// activation_forward). addend excludes an activation; y may be addend.
struct LinearForward {
  Tensor y;               ///< (R, O) model dtype, out.
  Tensor pre_activation;  ///< (R, O) model dtype, out: before the activation, kept for backward;
                          ///< optional.
  Tensor x;               ///< (R, I) model dtype.
  Tensor weight;          ///< (O, I) model dtype.
  Tensor bias;            ///< (O) model dtype; optional.
  Tensor addend;          ///< (R, O) model dtype; optional: the residual, or another branch.
  Activation activation = Activation::none;
};

/// dx = (dy weight) * activation'(pre_activation) + addend; dbias (+)= column sums of that product.
/// pre_activation, activation and dbias belong to the linear *before* this one, whose output is
/// this one's x. dx may be addend. addend excludes an activation and dbias.
struct LinearBackwardInput {
  Tensor dx;              ///< (R, I) model dtype, out.
  Tensor dy;              ///< (R, O) model dtype.
  Tensor weight;          ///< (O, I) model dtype.
  Tensor pre_activation;  ///< (R, I) model dtype; optional.
  Activation activation = Activation::none;
  Tensor dbias;  ///< (I) grad dtype; optional.
  bool accumulate_bias = true;
  Tensor addend;  ///< (R, I) model dtype; optional.
};

/// dweight (+)= dy^T x;  dbias (+)= column sums of dy. dweight may be empty (bias only).
struct LinearBackwardWeight {
  Tensor dweight;  ///< (O, I) grad dtype, out; optional.
  Tensor dbias;    ///< (O) grad dtype, out; optional.
  Tensor dy;       ///< (R, O) model dtype.
  Tensor x;        ///< (R, I) model dtype; needed with dweight.
  bool accumulate = true;
};

/// y = activation(x); swiglu takes x (R, 2F) as [gate | up] and gives (R, F). In place except
/// swiglu.
struct ActivationForward {
  Tensor y, x;
  Activation activation = Activation::none;
};
/// dx = dy * activation'(x). dx may be dy except swiglu; dx may be x.
struct ActivationBackward {
  Tensor dx, dy, x;
  Activation activation = Activation::none;
};

}  // namespace ops
