// Pairs of wide characters, tested one by one.
// SPDX-License-Identifier: MIT
#include "libtok/joinable_pairs.h"

#include <bit>

namespace tok {

bool JoinablePairs::joins_wide(const uint8_t* second) const noexcept {
  const auto* before = reinterpret_cast<const char*>(second) - 3;
  if (wide_sides.empty() || !is_wide(before)) return true;
  if ((wide_sides[wide_number(before)].left & wide_sides[wide_number(before + 3)].right) == 0) {
    return false;
  }
  // Contexts of two whole characters are by far the most frequent.
  for (size_t i = 3; i > 0; --i) {
    uint32_t left = 0;
    for (size_t k = 0; k < i; ++k) {
      left |= static_cast<uint32_t>(second[-1 - static_cast<ptrdiff_t>(k)]) << (8 * k);
    }
    uint32_t right = static_cast<uint32_t>(second[0] | second[1] << 8 | second[2] << 16);
    for (size_t j = 3; j > 0; right &= 0xFFFFu >> 8 * (3 - j), --j) {
      if (wide_contexts.has({left, i}, {right, j})) return true;
    }
  }
  return false;
}

uint64_t JoinablePairs::wide_cuts(const char* from, uint64_t asked) const noexcept {
  uint64_t cuts = 0;
  for (; asked != 0; asked &= asked - 1) {
    const auto* second = reinterpret_cast<const uint8_t*>(from) + std::countr_zero(asked);
    if (!joins_wide(second)) cuts |= asked & (0 - asked);
  }
  return cuts;
}

}  // namespace tok
