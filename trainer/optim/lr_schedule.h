// Learning rate and weight decay as functions of consumed samples: Megatron-LM's
// OptimizerParamScheduler. Not here: flags (config/), the update itself (ops adamw). May include:
// the C++ library. Pure functions in double.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace trainer {

/// --lr-decay-style.
enum class LrDecayStyle : uint8_t {
  constant,
  linear,          ///< from max_lr to min_lr.
  linear_to_zero,  ///< from max_lr to 0, never below min_lr: GPT-NeoX's linear.
  cosine,
  inverse_square_root,
  wsd
};
/// --lr-wsd-decay-style.
enum class WsdDecayStyle : uint8_t { linear, cosine, exponential, minus_sqrt };
/// --weight-decay-incr-style.
enum class WeightDecayStyle : uint8_t { constant, linear, cosine };

/// "steps" are whatever the caller counts: Megatron counts samples (iterations * global batch
/// size).
struct LrSchedule {
  LrDecayStyle style = LrDecayStyle::linear;
  double init_lr = 0;  ///< --lr-warmup-init: the rate at step 0 of the warm-up.
  double max_lr = 0;   ///< --lr.
  double min_lr = 0;
  double warmup_steps = 0;  ///< May be fractional when given as a share of decay_steps.
  double decay_steps = 0;
  WsdDecayStyle wsd_style = WsdDecayStyle::exponential;
  double wsd_decay_steps = 0;
  WeightDecayStyle weight_decay_style = WeightDecayStyle::constant;
  double start_weight_decay = 0.01;
  double end_weight_decay = 0.01;
  int64_t weight_decay_steps = 0;  ///< --train-iters in samples.
};

/// The learning rate after `steps`. Source: megatron/core/optimizer_param_scheduler.py, get_lr; for
/// linear_to_zero GPT-NeoX's megatron/learning_rates.py, get_lr.
double learning_rate(const LrSchedule& schedule, int64_t steps);
/// Source: the same file, get_wd.
double weight_decay(const LrSchedule& schedule, int64_t steps);

}  // namespace trainer
