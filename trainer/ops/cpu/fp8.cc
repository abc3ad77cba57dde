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
#include "trainer/ops/launch.h"
#include "trainer/ops/number.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 16;
/// Factors lie between this number's inverse and it, so that factor and inverse are normal numbers.
constexpr float kLargestFactor = 0x1p126f;

/// One row of v, of c elements.
void quantized_row(const Quantize& a, int64_t row, int64_t c, float* v) {
  const float* x = a.x.as<float>() + row * a.x.columns();
  const bool swiglu = a.activation == Activation::swiglu;
  if (!a.pre_activation) {
    if (swiglu) return row_swiglu(v, x, x + c, c);
    return activate_row(a.activation, v, x, c);
  }
  const float* pre = a.pre_activation.as<float>() + row * c;
  if (swiglu) return swiglu_row_backward(v, x, pre, c / 2);
  std::copy_n(x, c, v);
  activate_row_backward(a.activation, v, pre, c);
}

/// The largest magnitude; NaN counts as larger than all.
float largest_magnitude(const float* v, int64_t n, float so_far) {
  uint32_t most = std::bit_cast<uint32_t>(so_far);
  for (int64_t i = 0; i < n; ++i)
    most = std::max(most, std::bit_cast<uint32_t>(v[i]) & 0x7FFFFFFFu);
  return std::bit_cast<float>(most);
}

/// A finite value whose product overflows becomes the largest number, like others that are too
/// large.
template <DType kDType>
uint8_t scaled(float value, float factor) {
  const float product = value * factor;
  if (std::isinf(product) && std::isfinite(value))
    return float_to_fp8<kDType>(std::copysign(largest_fp8(kDType), product));
  return float_to_fp8<kDType>(product);
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

template <DType kDType>
std::array<float, 256> decoded_numbers() {
  std::array<float, 256> table;
  for (size_t bits = 0; bits < table.size(); ++bits)
    table[bits] = fp8_to_float<kDType>(static_cast<uint8_t>(bits));
  return table;
}

void decode(CpuOps& cpu, const Tensor& from, float* to) {
  static const auto e4m3 = decoded_numbers<DType::e4m3>(), e5m2 = decoded_numbers<DType::e5m2>();
  const std::array<float, 256>& table = from.dtype == DType::e4m3 ? e4m3 : e5m2;
  const auto* bits = static_cast<const uint8_t*>(from.data);
  cpu.pieces(from.elements(), int64_t{1} << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = table[bits[i]];
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
  decode(cpu, args.a, a);
  decode(cpu, args.b, b);
  float* y = args.y.as<float>();
  if (args.addend && args.addend.data != args.y.data)
    std::memcpy(y, args.addend.as<float>(), static_cast<size_t>(args.y.bytes()));
  const float* bias = args.bias ? args.bias.as<float>() : nullptr;
  const Product product{
      .m = m,
      .n = n,
      .k = k,
      .a = {a, k},
      .b = Matrix{b, k}.transposed(),
      .c = y,
      .c_row = n,
      .alpha = args.a_scale.as<float>()[kScaleInverse] * args.b_scale.as<float>()[kScaleInverse],
      .add = bool(args.addend)};
  cpu.multiply(product, [&](const Part& part) {
    if (bias == nullptr) return;
    for (int64_t r = part.row; r < part.row + part.rows; ++r)
      for (int64_t c = part.column; c < part.column + part.columns; ++c) y[r * n + c] += bias[c];
  });
}

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::Quantize>;
template struct ops::Launch<ops::cpu::CpuOps, ops::UpdateScales>;
template struct ops::Launch<ops::cpu::CpuOps, ops::Fp8Product>;
