// Learning rate and weight decay formulas of megatron/core/optimizer_param_scheduler.py.
//
// SPDX-License-Identifier: MIT
#include "trainer/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainer {
namespace {

double half_cosine(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

double wsd_coefficient(const LrSchedule& s, int64_t steps) {
  const double start = s.decay_steps - s.wsd_decay_steps;
  const double at = static_cast<double>(steps);
  if (at <= start) return 1;
  const double ratio = (at - start) / s.wsd_decay_steps;
  switch (s.wsd_style) {
    case WsdDecayStyle::linear:
      return 1.0 - ratio;
    case WsdDecayStyle::cosine:
      return half_cosine(ratio);
    case WsdDecayStyle::exponential:
      return 2.0 * std::pow(0.5, ratio) - 1.0;
    case WsdDecayStyle::minus_sqrt:
      return 1.0 - std::sqrt(ratio);
  }
  return 1;
}

}  // namespace

double learning_rate(const LrSchedule& s, int64_t steps) {
  const double at = static_cast<double>(steps);
  if (s.warmup_steps > 0 && at <= s.warmup_steps)
    return s.init_lr + (s.max_lr - s.init_lr) * at / s.warmup_steps;
  if (s.style == LrDecayStyle::constant) return s.max_lr;
  if (at > s.decay_steps) return s.min_lr;
  if (s.style == LrDecayStyle::inverse_square_root) {
    return std::max(s.min_lr, s.max_lr * std::sqrt(std::max(s.warmup_steps, 1.0)) /
                                  std::sqrt(std::max(at, 1.0)));
  }
  const double ratio = (at - s.warmup_steps) / (s.decay_steps - s.warmup_steps);
  double coefficient = 1.0 - ratio;
  if (s.style == LrDecayStyle::linear_to_zero) return std::max(s.min_lr, coefficient * s.max_lr);
  if (s.style == LrDecayStyle::cosine) coefficient = half_cosine(ratio);
  if (s.style == LrDecayStyle::wsd) coefficient = wsd_coefficient(s, steps);
  return s.min_lr + coefficient * (s.max_lr - s.min_lr);
}

double weight_decay(const LrSchedule& s, int64_t steps) {
  if (s.weight_decay_style == WeightDecayStyle::constant || steps > s.weight_decay_steps)
    return s.end_weight_decay;
  const double ratio = static_cast<double>(steps) / static_cast<double>(s.weight_decay_steps);
  const double coefficient =
      s.weight_decay_style == WeightDecayStyle::linear ? ratio : half_cosine(1.0 - ratio);
  return s.start_weight_decay + coefficient * (s.end_weight_decay - s.start_weight_decay);
}

}  // namespace trainer
