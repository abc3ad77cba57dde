// CPU: quantizing, scales, and products of quantized operands. Operands are decoded and multiplied
// by linear.cc's product, so sums are fp32 whatever fast_sums says.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "trainer/ops/cpu/activation.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/fp8_values.h"
#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/launch.h"
#include "trainer/ops/number.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 16;
/// One row of v, of c elements.
template <class Args>
void quantized_row(const Args& a, int64_t row, int64_t c, float* v) {
  const Tensor &in = a.x, &before = a.pre_activation;
  const float* x = in.as<float>() + row * in.columns();
  if (const AppliedNorm& n = a.norm)
    return row_norm(v, x, n.weight.as<float>(), n.bias ? n.bias.as<float>() : nullptr, c,
                    {n.mean ? n.mean.as<float>()[row] : 0.0f, n.rstd.as<float>()[row]});
  const bool swiglu = a.activation == Activation::swiglu;
  if (!before) {
    if (swiglu) return row_swiglu(v, x, x + c, c);
    return activate_row(a.activation, v, x, c);
  }
  const float* pre = before.as<float>() + row * c;
  if (swiglu) return swiglu_row_backward(v, x, pre, c / 2);
  std::copy_n(x, c, v);
  activate_row_backward(a.activation, v, pre, c);
}

template <DType kDType>
void round_into(CpuOps& cpu, const Quantize& a, const float* v) {
  const int64_t rows = a.row_count(), columns = a.column_count();
  const float factor = a.scale.as<float>()[kScaleFactor];
  auto* out = static_cast<uint8_t*>(a.rows.data);
  auto* transposed = static_cast<uint8_t*>(a.columns.data);
  cpu.pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const uint8_t bits = scaled<kDType>(v[r * columns + c], factor);
        if (out != nullptr) out[r * columns + c] = bits;
        if (transposed != nullptr) transposed[c * rows + r] = bits;
      }
    }
  });
}

/// An operand as QuantizeInBlocks rounds it: element (i, k) of v or of its transpose.
struct Operand {
  const float* v;
  int64_t rows, depth;
  int64_t row_step, depth_step;

  float at(int64_t i, int64_t k) const { return v[i * row_step + k * depth_step]; }
};

/// Rows and depth of a block.
ScaleShape block_shape(Scaling scaling, int64_t depth) {
  return {scaling == Scaling::square_block ? kScaleBlock : 1,
          scaling == Scaling::row ? depth : kScaleBlock};
}

/// Rounds the block of the rows and terms from (row, term) on, and stores its scale.
template <DType kDType>
void round_block(const QuantizeInBlocks& a, const Operand& from, int64_t row, int64_t term,
                 uint8_t* out, float* scales) {
  const ScaleShape block = block_shape(a.scaling, from.depth);
  const int64_t last_row = std::min(row + block.rows, from.rows);
  const int64_t last_term = std::min(term + block.columns, from.depth);
  float most = 0;
  for (int64_t i = row; i < last_row; ++i)
    for (int64_t k = term; k < last_term; ++k) {
      const float value = from.at(i, k);
      most = largest_magnitude(&value, 1, most);
    }
  const float factor = factor_of_block(kDType, most, a.margin, a.power_of_two);
  for (int64_t i = row; i < last_row; ++i)
    for (int64_t k = term; k < last_term; ++k)
      out[i * from.depth + k] = scaled<kDType>(from.at(i, k), factor);
  const int64_t b = term / block.columns, r = row / block.rows;
  const int64_t columns = scale_shape(a.scaling, from.rows, from.depth).columns;
  scales[a.scaling == Scaling::square_block ? r * columns + b : b * columns + r] = 1.0f / factor;
}

template <DType kDType>
void round_in_blocks(CpuOps& cpu, const QuantizeInBlocks& a, const Operand& from, const Tensor& out,
                     const Tensor& scale) {
  const ScaleShape block = block_shape(a.scaling, from.depth);
  auto* bytes = static_cast<uint8_t*>(out.data);
  float* scales = scale.as<float>();
  std::fill_n(scales, scale.elements(), 0.0f);
  cpu.pieces(from.rows, std::max(kRowPiece, block.rows), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row += block.rows)
      for (int64_t term = 0; term < from.depth; term += block.columns)
        round_block<kDType>(a, from, row, term, bytes, scales);
  });
}

template <DType kDType>
void round_both(CpuOps& cpu, const QuantizeInBlocks& a, const float* v) {
  const int64_t r = a.row_count(), c = a.column_count();
  if (a.rows) round_in_blocks<kDType>(cpu, a, {v, r, c, c, 1}, a.rows, a.row_scale);
  if (a.columns) round_in_blocks<kDType>(cpu, a, {v, c, r, 1, c}, a.columns, a.column_scale);
}

template <DType kDType>
std::array<float, 256> decoded_numbers() {
  std::array<float, 256> table;
  for (size_t bits = 0; bits < table.size(); ++bits)
    table[bits] = fp8_to_float<kDType>(static_cast<uint8_t>(bits));
  return table;
}

/// The numbers of an operand, times their scales if it has more than one.
void decode(CpuOps& cpu, const Tensor& from, const Tensor& scale, Scaling scaling, float* to) {
  static const auto e4m3 = decoded_numbers<DType::e4m3>(), e5m2 = decoded_numbers<DType::e5m2>();
  const std::array<float, 256>& table = from.dtype == DType::e4m3 ? e4m3 : e5m2;
  const auto* bits = static_cast<const uint8_t*>(from.data);
  const int64_t rows = from.rows(), depth = from.columns();
  const float* scales = scale.as<float>();
  const ScaleShape shape = scale_shape(scaling, rows, depth);
  const auto scale_at = [&](int64_t i, int64_t k) {
    if (scaling == Scaling::tensor) return 1.0f;
    if (scaling == Scaling::row) return scales[i];
    if (scaling == Scaling::row_block) return scales[k / kScaleBlock * shape.columns + i];
    return scales[i / kScaleBlock * shape.columns + k / kScaleBlock];
  };
  cpu.pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t k = 0; k < depth; k += kScaleBlock) {
        const float by = scale_at(i, k);
        for (int64_t j = k; j < std::min(k + kScaleBlock, depth); ++j)
          to[i * depth + j] = table[bits[i * depth + j]] * by;
      }
  });
}

}  // namespace

int64_t scratch_bytes(CpuOps&, const Quantize& a) {
  return a.row_count() * a.column_count() * int64_t{sizeof(float)};
}

void launch(CpuOps& cpu, const Quantize& a) {
  const int64_t rows = a.row_count(), columns = a.column_count();
  auto* v = reinterpret_cast<float*>(cpu.workspace(scratch_bytes(cpu, a)));
  cpu.pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) quantized_row(a, r, columns, v + r * columns);
  });
  if (a.amax) {
    float& amax = *a.amax.as<float>();
    amax = largest_magnitude(v, rows * columns, amax);
  }
  if (a.dbias) cpu.column_sums(a.dbias.as<float>(), v, rows, columns, a.accumulate_bias);
  if (!a.rows && !a.columns) return;
  const DType dtype = a.rows ? a.rows.dtype : a.columns.dtype;
  if (dtype == DType::e4m3)
    round_into<DType::e4m3>(cpu, a, v);
  else
    round_into<DType::e5m2>(cpu, a, v);
}

int64_t scratch_bytes(CpuOps&, const QuantizeInBlocks& a) {
  return a.row_count() * a.column_count() * int64_t{sizeof(float)};
}

void launch(CpuOps& cpu, const QuantizeInBlocks& a) {
  const int64_t rows = a.row_count(), columns = a.column_count();
  auto* v = reinterpret_cast<float*>(cpu.workspace(scratch_bytes(cpu, a)));
  cpu.pieces(rows, kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) quantized_row(a, r, columns, v + r * columns);
  });
  if (a.dbias) cpu.column_sums(a.dbias.as<float>(), v, rows, columns, a.accumulate_bias);
  if ((a.rows ? a.rows : a.columns).dtype == DType::e4m3)
    round_both<DType::e4m3>(cpu, a, v);
  else
    round_both<DType::e5m2>(cpu, a, v);
}

int64_t scratch_bytes(CpuOps&, const UpdateScales&) { return 0; }

void launch(CpuOps&, const UpdateScales& a) {
  const int64_t n = a.amax.elements(), length = a.history ? a.history.shape[1] : 0;
  float* amax = a.amax.as<float>();
  float* scale = a.scale.as<float>();
  for (int64_t i = 0; i < n; ++i) {
    float most = std::exchange(amax[i], 0.0f);
    if (length > 0) {
      float* entries = a.history.as<float>() + i * length;
      if (!std::isfinite(most)) most = entries[0];
      std::copy_backward(entries, entries + length - 1, entries + length);
      entries[0] = most;
      if (a.choice == AmaxChoice::max) most = *std::max_element(entries, entries + length);
    }
    float factor = 1.0f;
    if (std::isfinite(most) && most != 0.0f)
      factor = std::ldexp(largest_fp8(a.dtype) / most, -a.margin);
    else if (length > 0)
      continue;
    float* to = scale + i * kScaleSize;
    to[kScaleFactor] = std::clamp(factor, 1.0f / kLargestFactor, kLargestFactor);
    to[kScaleInverse] = 1.0f / to[kScaleFactor];
  }
}

int64_t scratch_bytes(CpuOps&, const Fp8Product& a) {
  return (a.a.elements() + a.b.elements()) * int64_t{sizeof(float)};
}

void launch(CpuOps& cpu, const Fp8Product& args) {
  const int64_t m = args.a.rows(), n = args.b.rows(), k = args.a.columns();
  auto* a = reinterpret_cast<float*>(cpu.workspace(scratch_bytes(cpu, args)));
  float* b = a + m * k;
  decode(cpu, args.a, args.a_scale, args.a_scaling, a);
  decode(cpu, args.b, args.b_scale, args.b_scaling, b);
  float* y = args.y.as<float>();
  if (args.addend && args.addend.data != args.y.data)
    std::memcpy(y, args.addend.as<float>(), static_cast<size_t>(args.y.bytes()));
  const float* bias = args.bias ? args.bias.as<float>() : nullptr;
  const Product product{.m = m,
                        .n = n,
                        .k = k,
                        .a = {a, k},
                        .b = Matrix{b, k}.transposed(),
                        .c = y,
                        .c_row = n,
                        .alpha = args.a_scaling != Scaling::tensor
                                     ? 1.0f
                                     : args.a_scale.as<float>()[kScaleInverse] *
                                           args.b_scale.as<float>()[kScaleInverse],
                        .add = bool(args.addend)};
  cpu.multiply(product, [&](const Part& part) {
    if (bias == nullptr) return;
    for (int64_t r = part.row; r < part.row + part.rows; ++r)
      for (int64_t c = part.column; c < part.column + part.columns; ++c) y[r * n + c] += bias[c];
  });
}

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::Quantize>;
template struct ops::Launch<ops::cpu::CpuOps, ops::QuantizeInBlocks>;
template struct ops::Launch<ops::cpu::CpuOps, ops::UpdateScales>;
template struct ops::Launch<ops::cpu::CpuOps, ops::Fp8Product>;
