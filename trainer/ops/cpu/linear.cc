// CpuOps: linears (OpenBLAS on fixed tiles) and activations.
//
// SPDX-License-Identifier: MIT
#include <cblas.h>

#include <algorithm>
#include <cstring>

#include "trainer/ops/cpu/activation.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/rows.h"

namespace ops::cpu {
namespace {

/// A tile of the result: rows and columns begin .. end-1.
struct Tile {
  int64_t row, row_end, column, column_end;
};

/// Tiles of an (m, n) result, by its shape alone: enough of them for many threads, each large
/// enough for packing to pay.
struct Tiles {
  int64_t m, n, tile_m, tile_n;
  Tiles(int64_t rows, int64_t columns) : m(rows), n(columns) {
    tile_m = std::clamp<int64_t>((m / 8 + 31) / 32 * 32, 64, 512);
    tile_n = m <= 64 ? 256 : std::max<int64_t>(n, 1);
    if (tile_n > 4096) tile_n = 4096;
  }
  int64_t rows() const { return (m + tile_m - 1) / tile_m; }
  int64_t columns() const { return (n + tile_n - 1) / tile_n; }
  int64_t count() const { return rows() * columns(); }
  Tile at(int64_t i) const {
    const int64_t row = i / columns() * tile_m;
    const int64_t column = i % columns() * tile_n;
    return {row, std::min(row + tile_m, m), column, std::min(column + tile_n, n)};
  }
};

blasint blas(int64_t n) { return static_cast<blasint>(n); }

constexpr int64_t kRowPiece = 32;

/// y = activation(x); y may be x.
void activate_row(Activation activation, float* y, const float* x, int64_t n) {
  if (activation == Activation::gelu_tanh) return row_gelu_tanh(y, x, n);
  with_activation(activation, [&]<Activation kActivation>() {
    for (int64_t i = 0; i < n; ++i) y[i] = activate<kActivation>(x[i]);
  });
}

/// d *= activation'(x).
void activate_row_backward(Activation activation, float* d, const float* x, int64_t n) {
  if (activation == Activation::gelu_tanh) return row_gelu_tanh_backward(d, x, n);
  with_activation(activation, [&]<Activation kActivation>() {
    for (int64_t i = 0; i < n; ++i) d[i] *= derivative<kActivation>(x[i]);
  });
}

}  // namespace

void CpuOps::linear_forward(const LinearForward& a) {
  check(a, Device::cpu);
  const int64_t rows = a.x.rows(), in = a.x.columns(), out = a.weight.shape[0];
  const float* x = a.x.as<float>();
  const float* weight = a.weight.as<float>();
  const float* bias = a.bias ? a.bias.as<float>() : nullptr;
  float* y = a.y.as<float>();
  float* pre = a.pre_activation ? a.pre_activation.as<float>() : nullptr;
  if (a.addend && a.addend.data != a.y.data)
    std::memcpy(y, a.addend.as<float>(), static_cast<size_t>(a.y.bytes()));
  const Tiles tiles(rows, out);
  parallel(tiles.count(), [&](int64_t i) {
    const Tile t = tiles.at(i);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, blas(t.row_end - t.row),
                blas(t.column_end - t.column), blas(in), 1.0f, x + t.row * in, blas(in),
                weight + t.column * in, blas(in), a.addend ? 1.0f : 0.0f,
                y + t.row * out + t.column, blas(out));
    if (bias == nullptr && pre == nullptr && a.activation == Activation::none) return;
    const int64_t width = t.column_end - t.column;
    for (int64_t r = t.row; r < t.row_end; ++r) {
      float* row = y + r * out + t.column;
      if (bias != nullptr)
        for (int64_t c = 0; c < width; ++c) row[c] += bias[t.column + c];
      if (pre != nullptr) std::copy_n(row, width, pre + r * out + t.column);
      activate_row(a.activation, row, row, width);
    }
  });
}

void CpuOps::linear_backward_input(const LinearBackwardInput& a) {
  check(a, Device::cpu);
  const int64_t rows = a.dy.rows(), out = a.dy.columns(), in = a.weight.shape[1];
  const float* dy = a.dy.as<float>();
  const float* weight = a.weight.as<float>();
  float* dx = a.dx.as<float>();
  const float* pre = a.activation == Activation::none ? nullptr : a.pre_activation.as<float>();
  if (a.addend && a.addend.data != a.dx.data)
    std::memcpy(dx, a.addend.as<float>(), static_cast<size_t>(a.dx.bytes()));
  const Tiles tiles(rows, in);
  parallel(tiles.count(), [&](int64_t i) {
    const Tile t = tiles.at(i);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, blas(t.row_end - t.row),
                blas(t.column_end - t.column), blas(out), 1.0f, dy + t.row * out, blas(out),
                weight + t.column, blas(in), a.addend ? 1.0f : 0.0f, dx + t.row * in + t.column,
                blas(in));
    if (pre == nullptr) return;
    for (int64_t r = t.row; r < t.row_end; ++r)
      activate_row_backward(a.activation, dx + r * in + t.column, pre + r * in + t.column,
                            t.column_end - t.column);
  });
  if (a.dbias) column_sums(a.dbias.as<float>(), dx, rows, in, a.accumulate_bias);
}

void CpuOps::linear_backward_weight(const LinearBackwardWeight& a) {
  check(a, Device::cpu);
  const int64_t rows = a.dy.rows(), out = a.dy.columns();
  const float* dy = a.dy.as<float>();
  if (a.dweight) {
    const int64_t in = a.x.columns();
    const float* x = a.x.as<float>();
    float* dweight = a.dweight.as<float>();
    const Tiles tiles(out, in);
    parallel(tiles.count(), [&](int64_t i) {
      const Tile t = tiles.at(i);
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, blas(t.row_end - t.row),
                  blas(t.column_end - t.column), blas(rows), 1.0f, dy + t.row, blas(out),
                  x + t.column, blas(in), a.accumulate ? 1.0f : 0.0f,
                  dweight + t.row * in + t.column, blas(in));
    });
  }
  if (a.dbias) column_sums(a.dbias.as<float>(), dy, rows, out, a.accumulate);
}

void CpuOps::activation_forward(const ActivationForward& a) {
  check(a, Device::cpu);
  const float* x = a.x.as<float>();
  float* y = a.y.as<float>();
  const int64_t columns = a.y.columns();
  pieces(a.y.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
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

void CpuOps::activation_backward(const ActivationBackward& a) {
  check(a, Device::cpu);
  const float* x = a.x.as<float>();
  const float* dy = a.dy.as<float>();
  float* dx = a.dx.as<float>();
  const int64_t columns = a.dy.columns();
  pieces(a.dy.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    if (a.activation == Activation::swiglu) {
      for (int64_t i = begin * columns; i < end * columns; ++i) {
        const int64_t gate_at = i / columns * 2 * columns + i % columns;
        const float gate = x[gate_at], up = x[gate_at + columns], s = sigmoid(gate), d = dy[i];
        dx[gate_at] = d * up * s * (1.0f + gate * (1.0f - s));
        dx[gate_at + columns] = d * gate * s;
      }
      return;
    }
    const int64_t at = begin * columns, count = (end - begin) * columns;
    if (dx == x) {  // The derivative needs x: work through a small copy.
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

}  // namespace ops::cpu
