// Rounding to FP8 and largest values on the CPU: what fp8.cc and fp8_flat.cc share. May include:
// trainer/ops only.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "trainer/ops/fp8.h"
#include "trainer/ops/number.h"

namespace ops::cpu {

/// Factors lie between this number's inverse and it, so that factor and inverse are normal numbers.
constexpr float kLargestFactor = 0x1p126f;

/// The largest magnitude; NaN counts as larger than all.
inline float largest_magnitude(const float* v, int64_t n, float so_far) {
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

/// The factor of a row or block with this largest magnitude, as QuantizeInBlocks says.
inline float factor_of_block(DType dtype, float most, int32_t margin, bool power_of_two) {
  if (!std::isfinite(most) || most == 0.0f) return 1.0f;
  const float exact = std::clamp(std::ldexp(largest_fp8(dtype) / most, -margin),
                                 1.0f / kLargestFactor, kLargestFactor);
  constexpr uint32_t kExponent = 0x7F800000u;
  return power_of_two ? std::bit_cast<float>(std::bit_cast<uint32_t>(exact) & kExponent) : exact;
}

}  // namespace ops::cpu
