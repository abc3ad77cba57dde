// bf16, fp16, e4m3 and e5m2 as bits on the host: conversions to and from fp32, round to nearest
// even.
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
/// Rounds up with the probability of the cut part: `random` is 16 bits, added below the kept ones.
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

/// e4m3 or e5m2: finite values beyond the largest become the largest, NaN and Inf the NaN 0x7f. The
/// sign of a NaN is lost. Source: OCP OFP8, table 1.
template <DType kDType>
uint8_t float_to_fp8(float x) noexcept {
  constexpr uint32_t kMantissa = kDType == DType::e4m3 ? 3 : 2;
  constexpr uint32_t kBias = kDType == DType::e4m3 ? 7 : 15;
  constexpr uint32_t kLargest = kDType == DType::e4m3 ? 0x7E : 0x7B;
  constexpr uint32_t kCut = 23 - kMantissa;
  // As fp32: the smallest normal number, and the number whose last place is the smallest subnormal.
  constexpr uint32_t kNormal = (128 - kBias) << 23, kShift = (128 - kBias + kCut) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= 0x7F800000u) return 0x7F;
  uint32_t rounded;
  if (magnitude < kNormal)
    rounded =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kShift)) -
        kShift;
  else
    rounded = ((magnitude + (1u << (kCut - 1)) - 1 + ((magnitude >> kCut) & 1u)) >> kCut) -
              ((127 - kBias) << kMantissa);
  return static_cast<uint8_t>(sign | (rounded < kLargest ? rounded : kLargest));
}
template <DType kDType>
float fp8_to_float(uint8_t bits) noexcept {
  constexpr uint32_t kMantissa = kDType == DType::e4m3 ? 3 : 2;
  constexpr int kBias = kDType == DType::e4m3 ? 7 : 15;
  constexpr uint32_t kLargest = kDType == DType::e4m3 ? 0x7E : 0x7B;
  const uint32_t magnitude = bits & 0x7Fu, sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  if (magnitude > kLargest)
    return std::bit_cast<float>(
        sign | (kDType == DType::e5m2 && magnitude == 0x7C ? 0x7F800000u : 0x7FC00000u));
  // As if it were fp32 with that many mantissa bits, then the difference of biases as a product.
  const float scaled = std::bit_cast<float>(magnitude << (23 - kMantissa));
  const float value = scaled * std::bit_cast<float>(static_cast<uint32_t>(254 - kBias) << 23);
  return sign != 0 ? -value : value;
}

/// Element i of a host tensor of a float dtype. Slow: the dtype is examined each time.
inline float load(const Tensor& t, int64_t i) noexcept {
  switch (t.dtype) {
    case DType::f32:
      return static_cast<const float*>(t.data)[i];
    case DType::bf16:
      return bf16_to_float(static_cast<const uint16_t*>(t.data)[i]);
    case DType::f16:
      return f16_to_float(static_cast<const uint16_t*>(t.data)[i]);
    case DType::e4m3:
      return fp8_to_float<DType::e4m3>(static_cast<const uint8_t*>(t.data)[i]);
    case DType::e5m2:
      return fp8_to_float<DType::e5m2>(static_cast<const uint8_t*>(t.data)[i]);
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
