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
/// The instruction has a latency of three cycles, and one can start in each: so three parts of this
/// many bytes are processed in parallel.
constexpr size_t kPartBytes = 1024;

/// The effect of kPartBytes zeros on a state with one byte set, for each byte of a state: the state
/// is linear in its bits.
constexpr std::array<std::array<uint32_t, 256>, 4> kSkip = [] {
  std::array<std::array<uint32_t, 256>, 4> skip{};
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t value = uint32_t{1} << bit;
    for (size_t i = 0; i < kPartBytes; ++i) value = (value >> 8) ^ kTable[value & 255];
    skip[bit / 8][size_t{1} << bit % 8] = value;
  }
  for (std::array<uint32_t, 256>& of_byte : skip) {
    for (size_t byte = 1; byte < 256; ++byte) {
      of_byte[byte] = of_byte[byte & (byte - 1)] ^ of_byte[byte & (~byte + 1)];
    }
  }
  return skip;
}();

uint64_t skip_part(uint64_t state) noexcept {
  return kSkip[0][state & 255] ^ kSkip[1][state >> 8 & 255] ^ kSkip[2][state >> 16 & 255] ^
         kSkip[3][state >> 24 & 255];
}

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(uint32_t crc,
                                                        std::span<const std::byte> bytes) noexcept {
  uint64_t state = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  const auto word_at = [](const std::byte* from) {
    uint64_t word;
    std::memcpy(&word, from, 8);
    return word;
  };
  for (; left >= 3 * kPartBytes; at += 3 * kPartBytes, left -= 3 * kPartBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kPartBytes; i += 8) {
      state = _mm_crc32_u64(state, word_at(at + i));
      second = _mm_crc32_u64(second, word_at(at + kPartBytes + i));
      third = _mm_crc32_u64(third, word_at(at + 2 * kPartBytes + i));
    }
    state = skip_part(skip_part(state) ^ second) ^ third;
  }
  for (; left >= 8; at += 8, left -= 8) state = _mm_crc32_u64(state, word_at(at));
  auto tail = static_cast<uint32_t>(state);
  for (; left > 0; ++at, --left) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*at));
  return ~tail;
}
#endif

/// The product of two polynomials modulo that of the checksum; bit 31 is 1, bit 30 is x, ...
constexpr uint32_t multiply(uint32_t a, uint32_t b) noexcept {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    product ^= a & 0x80000000u ? b : 0u;
    b = (b >> 1) ^ (b & 1 ? 0x82f63b78u : 0u);
  }
  return product;
}

/// x to the power of 8, 16, 32, ...: the factor for appending that many bits to a checksum.
constexpr std::array<uint32_t, 60> kPowers = [] {
  std::array<uint32_t, 60> powers{};
  powers[0] = 0x80000000u >> 8;
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = multiply(powers[i - 1], powers[i - 1]);
  return powers;
}();

}  // namespace

uint32_t crc32c_joined(uint32_t crc, uint32_t next, int64_t bytes) noexcept {
  for (size_t i = 0; bytes != 0; ++i, bytes >>= 1) {
    if (bytes & 1) crc = multiply(kPowers[i], crc);
  }
  return crc ^ next;  // the initial and final ones of both cancel each other
}

std::string hex8(uint32_t checksum) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", checksum);
  return digits;
}

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
