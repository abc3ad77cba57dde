// CPU: norms of query and key heads, a row of packed q, k and v at a time. Sums over rows are
// computed in pieces of fixed size and added in order, so that the number of threads changes no
// bit.
// Source: Ba, Kiros, Hinton 2016 (layer normalization); Zhang and Sennrich 2019 (RMSNorm).
//
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/head_norm.h"
#include "trainer/ops/launch.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 64;

/// The index of head `head` (of a row's G * (N/G + 2)) among the normalized ones; -1 for a value
/// head.
struct Heads {
  int64_t per_group, all, normed, channels;

  explicit Heads(const HeadNorm& h)
      : per_group(h.num_attention_heads / h.num_query_groups + 2),
        all(per_group * h.num_query_groups),
        normed(h.normed_heads()),
        channels(h.kv_channels()) {}
  int64_t statistic(int64_t head) const {
    return is_value(head) ? -1 : head / per_group * (per_group - 1) + head % per_group;
  }
  bool is_value(int64_t head) const { return head % per_group == per_group - 1; }
  bool is_key(int64_t head) const { return head % per_group == per_group - 2; }
};

int64_t pieces_of(const Tensor& x) { return (x.rows() + kRowPiece - 1) / kRowPiece; }

/// Sums of one piece: q weight, q bias, k weight, k bias, D each.
int64_t sums_of(const HeadNorm& h) { return 4 * h.kv_channels(); }

void put_sums(const Tensor& to, const double* sums, int64_t pieces, int64_t stride,
              bool accumulate) {
  if (!to) return;
  for (int64_t c = 0; c < to.elements(); ++c) {
    double sum = 0;
    for (int64_t i = 0; i < pieces; ++i) sum += sums[i * stride + c];
    float& out = to.as<float>()[c];
    out = static_cast<float>(sum) + (accumulate ? out : 0.0f);
  }
}

}  // namespace

void launch(CpuOps& cpu, const HeadNormForward& a) {
  const Heads heads(a.heads);
  const int64_t d = heads.channels;
  const bool centered = a.heads.norm == Norm::layernorm;
  cpu.pieces(a.y.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t head = 0; head < heads.all; ++head) {
        const float* x = a.heads.x.as<float>() + (r * heads.all + head) * d;
        float* y = a.y.as<float>() + (r * heads.all + head) * d;
        if (heads.is_value(head)) {
          if (x != y) std::copy_n(x, d, y);
          continue;
        }
        const bool key = heads.is_key(head);
        const Tensor& weight = key ? a.heads.k_weight : a.heads.q_weight;
        const Tensor& bias = key ? a.k_bias : a.q_bias;
        const RowMoments m = row_moments(x, d, centered, a.eps);
        row_norm(y, x, weight.as<float>(), bias ? bias.as<float>() : nullptr, d, m);
        const int64_t at = r * heads.normed + heads.statistic(head);
        if (a.heads.mean) a.heads.mean.as<float>()[at] = m.mean;
        if (a.heads.rstd) a.heads.rstd.as<float>()[at] = m.rstd;
      }
    }
  });
}

void launch(CpuOps& cpu, const HeadNormBackward& a) {
  const Heads heads(a.heads);
  const int64_t d = heads.channels, pieces = pieces_of(a.dx), stride = sums_of(a.heads);
  const bool centered = a.heads.norm == Norm::layernorm;
  double* all = reinterpret_cast<double*>(
      cpu.workspace(pieces * stride * static_cast<int64_t>(sizeof(double))));
  cpu.pieces(a.dx.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    double* sums = all + begin / kRowPiece * stride;
    std::fill_n(sums, stride, 0.0);
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t head = 0; head < heads.all; ++head) {
        const int64_t at = (r * heads.all + head) * d;
        const float *x = a.heads.x.as<float>() + at, *dy = a.dy.as<float>() + at;
        float* dx = a.dx.as<float>() + at;
        if (heads.is_value(head)) {
          if (dx != dy) std::copy_n(dy, d, dx);
          continue;
        }
        const bool key = heads.is_key(head);
        const int64_t statistic = r * heads.normed + heads.statistic(head);
        const RowMoments m = {centered ? a.heads.mean.as<float>()[statistic] : 0.0f,
                              a.heads.rstd.as<float>()[statistic]};
        double* of_head = sums + (key ? 2 * d : 0);
        row_norm_weights(of_head, of_head + d, dy, x, d, m);
        const Tensor& weight = key ? a.heads.k_weight : a.heads.q_weight;
        row_norm_backward(dx, nullptr, dy, x, weight.as<float>(), d, m, centered);
      }
    }
  });
  const Tensor* targets[] = {&a.dq_weight, &a.dq_bias, &a.dk_weight, &a.dk_bias};
  for (int64_t i = 0; i < 4; ++i) put_sums(*targets[i], all + i * d, pieces, stride, a.accumulate);
}

int64_t scratch_bytes(CpuOps&, const HeadNormForward&) { return 0; }
int64_t scratch_bytes(CpuOps&, const HeadNormBackward& a) {
  return pieces_of(a.dx) * sums_of(a.heads) * static_cast<int64_t>(sizeof(double));
}

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::HeadNormForward>;
template struct ops::Launch<ops::cpu::CpuOps, ops::HeadNormBackward>;
