// SPDX-License-Identifier: MIT
// float_formats.h: conversion to and from fp32; between two other formats through fp32, in parts
// that fit in a cache. fp32 represents every F16 and BF16 number; F64 is rounded to fp32 first.
#include "convert/float_formats.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "libindexed/format.h"
#include "trainer/ops/cpu/rows.h"

namespace convert {
namespace {

constexpr int64_t kPart = 2048;  // numbers, 8 KiB as fp32

template <class T>
[[gnu::always_inline]] inline T load_as(const std::byte* data, int64_t i) noexcept {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
[[gnu::always_inline]] inline void store_as(std::byte* data, int64_t i, T value) noexcept {
  std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

constexpr uint32_t kInfinity = 0x7f800000, kMagnitude = 0x7fffffff, kQuiet = 0x00400000;

[[gnu::always_inline]] inline uint32_t quieted(uint32_t bits) noexcept {
  return (bits & kMagnitude) > kInfinity ? bits | kQuiet : bits;
}

// --- to fp32 -------------------------------------------------------------------------------------

ROW_CLONES void from_f64(float* out, const std::byte* in, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(load_as<double>(in, i));
}

ROW_CLONES void from_bf16(float* out, const std::byte* in, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i)
    out[i] = std::bit_cast<float>(quieted(uint32_t{load_as<uint16_t>(in, i)} << 16));
}

// Reads the magnitude's bits as fp32, and multiplies to correct the exponent's bias, which is exact
// for subnormal numbers too.
ROW_CLONES void from_f16(float* out, const std::byte* in, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t half = load_as<uint16_t>(in, i);
    const uint32_t magnitude = (half & 0x7fffU) << 13, sign = (half & 0x8000U) << 16;
    const uint32_t number =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F) | sign;
    const uint32_t special = quieted(magnitude | kInfinity | sign);
    out[i] = std::bit_cast<float>(magnitude >= 0x0f800000U ? special : number);
  }
}

// --- from fp32 -----------------------------------------------------------------------------------

ROW_CLONES void to_f64(std::byte* out, const float* in, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) store_as(out, i, static_cast<double>(in[i]));
}

ROW_CLONES void to_bf16(std::byte* out, const float* in, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(in[i]);
    const uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    const uint32_t no_number = bits >> 16 | 0x40U;
    store_as(out, i, static_cast<uint16_t>((bits & kMagnitude) > kInfinity ? no_number : rounded));
  }
}

// Below 2^-14 a number is a multiple of 2^-24: adding 0.5 rounds it to one.
ROW_CLONES void to_f16(std::byte* out, const float* in, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(in[i]);
    const uint32_t magnitude = bits & kMagnitude, sign = bits >> 16 & 0x8000U;
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    const uint32_t normal = (magnitude + 0xfffU + (magnitude >> 13 & 1U) - 0x38000000U) >> 13;
    uint32_t half = magnitude < 0x38800000U ? small : normal;
    half = magnitude >= 0x477ff000U ? 0x7c00U : half;  // 65520 and above
    half = magnitude > kInfinity ? 0x7e00U : half;
    store_as(out, i, static_cast<uint16_t>(sign | half));
  }
}

void to_fp32(std::string_view from, float* out, const std::byte* in, int64_t n) noexcept {
  if (from == "F64") return from_f64(out, in, n);
  if (from == "F16") return from_f16(out, in, n);
  if (from == "BF16") return from_bf16(out, in, n);
  std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
}

void from_fp32(std::string_view to, std::byte* out, const float* in, int64_t n) noexcept {
  if (to == "F64") return to_f64(out, in, n);
  if (to == "F16") return to_f16(out, in, n);
  if (to == "BF16") return to_bf16(out, in, n);
  std::memcpy(out, in, static_cast<size_t>(n) * sizeof(float));
}

int64_t bytes_of(std::string_view dtype) noexcept {
  return dtype == "F64" ? 8 : dtype == "F32" ? 4 : 2;
}

// All bits of the exponent are set: infinite or NaN.
template <class T>
[[gnu::always_inline]] inline int64_t count_set(const std::byte* in, int64_t n,
                                                T exponent) noexcept {
  int64_t found = 0;
  for (int64_t begin = 0; begin < n; begin += kPart) {  // 2048 fit a counter of two bytes
    const int64_t end = std::min(begin + kPart, n);
    T part = 0;
    for (int64_t i = begin; i < end; ++i)
      part = static_cast<T>(part + ((load_as<T>(in, i) & exponent) == exponent ? 1 : 0));
    found += static_cast<int64_t>(part);
  }
  return found;
}

ROW_CLONES int64_t count_16(const std::byte* in, int64_t n, uint16_t exponent) noexcept {
  return count_set<uint16_t>(in, n, exponent);
}
ROW_CLONES int64_t count_32(const std::byte* in, int64_t n) noexcept {
  return count_set<uint32_t>(in, n, kInfinity);
}
ROW_CLONES int64_t count_64(const std::byte* in, int64_t n) noexcept {
  return count_set<uint64_t>(in, n, 0x7ff0000000000000);
}

}  // namespace

bool is_float(std::string_view dtype) noexcept {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

void convert_floats(std::string_view from, const std::byte* in, std::string_view to, std::byte* out,
                    int64_t count) noexcept {
  float part[kPart];
  const int64_t wide = bytes_of(from), narrow = bytes_of(to);
  for (int64_t at = 0; at < count; at += kPart) {
    const int64_t n = std::min(kPart, count - at);
    to_fp32(from, part, in + at * wide, n);
    from_fp32(to, out + at * narrow, part, n);
  }
}

int64_t count_not_finite(std::string_view dtype, std::span<const std::byte> bytes) noexcept {
  if (!is_float(dtype)) return 0;
  const int64_t n = static_cast<int64_t>(bytes.size()) / bytes_of(dtype);
  if (dtype == "F64") return count_64(bytes.data(), n);
  if (dtype == "F32") return count_32(bytes.data(), n);
  return count_16(bytes.data(), n, dtype == "F16" ? 0x7c00 : 0x7f80);
}

std::vector<float> to_floats(std::string_view dtype, const std::byte* data, int64_t count) {
  if (!is_float(dtype)) throw indexed::FormatError("dtype " + std::string(dtype) + " is no float");
  std::vector<float> out(static_cast<size_t>(count));
  convert_floats(dtype, data, "F32", reinterpret_cast<std::byte*>(out.data()), count);
  return out;
}

}  // namespace convert
