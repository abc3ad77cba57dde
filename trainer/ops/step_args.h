// Arguments of the operations around the layers: loss, initial values, gradient judgement, AdamW;
// and StepState. Not here: operations inside a layer (layer_args.h). Letters and dtypes as there.
// StepState is the only channel for numbers that change from step to step: it lies in device
// memory, kernels read it there, the host writes it through begin_step and reads a copy after the
// step. So a step holds no host read, and a captured step can be replayed with new numbers.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/layer_args.h"
#include "trainer/ops/tensor.h"

namespace ops {

/// One per model, in device memory (a Tensor of sizeof(StepState) uint8). Plain data, the same on
/// all devices.
struct StepState {
  // Written by begin_step.
  int64_t iteration = 0;  ///< Counts from 1; drawn upon by dropout. Low 32 bits are used.
  float lr = 0;
  float weight_decay = 0;
  // Written by judge_gradients.
  float loss_scale = 1;        ///< Multiplies the loss of the *next* forward.
  int32_t growth_tracker = 0;  ///< Good steps since the scale last changed.
  int32_t hysteresis_tracker = 0;
  int32_t skip = 0;            ///< 1: this step's gradients are not finite, adamw changes nothing.
  float grad_norm = 0;         ///< Unscaled, before clipping; of all ranks.
  float grad_multiplier = 0;   ///< What adamw multiplies gradients with: 1 / loss_scale, clipped.
  int64_t adam_steps = 0;      ///< Updates applied, this one included; skipped ones do not count.
  float bias_correction1 = 0;  ///< 1 - beta1 ^ adam_steps.
  float bias_correction2 = 0;
  int64_t skipped_steps = 0;  ///< In all.
  // Written by accumulate_loss; zeroed by begin_step.
  float loss = 0;             ///< Mean over micro-batches, unscaled.
  float used_loss_scale = 1;  ///< loss_scale under which this step's gradients were made.
};
static_assert(sizeof(StepState) == 72);

/// What the host gives to a step.
struct StepInputs {
  Tensor state;
  int64_t iteration = 0;
  float lr = 0;
  float weight_decay = 0;
};

/// row_weights = loss_mask / sum(loss_mask), or 0 where the sum is 0, so that a micro-batch's loss
/// is sum(row_weights * token_loss).
struct LossWeights {
  Tensor row_weights;  ///< (S, B) fp32, out.
  Tensor loss_mask;    ///< (S, B) fp32, 0 or 1 (any weight >= 0 works).
};

/// Cross entropy of a chunk of rows over the whole vocabulary, forward and backward in one pass:
/// token_loss = logsumexp(logits) - logits[label];
/// logits <- (softmax(logits) - onehot(label)) * row_weight * loss_scale * factor, in place, unless
/// !backward.
struct CrossEntropy {
  Tensor logits;  ///< (R, V) model dtype (fp32 when not backward is fine too), in place.
  Tensor labels;  ///< (R) int32, 0 .. V-1. A label outside gives loss 0 and gradient 0 for its row.
  Tensor row_weights;  ///< (R) fp32; needed with backward.
  Tensor token_loss;   ///< (R) fp32, out.
  Tensor state;        ///< StepState: loss_scale is read; needed with backward.
  float factor = 1;    ///< 1 / num_microbatches.
  bool backward = true;
};

/// First half of the above when the vocabulary is split: of this rank's columns the maximum, the
/// sum of exp(logit - maximum), and the label's logit (0 where another rank holds the label).
struct CrossEntropyStatistics {
  Tensor stats;   ///< (R, 3) fp32, out: {maximum, sum, label logit}.
  Tensor logits;  ///< (R, V/tp) model dtype.
  Tensor labels;  ///< (R) int32, ids of the whole vocabulary.
  int64_t first_token = 0;
};
/// Second half, after an all-gather of stats: combines them in rank order.
struct CrossEntropyGradient {
  Tensor logits;                                  ///< (R, V/tp) model dtype, in place.
  Tensor stats;                                   ///< (tp, R, 3) fp32.
  Tensor labels, row_weights, token_loss, state;  ///< As CrossEntropy.
  int64_t first_token = 0;
  float factor = 1;
  bool backward = true;
};

/// state.loss += factor * sum(row_weights * token_loss), summed in fixed order.
struct AccumulateLoss {
  Tensor state;
  Tensor row_weights, token_loss;  ///< Equal numbers of fp32 elements.
  float factor = 1;
};

/// Normal(0, std) by position in the whole tensor: element e of the whole draws from Philox4x32-10
/// with counter {e / 4 low, e / 4 high, 0, 0} and key {seed, stream}: words (0, 1) give the pair e
/// % 4 = 0, 1 and words (2, 3) the pair 2, 3 by Box-Muller: u = (a + 0.5) / 2^32, t = b / 2^32, r =
/// sqrt(-2 ln u): r cos(2 pi t), r sin(2 pi t).
struct NormalFill {
  Tensor out;  ///< (rows, columns) or (columns), any float dtype.
  float std = 1;
  uint32_t seed = 0;
  uint32_t stream = 0;        ///< One per parameter: hash of its name.
  int64_t whole_columns = 0;  ///< Columns of the whole tensor.
  int64_t first_row = 0;      ///< Where out begins in the whole.
  int64_t first_column = 0;
};

/// out (+)= sum of squares of x. Two-stage in fixed order; a NaN or Inf in x gives a non-finite
/// sum.
struct SumSquares {
  Tensor out;  ///< (1) fp32.
  Tensor x;    ///< Any shape, fp32, bf16 or fp16.
  bool accumulate = true;
};

/// Decides what this step's gradients are worth, on the device. With q = sum_squares (of all
/// ranks): grad_norm = sqrt(q) / loss_scale; skip = q not finite; grad_multiplier = 1 / loss_scale
/// * min(1, clip_grad / (grad_norm + 1e-6)) (no clipping when clip_grad = 0); when not skip,
/// adam_steps += 1 and the bias corrections follow. used_loss_scale = loss_scale; then the loss
/// scale: when skip, growth_tracker = 0 and hysteresis_tracker -= 1, and once that is <= 0
/// loss_scale = max(loss_scale * backoff, min_scale); when not skip, growth_tracker += 1, and when
/// it reaches the window: growth_tracker = 0, hysteresis_tracker = hysteresis, loss_scale *=
/// growth. dynamic = false leaves the scale. Source: Megatron-LM grad_scaler.py, clip_grads.py.
struct JudgeGradients {
  Tensor state;
  Tensor sum_squares;  ///< (1) fp32.
  float clip_grad = 1;
  float beta1 = 0.9f, beta2 = 0.999f;
  bool dynamic = false;
  float growth = 2, backoff = 0.5f, min_scale = 1;
  int32_t window = 1000, hysteresis = 2;
};

/// AdamW (Loshchilov and Hutter 2019) over flat memory, one call for any number of parameters:
/// g = grad * grad_multiplier; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// main -= lr * (m / bias_correction1 / (sqrt(v / bias_correction2) + eps) + decay * main); model =
/// main. decay is weight_decay for the first decay_elements elements and 0 for the rest. Nothing
/// changes when state.skip. bf16 moments are rounded stochastically: Philox counter {e / 4 low, e /
/// 4 high, iteration, 0 for m, 1 for v} with e = first_element + index and key {seed, 0}, word e %
/// 4, low 16 bits added below the kept ones.
struct AdamW {
  Tensor model;  ///< (n) model dtype, out; empty when model parameters are main parameters.
  Tensor main;   ///< (n) fp32, in and out.
  Tensor m, v;   ///< (n) fp32 or bf16, in and out.
  Tensor grad;   ///< (n) grad dtype.
  Tensor state;
  int64_t decay_elements = 0;
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  uint32_t seed = 0;
  int64_t first_element = 0;  ///< Position of element 0 in the whole flat parameter space.
};

/// out[0] = number of NaN and Inf in x. Slow road only: to name the tensor after a bad step.
struct CountNonfinite {
  Tensor out;  ///< (1) int64.
  Tensor x;
};

}  // namespace ops
