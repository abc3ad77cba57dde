// CPU: linears and activations. Bias, activation and addend are applied to each part of a product
// while it is in cache.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "trainer/ops/cpu/activation.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/gemm.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/launch.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 32;

/// The products of a linear, and where their columns go.
class Outputs {
 public:
  Outputs(CpuOps& cpu, const LinearForward& a) : a_(a), whole_{a.weight.data, 0, a.outputs()} {
    whole_.row = a.weight.shape[1];
    pieces_ = a.pieces.empty() ? std::span(&whole_, 1) : a.pieces;
    int64_t column = 0;
    bool in_order = true;
    for (const WeightPiece& piece : pieces_) {
      in_order &= piece.first == column;
      column += piece.outputs;
    }
    y_ = a.y.as<float>();
    if (!in_order) {
      kept_ = (a.x.rows() * a.outputs() * 4 + 63) / 64 * 64;
      Product all = product_of(pieces_.front(), 0);
      all.n = a.outputs();
      scattered_ =
          reinterpret_cast<float*>(cpu.workspace(kept_ + CpuOps::product_scratch_bytes(all)));
    }
    add_products();
  }

  const std::vector<Product>& products() const noexcept { return products_; }
  /// Bytes at the workspace's start with products whose columns are in the pieces' order.
  int64_t kept() const noexcept { return kept_; }

  /// A part of the products is done.
  void finish(const Part& part) const {
    if (scattered_ == nullptr) return finish_outputs(part);
    int64_t column = 0;
    for (const WeightPiece& piece : pieces_) {
      const int64_t begin = std::max(part.column, column);
      const int64_t end = std::min(part.column + part.columns, column + piece.outputs);
      const Part outputs{part.row, part.rows, piece.first + begin - column, end - begin};
      column += piece.outputs;
      if (end <= begin) continue;
      for (int64_t r = part.row; r < part.row + part.rows; ++r)
        std::copy_n(scattered_ + r * a_.outputs() + begin, outputs.columns,
                    y_ + r * a_.outputs() + outputs.column);
      finish_outputs(outputs);
    }
  }

 private:
  // Pieces that lie behind one another are one product.
  void add_products() {
    int64_t column = 0;
    const WeightPiece* before = nullptr;
    for (const WeightPiece& piece : pieces_) {
      if (before != nullptr && continues(*before, piece))
        products_.back().n += piece.outputs;
      else
        products_.push_back(product_of(piece, column));
      column += piece.outputs;
      before = &piece;
    }
  }

  bool continues(const WeightPiece& before, const WeightPiece& piece) const {
    const int64_t step = a_.weight_is_transposed ? 1 : before.row;
    const int64_t bytes = before.outputs * step * size_bytes(a_.weight.dtype);
    return piece.row == before.row &&
           static_cast<const std::byte*>(before.data) + bytes == piece.data;
  }

  Product product_of(const WeightPiece& piece, int64_t column) const {
    const bool narrow = a_.weight.dtype == DType::bf16;
    const Matrix wide{narrow ? nullptr : static_cast<const float*>(piece.data), piece.row};
    const Bf16Matrix bf16{narrow ? static_cast<const uint16_t*>(piece.data) : nullptr, piece.row};
    return {.m = a_.x.rows(),
            .n = piece.outputs,
            .k = a_.x.columns(),
            .a = {a_.x.as<float>(), a_.x.columns()},
            .b = a_.weight_is_transposed ? wide : wide.transposed(),
            .c = (scattered_ == nullptr ? y_ : scattered_) + column,
            .c_row = a_.outputs(),
            .add = bool(a_.addend),
            .b_bf16 = a_.weight_is_transposed ? bf16 : bf16.transposed()};
  }

  // Bias and activation.
  void finish_outputs(const Part& part) const {
    const float* bias = a_.bias ? a_.bias.as<float>() : nullptr;
    float* pre = a_.pre_activation ? a_.pre_activation.as<float>() : nullptr;
    if (bias == nullptr && pre == nullptr && a_.activation == Activation::none) return;
    for (int64_t r = part.row; r < part.row + part.rows; ++r) {
      const int64_t at = r * a_.outputs() + part.column;
      float* row = y_ + at;
      if (bias != nullptr)
        for (int64_t c = 0; c < part.columns; ++c) row[c] += bias[part.column + c];
      if (pre != nullptr) std::copy_n(row, part.columns, pre + at);
      activate_row(a_.activation, row, row, part.columns);
    }
  }

  const LinearForward& a_;
  WeightPiece whole_;
  std::span<const WeightPiece> pieces_;
  float* y_ = nullptr;
  float* scattered_ = nullptr;  ///< (R, O), in the pieces' order; null if that is the outputs'.
  int64_t kept_ = 0;
  std::vector<Product> products_;
};

}  // namespace

void launch(CpuOps& cpu, const LinearForward& a) {
  if (a.addend && a.addend.data != a.y.data)
    std::memcpy(a.y.data, a.addend.as<float>(), static_cast<size_t>(a.y.bytes()));
  const Outputs outputs(cpu, a);
  cpu.multiply(outputs.products(), outputs.kept(), [&](const Part& part) { outputs.finish(part); });
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
