// SPDX-License-Identifier: MIT
// CRC-32C: reflected polynomial 0x82f63b78, initial value and final xor all ones (RFC 3720, B.4).
#include "libindexed/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace indexed {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82f63b78u : 0u);
    table[byte] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(uint32_t crc,
                                                        std::span<const std::byte> bytes) noexcept {
  uint64_t state = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto tail = static_cast<uint32_t>(state);
  for (; left > 0; ++at, --left) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*at));
  return ~tail;
}
#endif

}  // namespace

uint32_t crc32c_by_table(uint32_t crc, std::span<const std::byte> bytes) noexcept {
  uint32_t state = ~crc;
  for (const std::byte byte : bytes)
    state = (state >> 8) ^ kTable[(state ^ static_cast<uint32_t>(byte)) & 255];
  return ~state;
}

uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2") != 0;
  if (hardware) return crc32c_sse42(crc, bytes);
#endif
  return crc32c_by_table(crc, bytes);
}

}  // namespace indexed
