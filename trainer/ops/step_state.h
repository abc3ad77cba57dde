// StepState: the numbers that change from step to step. It is in device memory: kernels read it
// there, and the host writes it through BeginStep and reads a copy after the step. So no step waits
// for the host to read, and a captured step can be replayed with new numbers. Not here: who
// computes them (optimizer.h, loss.h). May include: the C++ library.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace ops {

/// One per model, in device memory (a Tensor of sizeof(StepState) uint8). Plain data, the same on
/// all devices.
struct StepState {
  // Written by BeginStep.
  int64_t iteration = 0;  ///< Counts from 1; dropout draws from it (its low 32 bits).
  float lr = 0;
  float weight_decay = 0;
  // Written by JudgeGradients.
  float loss_scale = 1;        ///< Multiplies the loss of the *next* forward.
  int32_t growth_tracker = 0;  ///< Good steps since the scale last changed.
  int32_t hysteresis_tracker = 0;
  int32_t skip = 0;           ///< 1: this step's gradients are not finite, so AdamW changes
                              ///< nothing.
  float grad_norm = 0;        ///< Unscaled, before clipping; of all ranks.
  float grad_multiplier = 0;  ///< What AdamW multiplies gradients by: 1 / loss_scale, clipped.
  int64_t updates = 0;        ///< Applied, this one included; skipped ones do not count.
  // Written by AdamCorrections.
  float bias_correction1 = 0;  ///< 1 - beta1 ^ updates.
  float bias_correction2 = 0;
  // Written by JudgeGradients.
  int64_t skipped_steps = 0;  ///< In all.
  // Written by AccumulateLoss; zeroed by BeginStep.
  float loss = 0;             ///< Mean over micro-batches, unscaled.
  float used_loss_scale = 1;  ///< The loss_scale that this step's gradients were computed with.
};
static_assert(sizeof(StepState) == 72);

}  // namespace ops
