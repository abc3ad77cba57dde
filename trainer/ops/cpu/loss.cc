// CPU: loss weights; cross entropy over the whole vocabulary, and split by vocabulary.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/launch.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 8;

StepState* state_of(const Tensor& state) { return static_cast<StepState*>(state.data); }

/// logits <- (exp(logits - log_sum) - onehot) * factor.
void gradient_row(float* logits, int64_t columns, float log_sum, int64_t label,
                  float factor) noexcept {
  row_exp_sum(logits, logits, columns, log_sum);
  row_scale(logits, columns, factor);
  if (label >= 0 && label < columns) logits[label] -= factor;
}

}  // namespace

void launch(CpuOps&, const LossWeights& a) {
  const float* mask = a.loss_mask.as<float>();
  double sum = 0;
  for (int64_t r = 0; r < a.loss_mask.elements(); ++r) sum += mask[r];
  const float inverse = sum > 0 ? static_cast<float>(1.0 / sum) : 0.0f;
  for (int64_t r = 0; r < a.loss_mask.elements(); ++r)
    a.row_weights.as<float>()[r] = mask[r] * inverse;
}

void launch(CpuOps& cpu, const CrossEntropy& a) {
  const int64_t columns = a.logits.shape[1];
  const float scale = a.backward ? state_of(a.state)->loss_scale * a.factor : 0.0f;
  const int32_t* labels = a.labels.as<int32_t>();
  cpu.pieces(a.logits.shape[0], kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* logits = a.logits.as<float>() + r * columns;
      const bool labelled = labels[r] >= 0 && labels[r] < columns;
      const float top = row_max(logits, columns);
      const float log_sum =
          top + static_cast<float>(std::log(row_sum_of_exp(logits, columns, top)));
      a.token_loss.as<float>()[r] = labelled ? log_sum - logits[labels[r]] : 0.0f;
      if (a.backward)
        gradient_row(logits, columns, log_sum, labels[r],
                     labelled ? a.row_weights.as<float>()[r] * scale : 0.0f);
    }
  });
}

void launch(CpuOps& cpu, const CrossEntropyStatistics& a) {
  const int64_t columns = a.logits.shape[1];
  cpu.pieces(a.logits.shape[0], kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* logits = a.logits.as<float>() + r * columns;
      const int64_t label = a.labels.as<int32_t>()[r] - a.first_token;
      float* stats = a.stats.as<float>() + r * 3;
      stats[0] = row_max(logits, columns);
      stats[1] = static_cast<float>(row_sum_of_exp(logits, columns, stats[0]));
      stats[2] = label >= 0 && label < columns ? logits[label] : 0.0f;
    }
  });
}

void launch(CpuOps& cpu, const CrossEntropyGradient& a) {
  const int64_t rows = a.logits.shape[0], columns = a.logits.shape[1], ranks = a.stats.shape[0];
  const float scale = a.backward ? state_of(a.state)->loss_scale * a.factor : 0.0f;
  const float* all = a.stats.as<float>();
  cpu.pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float top = all[r * 3];
      for (int64_t p = 1; p < ranks; ++p) top = std::max(top, all[(p * rows + r) * 3]);
      double sum = 0;
      float label_logit = 0;
      for (int64_t p = 0; p < ranks; ++p) {
        const float* stats = all + (p * rows + r) * 3;
        sum += stats[1] * std::exp(static_cast<double>(stats[0] - top));
        label_logit += stats[2];
      }
      const int32_t label = a.labels.as<int32_t>()[r];
      const bool labelled = label >= 0 && label < columns * ranks;
      const float log_sum = top + static_cast<float>(std::log(sum));
      a.token_loss.as<float>()[r] = labelled ? log_sum - label_logit : 0.0f;
      if (a.backward)
        gradient_row(a.logits.as<float>() + r * columns, columns, log_sum, label - a.first_token,
                     labelled ? a.row_weights.as<float>()[r] * scale : 0.0f);
    }
  });
}

void launch(CpuOps&, const AccumulateLoss& a) {
  const float* weights = a.row_weights.as<float>();
  const float* losses = a.token_loss.as<float>();
  double sum = 0;
  for (int64_t r = 0; r < a.row_weights.elements(); ++r)
    if (weights[r] != 0) sum += static_cast<double>(weights[r]) * losses[r];
  state_of(a.state)->loss += static_cast<float>(sum) * a.factor;
}

int64_t scratch_bytes(CpuOps&, const LossWeights&) { return 0; }
int64_t scratch_bytes(CpuOps&, const CrossEntropy&) { return 0; }
int64_t scratch_bytes(CpuOps&, const CrossEntropyStatistics&) { return 0; }
int64_t scratch_bytes(CpuOps&, const CrossEntropyGradient&) { return 0; }
int64_t scratch_bytes(CpuOps&, const AccumulateLoss&) { return 0; }

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::LossWeights>;
template struct ops::Launch<ops::cpu::CpuOps, ops::CrossEntropy>;
template struct ops::Launch<ops::cpu::CpuOps, ops::CrossEntropyStatistics>;
template struct ops::Launch<ops::cpu::CpuOps, ops::CrossEntropyGradient>;
template struct ops::Launch<ops::cpu::CpuOps, ops::AccumulateLoss>;
