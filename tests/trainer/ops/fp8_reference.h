// FP8 in float64, independent of the program: codes and their values by the formats' definition,
// rounding by search, and operands with scales of rows or blocks. Norms to be quantized.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/trainer/ops/numeric.h"
#include "trainer/ops/ops.h"

namespace fp8_reference {

using numeric::Values;
using ops::DType;
using ops::Scaling;
using ops::Tensor;

/// The value of a code by the definition of the format: sign, exponent, mantissa.
inline double value_of(DType dtype, int code) {
  const int mantissa_bits = dtype == DType::e4m3 ? 3 : 2, bias = dtype == DType::e4m3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const double fraction = mantissa / std::exp2(mantissa_bits);
  const double value =
      exponent == 0 ? fraction * std::exp2(1 - bias) : (1 + fraction) * std::exp2(exponent - bias);
  return code & 0x80 ? -value : value;
}
inline int last_finite(DType dtype) { return dtype == DType::e4m3 ? 0x7e : 0x7b; }

/// The nearest number, of two the one with the even code; beyond the largest the largest.
inline int nearest(DType dtype, double x) {
  int best = std::abs(x) >= value_of(dtype, last_finite(dtype)) ? last_finite(dtype) : 0;
  for (int code = best; code <= last_finite(dtype); ++code) {
    const double error = std::abs(std::abs(x) - value_of(dtype, code));
    const double least = std::abs(std::abs(x) - value_of(dtype, best));
    if (error < least || (error == least && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

/// v (rows, columns), transposed.
inline Values transposed(const Values& v, int64_t rows, int64_t columns) {
  Values out(v.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out[static_cast<size_t>(j * rows + i)] = v[static_cast<size_t>(i * columns + j)];
  return out;
}

/// An operand (rows, depth) rounded in blocks: codes, the scale of each element, and the values
/// that a product sees.
struct Rounded {
  std::vector<int> codes;
  Values scales, values;
};
struct Rounding {
  DType dtype = DType::e4m3;
  Scaling scaling = Scaling::row;
  bool power_of_two = true;
  int margin = 0;
};
inline Rounded rounded(const Values& v, int64_t rows, int64_t depth, const Rounding& how) {
  const int64_t height = how.scaling == Scaling::square_block ? 128 : 1;
  const int64_t width = how.scaling == Scaling::row ? depth : 128;
  Rounded out{std::vector<int>(v.size()), Values(v.size()), Values(v.size())};
  const auto block = [&](int64_t row, int64_t term, const auto& body) {
    for (int64_t i = row; i < std::min(rows, row + height); ++i)
      for (int64_t k = term; k < std::min(depth, term + width); ++k)
        body(static_cast<size_t>(i * depth + k));
  };
  for (int64_t row = 0; row < rows; row += height)
    for (int64_t term = 0; term < depth; term += width) {
      double most = 0;
      bool finite = true;
      block(row, term, [&](size_t at) {
        finite = finite && std::isfinite(v[at]);
        most = std::max(most, std::abs(v[at]));
      });
      double factor = 1;
      if (finite && most > 0) {
        factor = std::clamp((how.dtype == DType::e4m3 ? 448 : 57344) / most / std::exp2(how.margin),
                            0x1p-126, 0x1p126);
        factor = static_cast<float>(factor);  // as the program, in fp32
        if (how.power_of_two) factor = std::exp2(std::floor(std::log2(factor)));
      }
      block(row, term, [&](size_t at) {
        const double x = std::isfinite(v[at]) ? static_cast<float>(v[at] * factor) : v[at];
        out.codes[at] = std::isfinite(v[at]) ? nearest(how.dtype, x) : 0x7f;
        out.scales[at] = 1 / factor;
        out.values[at] = value_of(how.dtype, out.codes[at]) / factor;
      });
    }
  return out;
}

/// A norm of x (S, B, C): how it is computed before it is quantized, and in the same pass. The row
/// of element `broken`, if it is not negative, is not finite.
struct NormCase {
  Tensor x, y;
  ops::AppliedNorm applied;
};
inline NormCase norm_case(numeric::Heap& heap, ops::Ops& ops, ops::Norm norm, bool has_bias,
                          int64_t broken = -1) {
  constexpr int64_t kS = 24, kB = 6, kC = 272;
  const auto random = [&](uint32_t seed, double scale, double mean) {
    Values v = numeric::random_values(kC, seed, scale);
    for (double& w : v) w = static_cast<float>(w + mean);
    return heap.floats({kC}, v);
  };
  const bool layer = norm == ops::Norm::layernorm;
  NormCase out{.x = heap.floats({kS, kB, kC}, numeric::random_values(kS * kB * kC, 1, 3)),
               .y = heap.empty({kS, kB, kC}),
               .applied = {.weight = random(2, 0.5, 1),
                           .bias = has_bias ? random(3, 0.5, 0) : Tensor(),
                           .mean = layer ? heap.empty({kS, kB}) : Tensor(),
                           .rstd = heap.empty({kS, kB})}};
  if (broken >= 0) out.x.as<float>()[broken] = std::numeric_limits<float>::infinity();
  const ops::AppliedNorm& a = out.applied;
  ops.run(ops::ResidualNormForward{.norm = norm,
                                   .y = out.y,
                                   .residual_out = {},
                                   .mean = a.mean,
                                   .rstd = a.rstd,
                                   .residual = out.x,
                                   .branch = {},
                                   .branch_bias = {},
                                   .weight = a.weight,
                                   .bias = a.bias,
                                   .dropout = {}});
  return out;
}
/// body(case) for both norms, with and without a bias, finite and not.
template <class Body>
void for_all_norms(numeric::Heap& heap, ops::Ops& ops, const Body& body) {
  for (const ops::Norm norm : {ops::Norm::layernorm, ops::Norm::rmsnorm})
    for (const bool has_bias : {true, false})
      for (const int64_t broken : {-1, 5000}) body(norm_case(heap, ops, norm, has_bias, broken));
}
/// Bit for bit, NaN too.
inline bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())) == 0;
}

}  // namespace fp8_reference
