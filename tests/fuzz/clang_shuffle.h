// SPDX-License-Identifier: MIT
// GCC's __builtin_shuffle for clang, which has none whose mask is a variable. Slow: it is here only
// so that clang can build the converters and what they link.
#pragma once

template <class V, class M>
inline V __builtin_shuffle(V a, V b, M mask) {
  constexpr int kLanes = static_cast<int>(sizeof(V) / sizeof(a[0]));
  V out = {};
  for (int i = 0; i < kLanes; ++i) out[i] = mask[i] < kLanes ? a[mask[i]] : b[mask[i] - kLanes];
  return out;
}
