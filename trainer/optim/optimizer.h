// Optimizer: gradient norm, judgement and AdamW over this rank's flat memory.
// Not here: the rate (lr_schedule.h), the formulas (ops/step_args.h). May include: ops/,
// parallel/flat_layout.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/ops.h"
#include "trainer/parallel/flat_layout.h"

namespace trainer {

/// Dynamic or constant loss scale; constant 1 for fp32 and bf16. Source: Megatron-LM
/// grad_scaler.py.
struct LossScaler {
  bool dynamic = false;
  float initial = 1;
  float min = 1;
  int32_t window = 1000;
  int32_t hysteresis = 2;
};

/// The flat memories, all of FlatLayout::elements() elements.
struct Flats {
  Tensor model;  ///< Model dtype.
  Tensor main;   ///< fp32; the same memory as model when model dtype is fp32.
  Tensor m, v;   ///< fp32 or bf16.
  Tensor grad;   ///< Grad dtype.
};

/// What an update is asked for.
struct OptimizerOptions {
  float clip_grad = 1;
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  LossScaler scaler;
  uint32_t seed = 0;
};

/// Queues sum of squares, judgement and update of one step. square (1) fp32 is scratch. Nothing is
/// read by the host.
void optimizer_step(ops::Ops& ops, const FlatLayout& layout, const Flats& flats,
                    const OptimizerOptions& options, const Tensor& state, const Tensor& square);

}  // namespace trainer
