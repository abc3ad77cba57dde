// See lane_sums.h. A lane takes kAtOnce of its rows at a time: so many streams of memory are read
// side by side, and sums are loaded and stored once for all of them. Kernels are one template over
// GCC's vector types, inlined into a function for each instruction set.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/lane_sums.h"

#include <algorithm>

#include "trainer/ops/cpu/vectors.h"

namespace ops::cpu {
namespace {

constexpr int64_t kMostRows = 3, kFewestRowsOfB = 64;
/// Rows of b, of one lane, that are added together.
constexpr int64_t kAtOnce = 4;
/// Columns for which all lanes are added at a time.
constexpr int64_t kTotals = 64;

template <class T>
const MatrixOf<T>& right_of(const Product& p);
template <>
const Matrix& right_of<float>(const Product& p) {
  return p.b;
}
template <>
const Bf16Matrix& right_of<uint16_t>(const Product& p) {
  return p.b_bf16;
}

/// What one call sums: lanes begin .. end - 1 of these columns. `sums` is (m, lanes, n).
struct Strip {
  const Product& p;
  float* sums;
  int64_t begin, end, first, columns;
};

/// sums += a's numbers times kCount rows of b, kWidth rows apart, from row k on.
template <int kWidth, int kRows, int kCount, class T>
[[gnu::always_inline]] inline void add_rows(const Strip& s, int64_t k) noexcept {
  using V = typename Vector<kWidth>::type;
  const MatrixOf<T>& of = right_of<T>(s.p);
  const T* const b = of.data + k * of.row + s.first;
  const int64_t apart = kWidth * of.row, whole = s.columns / kWidth * kWidth;
  float* const lane = s.sums + k % kWidth * s.p.n + s.first;
  const float* const a = s.p.a.data + k;
  for (int64_t j = 0; j < whole; j += kWidth) {
    V y[kCount];
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) load<kWidth>(y[i], b + i * apart + j);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      V& sum = *reinterpret_cast<V*>(lane + r * kWidth * s.p.n + j);
      V total = sum;
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) total += a[r * s.p.a.row + i * kWidth] * y[i];
      sum = total;
    }
  }
  if (whole == s.columns) return;
  for (int r = 0; r < kRows; ++r) {
    float* const sum = lane + r * kWidth * s.p.n + whole;
    for (int i = 0; i < kCount; ++i) {
      V x, y;
      load_part<kWidth>(x, sum, s.columns - whole);
      load_part<kWidth>(y, b + i * apart + whole, s.columns - whole);
      x += a[r * s.p.a.row + i * kWidth] * y;
      for (int64_t j = 0; j < s.columns - whole; ++j) sum[j] = x[j];
    }
  }
}

template <int kWidth, int kRows, class T>
[[gnu::always_inline]] inline void sum_lanes(const Strip& s) noexcept {
  constexpr int64_t kBlock = kAtOnce * kWidth;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t lane = s.begin; lane < s.end; ++lane)
      std::fill_n(s.sums + (r * kWidth + lane) * s.p.n + s.first, s.columns, 0.0f);
  const int64_t whole = s.p.k / kBlock * kBlock;
  for (int64_t k = 0; k < whole; k += kBlock)
    for (int64_t lane = s.begin; lane < s.end; ++lane)
      add_rows<kWidth, kRows, kAtOnce, T>(s, k + lane);
  for (int64_t k = whole; k < s.p.k; k += kWidth)
    for (int64_t lane = s.begin; lane < std::min(s.end, s.p.k - k); ++lane)
      add_rows<kWidth, kRows, 1, T>(s, k + lane);
}

/// What one instruction set does: kernels by the number of rows of c.
struct Level {
  int64_t lanes;
  void (*sum[kMostRows + 1])(const Strip&) noexcept;
  void (*sum_bf16[kMostRows + 1])(const Strip&) noexcept;
};

struct Avx512 {
  static constexpr int kWidth = 16;
  template <int kRows, class T>
  TARGET_AVX512 static void sum(const Strip& s) noexcept {
    sum_lanes<kWidth, kRows, T>(s);
  }
};
struct Avx2 {
  static constexpr int kWidth = 8;
  template <int kRows, class T>
  TARGET_AVX2 static void sum(const Strip& s) noexcept {
    sum_lanes<kWidth, kRows, T>(s);
  }
};
struct Plain {
  static constexpr int kWidth = 4;
  template <int kRows, class T>
  static void sum(const Strip& s) noexcept {
    sum_lanes<kWidth, kRows, T>(s);
  }
};

template <class Set>
constexpr Level kLevel = {Set::kWidth,
                          {nullptr, Set::template sum<1, float>, Set::template sum<2, float>,
                           Set::template sum<3, float>},
                          {nullptr, Set::template sum<1, uint16_t>, Set::template sum<2, uint16_t>,
                           Set::template sum<3, uint16_t>}};

constexpr Level kLevels[] = {kLevel<Plain>, kLevel<Avx2>, kLevel<Avx512>};

const Level& at(GemmLevel level) { return kLevels[static_cast<int>(level)]; }

template <class T>
bool has_long_rows(const MatrixOf<T>& b) {
  return b.column == 1 && b.row > 1;
}

}  // namespace

bool LaneSums::takes(const Product& p) noexcept {
  return p.m > 0 && p.m <= kMostRows && p.n >= kFewestColumns && p.k >= kFewestRowsOfB &&
         p.a.column == 1 &&
         (p.b_bf16.data != nullptr ? has_long_rows(p.b_bf16) : has_long_rows(p.b));
}

int64_t LaneSums::bytes(const Product& p) noexcept {
  constexpr int64_t kMostLanes = 16;
  return p.m * kMostLanes * p.n * static_cast<int64_t>(sizeof(float)) + 64;
}

LaneSums::LaneSums(const Product& product, std::byte* memory, GemmLevel level) noexcept
    : product_(product), level_(level) {
  const uintptr_t line = (reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64;
  sums_ = reinterpret_cast<float*>(line);
}

void LaneSums::sum(int64_t group, int64_t first, int64_t columns) const noexcept {
  const Level& level = at(level_);
  const int64_t lanes = level.lanes / kGroups;
  const bool narrow = product_.b_bf16.data != nullptr;
  (narrow ? level.sum_bf16 : level.sum)[product_.m](
      {product_, sums_, group * lanes, (group + 1) * lanes, first, columns});
}

void LaneSums::finish(int64_t first, int64_t columns) const noexcept {
  const Product& p = product_;
  const int64_t lanes = at(level_).lanes;
  for (int64_t r = 0; r < p.m; ++r)
    for (int64_t j = first; j < first + columns; j += kTotals) {
      const int64_t width = std::min(kTotals, first + columns - j);
      float totals[kTotals] = {};
      for (int64_t lane = 0; lane < lanes; ++lane)
        for (int64_t i = 0; i < width; ++i) totals[i] += sums_[(r * lanes + lane) * p.n + j + i];
      for (int64_t i = 0; i < width; ++i) cpu::finish(p, totals[i], p.c[r * p.c_row + j + i]);
    }
}

}  // namespace ops::cpu
