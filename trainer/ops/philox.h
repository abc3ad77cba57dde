// Philox4x32-10: random numbers as a function of position, for Dropout, NormalFill and stochastic
// rounding. Not here: which counters and keys each operation uses (their headers).
// May include: the C++ library. constexpr so that device code can compile it too. Source: Salmon,
// Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace ops {

/// Four 32-bit words: a counter, or the random words drawn for it.
struct Philox4 {
  uint32_t x, y, z, w;
};

/// Ten rounds over `counter` under the key {key0, key1}.
constexpr Philox4 philox(Philox4 counter, uint32_t key0, uint32_t key1) noexcept {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter.x;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter.z;
    counter =
        Philox4{static_cast<uint32_t>(p1 >> 32) ^ counter.y ^ key0, static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ counter.w ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// 16-bit lanes below this are dropped: round(p * 65536).
constexpr uint32_t dropout_threshold(float p) noexcept {
  return static_cast<uint32_t>(p * 65536.0f + 0.5f);
}
/// What kept elements are multiplied by.
constexpr float dropout_scale(float p) noexcept {
  return 65536.0f / static_cast<float>(65536u - dropout_threshold(p));
}
/// Lane i (0..7) of a Philox result.
constexpr uint32_t lane16(const Philox4& words, int i) noexcept {
  const uint32_t word = i < 4 ? (i < 2 ? words.x : words.y) : (i < 6 ? words.z : words.w);
  return (i & 1) ? word >> 16 : word & 0xFFFFu;
}

}  // namespace ops
