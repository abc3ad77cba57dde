// CPU: products of matrices for optimizers. bf16 operands are converted to fp32, multiplied, and
// rounded once.
//
// SPDX-License-Identifier: MIT
#include <cstring>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/gemm.h"
#include "trainer/ops/launch.h"
#include "trainer/ops/number.h"

namespace ops::cpu {
namespace {

constexpr int64_t kPiece = 1 << 15;

/// The elements of `t` in fp32: converted into `room` where they are not fp32 already.
const float* widened(CpuOps& cpu, const Tensor& t, float* room) {
  if (t.dtype == DType::f32) return t.as<float>();
  const uint16_t* from = t.as<uint16_t>();
  cpu.pieces(t.elements(), kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) room[i] = bf16_to_float(from[i]);
  });
  return room;
}

Matrix matrix_of(const Tensor& t, const float* data, bool transposed) {
  const Matrix matrix{data, t.shape[1]};
  return transposed ? matrix.transposed() : matrix;
}

}  // namespace

int64_t scratch_bytes(CpuOps&, const MatrixProduct& a) {
  if (a.d.dtype == DType::f32 && a.beta == 0) return 0;
  const int64_t widened = a.d.dtype == DType::f32 ? 0 : a.a.elements() + a.b.elements();
  return (a.d.elements() + widened) * static_cast<int64_t>(sizeof(float));
}

void launch(CpuOps& cpu, const MatrixProduct& a) {
  const int64_t scratch = scratch_bytes(cpu, a);
  float* sum = scratch == 0 ? a.d.as<float>() : reinterpret_cast<float*>(cpu.workspace(scratch));
  float* room = sum + a.d.elements();
  const float* left = widened(cpu, a.a, room);
  const float* right = a.b.data == a.a.data ? left : widened(cpu, a.b, room + a.a.elements());
  const int64_t columns = a.d.shape[1];
  const Product product{.m = a.d.shape[0],
                        .n = columns,
                        .k = a.depth(),
                        .a = matrix_of(a.a, left, a.transpose_a),
                        .b = matrix_of(a.b, right, a.transpose_b),
                        .c = sum,
                        .c_row = columns,
                        .alpha = a.alpha};
  cpu.multiply(product, [&](const Part& part) {
    if (scratch == 0) return;
    for (int64_t r = part.row; r < part.row + part.rows; ++r) {
      for (int64_t i = r * columns + part.column; i < r * columns + part.column + part.columns; ++i)
        store(a.d, i, sum[i] + (a.beta == 0 ? 0.0f : a.beta * load(a.c, i)));
    }
  });
}

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::MatrixProduct>;
