// CPU: residual add, dropout and norm in one pass over a row.
// Source: Ba, Kiros, Hinton 2016 (layer normalization); Zhang and Sennrich 2019 (RMSNorm).
//
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/dropout.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/launch.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 16;

}  // namespace

void launch(CpuOps& cpu, const ResidualNormForward& a) {
  const int64_t rows = a.residual.rows(), columns = a.residual.columns(),
                batch = a.residual.shape[1];
  const DropoutMask mask(a.dropout);
  const float* bias = a.bias ? a.bias.as<float>() : nullptr;
  cpu.pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
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
      if (!a.y && !a.rstd) continue;
      const RowMoments m = row_moments(x, columns, a.norm == Norm::layernorm, a.eps);
      if (a.y) row_norm(a.y.as<float>() + r * columns, x, a.weight.as<float>(), bias, columns, m);
      if (a.mean) a.mean.as<float>()[r] = m.mean;
      if (a.rstd) a.rstd.as<float>()[r] = m.rstd;
    }
  });
}

void launch(CpuOps& cpu, const ResidualNormBackward& a) {
  const int64_t rows = a.dresidual.rows(), columns = a.dresidual.columns(),
                batch = a.dresidual.shape[1];
  const float* dy = a.dy ? a.dy.as<float>() : nullptr;
  const float* mean = a.dy && a.norm == Norm::layernorm ? a.mean.as<float>() : nullptr;
  if (a.dy) {
    // Columns first: dbranch may be dy.
    constexpr int64_t kColumns = 64;
    const float* x = a.x.as<float>();
    const float* rstd = a.rstd.as<float>();
    cpu.pieces(columns, kColumns, [&](int64_t begin, int64_t end) {
      double dweight[kColumns] = {}, dbias[kColumns] = {};
      for (int64_t r = 0; r < rows; ++r)
        row_norm_weights(dweight, dbias, dy + r * columns + begin, x + r * columns + begin,
                         end - begin, {mean != nullptr ? mean[r] : 0.0f, rstd[r]});
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
  cpu.pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* dresidual = a.dresidual.as<float>() + r * columns;
      const float* before = a.dresidual_out ? a.dresidual_out.as<float>() + r * columns : nullptr;
      if (dy != nullptr) {
        row_norm_backward(dresidual, before, dy + r * columns, a.x.as<float>() + r * columns,
                          a.weight.as<float>(), columns,
                          {mean != nullptr ? mean[r] : 0.0f, a.rstd.as<float>()[r]},
                          a.norm == Norm::layernorm);
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
    cpu.column_sums(a.dbranch_bias.as<float>(), (a.dbranch ? a.dbranch : a.dresidual).as<float>(),
                    rows, columns, a.accumulate);
}

int64_t scratch_bytes(CpuOps&, const ResidualNormForward&) { return 0; }
int64_t scratch_bytes(CpuOps&, const ResidualNormBackward&) { return 0; }

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::ResidualNormForward>;
template struct ops::Launch<ops::cpu::CpuOps, ops::ResidualNormBackward>;
