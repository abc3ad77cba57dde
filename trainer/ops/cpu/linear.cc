// CPU: linears and activations. Bias, activation and addend are applied to each part of a product
// while it is in cache.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>

#include "trainer/ops/cpu/activation.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/gemm.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/launch.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 32;

}  // namespace

void launch(CpuOps& cpu, const LinearForward& a) {
  const int64_t rows = a.x.rows(), in = a.x.columns(), out = a.outputs();
  const float* x = a.x.as<float>();
  const bool narrow = a.weight.dtype == DType::bf16;
  const int64_t row = a.weight.shape[1];
  const Matrix weight{narrow ? nullptr : a.weight.as<float>(), row};
  const Bf16Matrix weight_bf16{narrow ? a.weight.as<uint16_t>() : nullptr, row};
  const float* bias = a.bias ? a.bias.as<float>() : nullptr;
  float* y = a.y.as<float>();
  float* pre = a.pre_activation ? a.pre_activation.as<float>() : nullptr;
  if (a.addend && a.addend.data != a.y.data)
    std::memcpy(y, a.addend.as<float>(), static_cast<size_t>(a.y.bytes()));
  const Product product{.m = rows,
                        .n = out,
                        .k = in,
                        .a = {x, in},
                        .b = a.weight_is_transposed ? weight : weight.transposed(),
                        .c = y,
                        .c_row = out,
                        .add = bool(a.addend),
                        .b_bf16 = a.weight_is_transposed ? weight_bf16 : weight_bf16.transposed()};
  cpu.multiply(product, [&](const Part& part) {
    if (bias == nullptr && pre == nullptr && a.activation == Activation::none) return;
    for (int64_t r = part.row; r < part.row + part.rows; ++r) {
      float* row = y + r * out + part.column;
      if (bias != nullptr)
        for (int64_t c = 0; c < part.columns; ++c) row[c] += bias[part.column + c];
      if (pre != nullptr) std::copy_n(row, part.columns, pre + r * out + part.column);
      activate_row(a.activation, row, row, part.columns);
    }
  });
}

void launch(CpuOps& cpu, const LinearBackwardInput& a) {
  const int64_t rows = a.dy.rows(), out = a.dy.columns(), in = a.weight.shape[1];
  const float* dy = a.dy.as<float>();
  const float* weight = a.weight.as<float>();
  float* dx = a.dx.as<float>();
  const float* pre = a.activation == Activation::none ? nullptr : a.pre_activation.as<float>();
  if (a.addend && a.addend.data != a.dx.data)
    std::memcpy(dx, a.addend.as<float>(), static_cast<size_t>(a.dx.bytes()));
  const Product product{.m = rows,
                        .n = in,
                        .k = out,
                        .a = {dy, out},
                        .b = {weight, in},
                        .c = dx,
                        .c_row = in,
                        .add = bool(a.addend)};
  cpu.multiply(product, [&](const Part& part) {
    if (pre == nullptr) return;
    for (int64_t r = part.row; r < part.row + part.rows; ++r) {
      const int64_t at = r * in + part.column;
      activate_row_backward(a.activation, dx + at, pre + at, part.columns);
    }
  });
  if (a.dbias) cpu.column_sums(a.dbias.as<float>(), dx, rows, in, a.accumulate_bias);
}

void launch(CpuOps& cpu, const LinearBackwardWeight& a) {
  const int64_t rows = a.dy.rows(), out = a.dy.columns();
  const float* dy = a.dy.as<float>();
  if (a.dweight) {
    const int64_t in = a.x.columns();
    cpu.multiply({.m = out,
                  .n = in,
                  .k = rows,
                  .a = Matrix{dy, out}.transposed(),
                  .b = {a.x.as<float>(), in},
                  .c = a.dweight.as<float>(),
                  .c_row = in,
                  .add = a.accumulate},
                 [](const Part&) {});
  }
  if (a.dbias) cpu.column_sums(a.dbias.as<float>(), dy, rows, out, a.accumulate);
}

void launch(CpuOps& cpu, const ActivationForward& a) {
  const float* x = a.x.as<float>();
  float* y = a.y.as<float>();
  const int64_t columns = a.y.columns();
  cpu.pieces(a.y.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    if (a.activation == Activation::swiglu) {
      for (int64_t r = begin; r < end; ++r) {
        const float* gate = x + r * 2 * columns;
        const float* up = gate + columns;
        row_swiglu(y + r * columns, gate, up, columns);
      }
      return;
    }
    activate_row(a.activation, y + begin * columns, x + begin * columns, (end - begin) * columns);
  });
}

void launch(CpuOps& cpu, const ActivationBackward& a) {
  const float* x = a.x.as<float>();
  const float* dy = a.dy.as<float>();
  float* dx = a.dx.as<float>();
  const int64_t columns = a.dy.columns();
  cpu.pieces(a.dy.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    if (a.activation == Activation::swiglu) {
      for (int64_t r = begin; r < end; ++r)
        swiglu_row_backward(dx + r * 2 * columns, dy + r * columns, x + r * 2 * columns, columns);
      return;
    }
    const int64_t at = begin * columns, count = (end - begin) * columns;
    if (dx == x) {  // The derivative needs x, so it goes through a small copy.
      float part[256];
      for (int64_t i = at; i < at + count; i += 256) {
        const int64_t width = std::min<int64_t>(256, at + count - i);
        std::copy_n(dy + i, width, part);
        activate_row_backward(a.activation, part, x + i, width);
        std::copy_n(part, width, dx + i);
      }
      return;
    }
    if (dx != dy) std::copy_n(dy + at, count, dx + at);
    activate_row_backward(a.activation, dx + at, x + at, count);
  });
}

int64_t scratch_bytes(CpuOps&, const LinearForward&) { return 0; }
int64_t scratch_bytes(CpuOps&, const LinearBackwardInput&) { return 0; }
int64_t scratch_bytes(CpuOps&, const LinearBackwardWeight&) { return 0; }
int64_t scratch_bytes(CpuOps&, const ActivationForward&) { return 0; }
int64_t scratch_bytes(CpuOps&, const ActivationBackward&) { return 0; }

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::LinearForward>;
template struct ops::Launch<ops::cpu::CpuOps, ops::LinearBackwardInput>;
template struct ops::Launch<ops::cpu::CpuOps, ops::LinearBackwardWeight>;
template struct ops::Launch<ops::cpu::CpuOps, ops::ActivationForward>;
template struct ops::Launch<ops::cpu::CpuOps, ops::ActivationBackward>;
