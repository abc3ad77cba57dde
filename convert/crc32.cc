// SPDX-License-Identifier: MIT
// crc32.h: four lanes of 16 bytes are folded, 64 bytes at a time, then folded together. zlib sums
// the remaining 16 bytes, which have the same remainder as the folded data, and what follows.
#include "convert/crc32.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TARGET_PCLMUL __attribute__((target("pclmul,sse4.1")))
#endif

namespace convert {
namespace {

uint32_t by_zlib(uint32_t crc, const std::byte* data, size_t size) noexcept {
  return static_cast<uint32_t>(::crc32_z(crc, reinterpret_cast<const Bytef*>(data), size));
}

#if defined(__x86_64__) && defined(__GNUC__)

/// x to the power of `bits` modulo the polynomial, bit-reflected (x^31 lowest), and shifted up by
/// one, because the product of two reflected numbers is one bit lower than the reflected product.
constexpr uint64_t power(int bits) noexcept {
  uint32_t value = 0x80000000U;
  for (int i = 0; i < bits; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
  return uint64_t{value} << 1;
}

/// Folds 16 bytes over a distance of `bytes` bytes; the lower half is 64 bits further from the end.
struct Fold {
  uint64_t low, high;
  constexpr explicit Fold(int bytes) noexcept
      : low(power(8 * bytes + 32)), high(power(8 * bytes - 32)) {}
};
constexpr Fold kFar(64), kNear(16);

TARGET_PCLMUL inline __m128i moved(__m128i value, const Fold& fold) noexcept {
  const __m128i by =
      _mm_set_epi64x(static_cast<int64_t>(fold.high), static_cast<int64_t>(fold.low));
  return _mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x00),
                       _mm_clmulepi64_si128(value, by, 0x11));
}

/// `size` is a multiple of 64 and at least 64.
TARGET_PCLMUL uint32_t by_products(uint32_t crc, const std::byte* data, size_t size) noexcept {
  const auto at = [&](size_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i);
  };
  __m128i lanes[4] = {at(0), at(1), at(2), at(3)};
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(~crc)));
  for (size_t left = size - 64; left > 0; left -= 64) {
    data += 64;
    for (size_t i = 0; i < 4; ++i) lanes[i] = _mm_xor_si128(moved(lanes[i], kFar), at(i));
  }
  for (size_t i = 1; i < 4; ++i) lanes[i] = _mm_xor_si128(moved(lanes[i - 1], kNear), lanes[i]);
  std::byte rest[16];
  std::memcpy(rest, &lanes[3], 16);
  // zlib inverts before and after; ~0 before is a state of 0.
  return by_zlib(~uint32_t{0}, rest, 16);
}

bool has_products() noexcept {
  return __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
}

#endif

}  // namespace

uint32_t crc32(uint32_t crc, std::span<const std::byte> bytes) noexcept {
  const std::byte* data = bytes.data();
  size_t size = bytes.size();
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool products = has_products();
  if (const size_t whole = size / 64 * 64; products && whole > 0) {
    crc = by_products(crc, data, whole);
    data += whole;
    size -= whole;
  }
#endif
  return size == 0 ? crc : by_zlib(crc, data, size);
}

uint32_t crc32_joined(uint32_t crc, uint32_t next, int64_t bytes) noexcept {
  return static_cast<uint32_t>(::crc32_combine(crc, next, static_cast<z_off_t>(bytes)));
}

}  // namespace convert
