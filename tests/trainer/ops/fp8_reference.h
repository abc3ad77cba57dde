// FP8 in float64, independent of the program: codes and their values by the formats' definition,
// rounding by search, and operands with scales of rows or blocks.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/trainer/ops/numeric.h"
#include "trainer/ops/fp8.h"

namespace fp8_reference {

using numeric::Values;
using ops::DType;
using ops::Scaling;

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

}  // namespace fp8_reference
