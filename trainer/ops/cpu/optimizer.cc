// CPU: the numbers of a step, the gradient check (JudgeGradients), AdamW. Compiled without
// contraction to fused multiply-adds, so that an element's bits do not depend on where a loop of
// vectors ends.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/launch.h"
#include "trainer/ops/number.h"
#include "trainer/ops/philox.h"

namespace ops::cpu {
namespace {

constexpr int64_t kPiece = 1 << 15;

StepState& state_of(const Tensor& state) { return *static_cast<StepState*>(state.data); }

/// Word e % 4 of the Philox call that element e of a moment draws for rounding.
uint32_t rounding_bits(int64_t element, int64_t iteration, uint32_t moment,
                       uint32_t seed) noexcept {
  const Philox4 words =
      philox({static_cast<uint32_t>(element / 4), static_cast<uint32_t>((element / 4) >> 32),
              static_cast<uint32_t>(iteration), moment},
             seed, 0);
  switch (element % 4) {
    case 0:
      return words.x;
    case 1:
      return words.y;
    case 2:
      return words.z;
    default:
      return words.w;
  }
}

/// The numbers of AdamW that are the same for a row of parameters.
struct RowAdamW {
  float grad_multiplier, lr, decay, beta1, beta2, eps, bias_correction1, bias_correction2;
};

ROW_CLONES void row_adamw(float* main, float* m, float* v, const float* grad, int64_t n,
                          const RowAdamW& row) noexcept {
  const RowAdamW a = row;
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * a.grad_multiplier;
    m[i] = a.beta1 * m[i] + (1.0f - a.beta1) * g;
    v[i] = a.beta2 * v[i] + (1.0f - a.beta2) * g * g;
    const float update = m[i] / a.bias_correction1 / (std::sqrt(v[i] / a.bias_correction2) + a.eps);
    main[i] -= a.lr * (update + a.decay * main[i]);
  }
}

/// All fp32: the same arithmetic, vectorized; only matrices have weight decay.
void plain_adamw(const AdamW& a, const StepState& s, int64_t begin, int64_t end) {
  const auto rows = [&](int64_t first, int64_t last, float decay) {
    if (first >= last) return;
    row_adamw(a.main.as<float>() + first, a.m.as<float>() + first, a.v.as<float>() + first,
              a.grad.as<float>() + first, last - first,
              {.grad_multiplier = s.grad_multiplier,
               .lr = s.lr,
               .decay = decay,
               .beta1 = a.beta1,
               .beta2 = a.beta2,
               .eps = a.eps,
               .bias_correction1 = s.bias_correction1,
               .bias_correction2 = s.bias_correction2});
  };
  rows(begin, std::min(end, a.decay_elements), s.weight_decay);
  rows(std::max(begin, a.decay_elements), end, 0.0f);
}

}  // namespace

void launch(CpuOps&, const BeginStep& a) {
  StepState& state = state_of(a.state);
  state.iteration = a.iteration;
  state.lr = a.lr;
  state.weight_decay = a.weight_decay;
  state.loss = 0;
}

void launch(CpuOps& cpu, const SumSquares& a) {
  const int64_t n = a.x.elements();
  // Each piece holds at least kPiece elements and there are at most 1024, so partial sums need no
  // allocation.
  const int64_t piece = std::max<int64_t>(kPiece, (n + 1023) / 1024);
  double partial[1024] = {};
  cpu.pieces(n, piece, [&](int64_t begin, int64_t end) {
    double sum = 0;
    if (a.x.dtype == DType::f32) {
      sum = row_sum_of_squares(a.x.as<float>() + begin, end - begin, 0);
    } else {
      for (int64_t i = begin; i < end; ++i) sum += static_cast<double>(load(a.x, i)) * load(a.x, i);
    }
    partial[begin / piece] = sum;
  });
  double sum = a.accumulate ? *a.out.as<float>() : 0.0;
  for (double p : partial) sum += p;
  *a.out.as<float>() = static_cast<float>(sum);
}

void launch(CpuOps&, const JudgeGradients& a) {
  StepState& s = state_of(a.state);
  const float square = *a.sum_squares.as<float>();
  s.skip = std::isfinite(square) ? 0 : 1;
  s.used_loss_scale = s.loss_scale;
  s.grad_norm = std::sqrt(square) / s.loss_scale;
  const float clip = a.clip_grad > 0 ? std::min(1.0f, a.clip_grad / (s.grad_norm + 1e-6f)) : 1.0f;
  s.grad_multiplier = s.skip != 0 ? 0.0f : clip / s.loss_scale;
  if (s.skip != 0) {
    ++s.skipped_steps;
    s.growth_tracker = 0;
    --s.hysteresis_tracker;
    if (a.dynamic && s.hysteresis_tracker <= 0)
      s.loss_scale = std::max(s.loss_scale * a.backoff, a.min_scale);
    return;
  }
  ++s.updates;
  if (++s.growth_tracker == a.window) {
    s.growth_tracker = 0;
    s.hysteresis_tracker = a.hysteresis;
    if (a.dynamic) s.loss_scale *= a.growth;
  }
}

void launch(CpuOps&, const AdamCorrections& a) {
  StepState& s = state_of(a.state);
  const double updates = static_cast<double>(s.updates);
  s.bias_correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(a.beta1), updates));
  s.bias_correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(a.beta2), updates));
}

void launch(CpuOps& cpu, const AdamW& a) {
  const StepState& s = state_of(a.state);
  if (s.skip != 0) return;
  float* main = a.main.as<float>();
  const auto moment = [&](const Tensor& t, int64_t i, float value, uint32_t which) {
    if (t.dtype == DType::f32) {
      static_cast<float*>(t.data)[i] = value;
    } else {
      const uint32_t random = rounding_bits(a.first_element + i, s.iteration, which, a.seed);
      static_cast<uint16_t*>(t.data)[i] = float_to_bf16_stochastic(value, random);
    }
  };
  const bool plain =
      a.m.dtype == DType::f32 && a.v.dtype == DType::f32 && a.grad.dtype == DType::f32;
  cpu.pieces(a.main.elements(), kPiece, [&](int64_t begin, int64_t end) {
    if (plain && !a.model) return plain_adamw(a, s, begin, end);
    for (int64_t i = begin; i < end; ++i) {
      const float g = load(a.grad, i) * s.grad_multiplier;
      const float m = a.beta1 * load(a.m, i) + (1.0f - a.beta1) * g;
      const float v = a.beta2 * load(a.v, i) + (1.0f - a.beta2) * g * g;
      moment(a.m, i, m, 0);
      moment(a.v, i, v, 1);
      const float decay = i < a.decay_elements ? s.weight_decay : 0.0f;
      const float update = m / s.bias_correction1 / (std::sqrt(v / s.bias_correction2) + a.eps);
      main[i] -= s.lr * (update + decay * main[i]);
      if (a.model) store(a.model, i, main[i]);
    }
  });
}

void launch(CpuOps&, const CountNonfinite& a) {
  int64_t count = 0;
  for (int64_t i = 0; i < a.x.elements(); ++i) count += std::isfinite(load(a.x, i)) ? 0 : 1;
  *a.out.as<int64_t>() = count;
}

int64_t scratch_bytes(CpuOps&, const BeginStep&) { return 0; }
int64_t scratch_bytes(CpuOps&, const SumSquares&) { return 0; }
int64_t scratch_bytes(CpuOps&, const JudgeGradients&) { return 0; }
int64_t scratch_bytes(CpuOps&, const AdamCorrections&) { return 0; }
int64_t scratch_bytes(CpuOps&, const AdamW&) { return 0; }
int64_t scratch_bytes(CpuOps&, const CountNonfinite&) { return 0; }

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::BeginStep>;
template struct ops::Launch<ops::cpu::CpuOps, ops::SumSquares>;
template struct ops::Launch<ops::cpu::CpuOps, ops::JudgeGradients>;
template struct ops::Launch<ops::cpu::CpuOps, ops::AdamCorrections>;
template struct ops::Launch<ops::cpu::CpuOps, ops::AdamW>;
template struct ops::Launch<ops::cpu::CpuOps, ops::CountNonfinite>;
