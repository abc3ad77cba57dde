// SPDX-License-Identifier: MIT
// GCC's __builtin_shuffle for clang, which has none with a mask that is a variable: slow, and only
// there so that what the converters link can be built for libFuzzer. No fuzz target calls it.
#pragma once

template <class V, class M>
inline V __builtin_shuffle(V a, V b, M mask) {
  constexpr int kLanes = static_cast<int>(sizeof(V) / sizeof(a[0]));
  V out = {};
  for (int i = 0; i < kLanes; ++i) out[i] = mask[i] < kLanes ? a[mask[i]] : b[mask[i] - kLanes];
  return out;
}
