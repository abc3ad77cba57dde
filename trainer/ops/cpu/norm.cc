// CpuOps: residual add, dropout and norm in one pass over a row.
// Source: Ba, Kiros, Hinton 2016 (layer normalization); Zhang and Sennrich 2019 (RMSNorm).
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/dropout.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 16;

struct Moments {
  float mean, rstd;
};

/// Mean and 1/sqrt(variance + eps) of a row, in double; RMSNorm's mean is 0.
Moments moments(const float* x, int64_t columns, Norm norm, float eps) noexcept {
  double mean = 0;
  if (norm == Norm::layernorm) {
    for (int64_t c = 0; c < columns; ++c) mean += x[c];
    mean /= static_cast<double>(columns);
  }
  double square = 0;
  for (int64_t c = 0; c < columns; ++c) square += (x[c] - mean) * (x[c] - mean);
  const double variance = square / static_cast<double>(columns);
  return {static_cast<float>(mean), static_cast<float>(1.0 / std::sqrt(variance + eps))};
}

}  // namespace

void CpuOps::residual_norm_forward(const ResidualNormForward& a) {
  check(a, Device::cpu);
  const int64_t rows = a.residual.rows(), columns = a.residual.columns(),
                batch = a.residual.shape[1];
  const DropoutMask mask(a.dropout);
  const float* bias = a.bias ? a.bias.as<float>() : nullptr;
  pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* x = a.residual.as<float>() + r * columns;
      if (a.branch) {
        const float* branch = a.branch.as<float>() + r * columns;
        float* sum = a.residual_out.as<float>() + r * columns;
        float dropped[512];
        for (int64_t c0 = 0; c0 < columns; c0 += 512) {
          const int64_t width = std::min<int64_t>(512, columns - c0);
          for (int64_t c = 0; c < width; ++c)
            dropped[c] =
                branch[c0 + c] + (a.branch_bias ? a.branch_bias.as<float>()[c0 + c] : 0.0f);
          mask.apply(dropped, width, r / batch, r % batch, -1, c0);
          for (int64_t c = 0; c < width; ++c) sum[c0 + c] = x[c0 + c] + dropped[c];
        }
        x = sum;
      }
      if (!a.y) continue;
      const Moments m = moments(x, columns, a.norm, a.eps);
      const float* weight = a.weight.as<float>();
      float* y = a.y.as<float>() + r * columns;
      for (int64_t c = 0; c < columns; ++c)
        y[c] = (x[c] - m.mean) * m.rstd * weight[c] + (bias != nullptr ? bias[c] : 0.0f);
      if (a.mean) a.mean.as<float>()[r] = m.mean;
      if (a.rstd) a.rstd.as<float>()[r] = m.rstd;
    }
  });
}

void CpuOps::residual_norm_backward(const ResidualNormBackward& a) {
  check(a, Device::cpu);
  const int64_t rows = a.dresidual.rows(), columns = a.dresidual.columns(),
                batch = a.dresidual.shape[1];
  const float* dy = a.dy ? a.dy.as<float>() : nullptr;
  const float* mean = a.dy && a.norm == Norm::layernorm ? a.mean.as<float>() : nullptr;
  if (a.dy) {
    // Columns first: dbranch may be dy.
    constexpr int64_t kColumns = 64;
    const float* x = a.x.as<float>();
    const float* rstd = a.rstd.as<float>();
    pieces(columns, kColumns, [&](int64_t begin, int64_t end) {
      double dweight[kColumns] = {}, dbias[kColumns] = {};
      for (int64_t r = 0; r < rows; ++r) {
        const float center = mean != nullptr ? mean[r] : 0.0f;
        for (int64_t c = begin; c < end; ++c) {
          const float d = dy[r * columns + c];
          dweight[c - begin] += d * ((x[r * columns + c] - center) * rstd[r]);
          dbias[c - begin] += d;
        }
      }
      for (int64_t c = begin; c < end; ++c) {
        float* w = a.dweight.as<float>() + c;
        *w = static_cast<float>(dweight[c - begin]) + (a.accumulate ? *w : 0.0f);
        if (!a.dbias) continue;
        float* b = a.dbias.as<float>() + c;
        *b = static_cast<float>(dbias[c - begin]) + (a.accumulate ? *b : 0.0f);
      }
    });
  }
  const DropoutMask mask(a.dropout);
  pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* dresidual = a.dresidual.as<float>() + r * columns;
      const float* before = a.dresidual_out ? a.dresidual_out.as<float>() + r * columns : nullptr;
      if (dy != nullptr) {
        const float* x = a.x.as<float>() + r * columns;
        const float* weight = a.weight.as<float>();
        const float center = mean != nullptr ? mean[r] : 0.0f;
        const float rstd = a.rstd.as<float>()[r];
        double sum = 0, dot = 0;  // of g = dy * weight, and of g * xhat
        for (int64_t c = 0; c < columns; ++c) {
          const double g = dy[r * columns + c] * weight[c];
          sum += g;
          dot += g * ((x[c] - center) * rstd);
        }
        const float g_mean = a.norm == Norm::layernorm
                                 ? static_cast<float>(sum / static_cast<double>(columns))
                                 : 0.0f;
        const float dot_mean = static_cast<float>(dot / static_cast<double>(columns));
        for (int64_t c = 0; c < columns; ++c) {
          const float xhat = (x[c] - center) * rstd;
          const float d = rstd * (dy[r * columns + c] * weight[c] - g_mean - xhat * dot_mean);
          dresidual[c] = (before != nullptr ? before[c] : 0.0f) + d;
        }
      } else if (before != dresidual) {
        std::copy_n(before, columns, dresidual);
      }
      if (!a.dbranch) continue;
      float* dbranch = a.dbranch.as<float>() + r * columns;
      std::copy_n(dresidual, columns, dbranch);
      mask.apply(dbranch, columns, r / batch, r % batch);
    }
  });
  if (a.dbranch_bias)
    column_sums(a.dbranch_bias.as<float>(), (a.dbranch ? a.dbranch : a.dresidual).as<float>(), rows,
                columns, a.accumulate);
}

}  // namespace ops::cpu
