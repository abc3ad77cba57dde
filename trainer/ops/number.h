// bf16 and fp16 as bits on the host: conversions to and from fp32, round to nearest even.
// Not here: device code (it has its own intrinsics). May include: ops/tensor.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>

#include "trainer/ops/tensor.h"

namespace ops {

inline float bf16_to_float(uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
inline uint16_t float_to_bf16(float x) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
/// Rounds up with the probability of the cut part: `random` is 16 bits added below the kept ones.
inline uint16_t float_to_bf16_stochastic(float x, uint32_t random) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7F800000u) == 0x7F800000u) return float_to_bf16(x);
  return static_cast<uint16_t>((bits + (random & 0xFFFFu)) >> 16);
}

inline float f16_to_float(uint16_t half) noexcept {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t mantissa = half & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -tiny : tiny;
}
inline uint16_t float_to_f16(float x) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);   // NaN
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and more
  if (magnitude <
      0x38800000u) {  // below 2^-14: a multiple of 2^-24, rounded by the addition of 0.5
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// Element i of a host tensor of a float dtype. Slow: the dtype is looked at each time.
inline float load(const Tensor& t, int64_t i) noexcept {
  switch (t.dtype) {
    case DType::f32:
      return static_cast<const float*>(t.data)[i];
    case DType::bf16:
      return bf16_to_float(static_cast<const uint16_t*>(t.data)[i]);
    case DType::f16:
      return f16_to_float(static_cast<const uint16_t*>(t.data)[i]);
    default:
      return 0;
  }
}
inline void store(const Tensor& t, int64_t i, float value) noexcept {
  switch (t.dtype) {
    case DType::f32:
      static_cast<float*>(t.data)[i] = value;
      break;
    case DType::bf16:
      static_cast<uint16_t*>(t.data)[i] = float_to_bf16(value);
      break;
    case DType::f16:
      static_cast<uint16_t*>(t.data)[i] = float_to_f16(value);
      break;
    default:
      break;
  }
}

}  // namespace ops
