// SPDX-License-Identifier: MIT
// MD5 as RFC 1321 describes it: four rounds of sixteen steps over blocks of 64 bytes.
#include "libindexed/md5.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "libindexed/le.h"

namespace indexed {
namespace {

std::array<uint32_t, 64> make_sines() {
  std::array<uint32_t, 64> sines{};
  for (size_t i = 0; i < 64; ++i) {
    sines[i] =
        static_cast<uint32_t>(std::fabs(std::sin(static_cast<double>(i + 1))) * 4294967296.0);
  }
  return sines;
}

void add_block(std::array<uint32_t, 4>& state, const std::byte* block) {
  static const std::array<uint32_t, 64> sines = make_sines();
  constexpr int kTurns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  std::array<Le<uint32_t>, 16> words;
  std::memcpy(words.data(), block, 64);
  auto [a, b, c, d] = state;
  for (size_t i = 0; i < 64; ++i) {
    uint32_t f = 0;
    size_t g = 0;
    switch (i / 16) {
      case 0:
        f = (b & c) | (~b & d), g = i;
        break;
      case 1:
        f = (d & b) | (~d & c), g = (5 * i + 1) % 16;
        break;
      case 2:
        f = b ^ c ^ d, g = (3 * i + 5) % 16;
        break;
      default:
        f = c ^ (b | ~d), g = 7 * i % 16;
        break;
    }
    const uint32_t sum = a + f + sines[i] + words[g];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kTurns[i / 16][i % 4]);
  }
  state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
}

}  // namespace

std::string md5_hex(std::span<const std::byte> bytes) {
  std::array<uint32_t, 4> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  const Le<uint64_t> bits = static_cast<uint64_t>(bytes.size()) * 8;
  while (bytes.size() >= 64) {
    add_block(state, bytes.data());
    bytes = bytes.subspan(64);
  }
  std::array<std::byte, 128> tail{};
  if (!bytes.empty()) std::memcpy(tail.data(), bytes.data(), bytes.size());
  tail[bytes.size()] = std::byte{0x80};
  const size_t blocks = bytes.size() < 56 ? 1 : 2;
  std::memcpy(tail.data() + blocks * 64 - 8, &bits, 8);
  for (size_t i = 0; i < blocks; ++i) add_block(state, tail.data() + 64 * i);
  std::string hex;
  for (const uint32_t word : state) {
    for (int i = 0; i < 8; ++i)
      hex += "0123456789abcdef"[word >> (8 * (i / 2) + (i % 2 ? 0 : 4)) & 15];
  }
  return hex;
}

std::string md5_hex(std::string_view text) { return md5_hex(std::as_bytes(std::span(text))); }

}  // namespace indexed
