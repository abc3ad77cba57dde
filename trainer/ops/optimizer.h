// Operations around a step: its numbers, whether its gradients are used and how they are scaled,
// the update of parameters. Not here: their order (optim/optimizer.h). May include: operation.h,
// step_state.h. Letters and dtypes as in operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/operation.h"
#include "trainer/ops/step_state.h"

namespace ops {

/// The numbers that the host passes to a step.
struct BeginStep {
  static constexpr const char* kName = "begin_step";
  Tensor state;
  int64_t iteration = 0;
  float lr = 0;
  float weight_decay = 0;

  void check(Device device) const { Expect(kName, device).state("state", state); }
  Cost cost() const { return {}; }
};

/// out (+)= sum of squares of x. Two-stage in fixed order; a NaN or Inf in x gives a non-finite
/// sum.
struct SumSquares {
  static constexpr const char* kName = "sum_squares";
  Tensor out;  ///< (1) fp32.
  Tensor x;    ///< Any shape, fp32, bf16 or fp16.
  bool accumulate = true;

  void check(Device device) const {
    const Expect e(kName, device);
    e.shape("out", out, DType::f32, {1});
    e.model_dtype("x", x);
    e.that(x && x.device == device, "x must be on this device");
  }
  Cost cost() const { return {2 * count(x), bytes_of({&x})}; }
};

/// Decides on the device whether this step's gradients are used, and what they are multiplied by.
/// With q = sum_squares (of all ranks): grad_norm = sqrt(q) / loss_scale; skip = q not finite;
/// grad_multiplier = 1 / loss_scale
/// * min(1, clip_grad / (grad_norm + 1e-6)) (no clipping when clip_grad = 0); when not skip,
/// updates += 1. used_loss_scale = loss_scale; then the loss scale: when skip, growth_tracker = 0
/// and hysteresis_tracker -= 1, and once that is <= 0 loss_scale = max(loss_scale * backoff,
/// min_scale); when not skip, growth_tracker += 1, and when it reaches the window: growth_tracker =
/// 0, hysteresis_tracker = hysteresis, loss_scale *= growth. dynamic = false keeps the scale.
/// Source: Megatron-LM grad_scaler.py, clip_grads.py.
struct JudgeGradients {
  static constexpr const char* kName = "judge_gradients";
  Tensor state;
  Tensor sum_squares;  ///< (1) fp32.
  float clip_grad = 1;
  bool dynamic = false;
  float growth = 2, backoff = 0.5f, min_scale = 1;
  int32_t window = 1000, hysteresis = 2;

  void check(Device device) const {
    const Expect e(kName, device);
    e.state("state", state);
    e.shape("sum_squares", sum_squares, DType::f32, {1});
  }
  Cost cost() const { return {}; }
};

/// What AdamW divides its moments by, from the updates so far: bias_correction_i = 1 - beta_i ^
/// updates, in fp64, rounded. Source: Kingma and Ba 2015, algorithm 1.
struct AdamCorrections {
  static constexpr const char* kName = "adam_corrections";
  Tensor state;
  float beta1 = 0.9f, beta2 = 0.999f;

  void check(Device device) const { Expect(kName, device).state("state", state); }
  Cost cost() const { return {}; }
};

/// AdamW (Loshchilov and Hutter 2019) over flat memory, one call for any number of parameters:
/// g = grad * grad_multiplier; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2;
/// main -= lr * (m / bias_correction1 / (sqrt(v / bias_correction2) + eps) + decay * main); model =
/// main. decay is weight_decay for the first decay_elements elements and 0 for the rest. Nothing
/// changes when state.skip. bf16 moments are rounded stochastically: Philox counter {e / 4 low, e /
/// 4 high, iteration, 0 for m, 1 for v} with e = first_element + index and key {seed, 0}, word e %
/// 4, low 16 bits added below the kept ones.
struct AdamW {
  static constexpr const char* kName = "adamw";
  Tensor model;  ///< (n) model dtype, out; empty when model parameters are main parameters.
  Tensor main;   ///< (n) fp32, in and out.
  Tensor m, v;   ///< (n) fp32 or bf16, in and out.
  Tensor grad;   ///< (n) grad dtype.
  Tensor state;
  int64_t decay_elements = 0;
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  uint32_t seed = 0;
  int64_t first_element = 0;  ///< Position of element 0 in the whole flat parameter space.

  void check(Device device) const {
    const Expect e(kName, device);
    const int64_t n = main.elements();
    e.shape("main", main, DType::f32, {n});
    for (const Tensor* moment : {&m, &v}) {
      e.that(moment->dtype == DType::f32 || moment->dtype == DType::bf16,
             "moments are fp32 or bf16");
      e.dims("m, v", *moment, {n});
    }
    e.model_dtype("grad", grad);
    e.dims("grad", grad, {n});
    if (model) e.dims("model", model, {n});
    e.state("state", state);
    e.that(decay_elements >= 0 && decay_elements <= n, "decay_elements out of range");
  }
  Cost cost() const {
    return {16 * count(main), 2 * bytes_of({&main, &m, &v}) + bytes_of({&grad, &model})};
  }
};

/// out[0] = number of NaN and Inf in x. For diagnosis only: it finds the tensor to name after a bad
/// step.
struct CountNonfinite {
  static constexpr const char* kName = "count_nonfinite";
  Tensor out;  ///< (1) int64.
  Tensor x;

  void check(Device device) const {
    const Expect e(kName, device);
    e.shape("out", out, DType::i64, {1});
    e.model_dtype("x", x);
  }
  Cost cost() const { return {count(x), bytes_of({&x})}; }
};

using OptimizerOperations =
    Family<BeginStep, SumSquares, JudgeGradients, AdamCorrections, AdamW, CountNonfinite>;

}  // namespace ops
