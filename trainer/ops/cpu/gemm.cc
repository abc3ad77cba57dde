// See gemm.h. A panel of b, kDepth rows of some columns, is packed into 32 KiB that stay in the
// first-level cache while a kernel goes through the rows of a; sums stay in registers over the
// depth of a panel. a is read in place, or packed where its rows are not contiguous. Kernels are
// one template over GCC's vector types, inlined into a function for each instruction set.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer/ops/cpu/vectors.h"

namespace ops::cpu {
namespace {

constexpr int64_t kDepth = 256;
constexpr int64_t kBlockRows = 384;
constexpr int kMaxRows = 12, kMaxColumns = 32;
/// With at most this many rows, b is used too rarely for packing to pay.
constexpr int64_t kFewRows = 3;
/// Columns whose sums stay in the first-level cache, by the number of rows.
constexpr int64_t kStripColumns[kFewRows + 1] = {0, 256, 128, 128};

/// A tile of c, at most as large as a kernel's, over one panel of b.
struct Step {
  int64_t depth;
  const float* a;
  int64_t a_row;
  const float* b;  ///< Packed.
  float* c;
  int64_t c_row;
  float alpha;
  bool add;
};

template <int kWidth>
[[gnu::always_inline]] inline void store(const Step& t, float* c,
                                         const typename Vector<kWidth>::type& sum) noexcept {
  using V = typename Vector<kWidth>::type;
  V& out = *reinterpret_cast<V*>(c);
  out = t.add ? out + t.alpha * sum : t.alpha * sum;
}

/// kRows by two vectors of c. a is packed (kHeight rows), or its rows are a_row apart (kHeight 0).
template <int kWidth, int kRows, int kHeight>
[[gnu::always_inline]] inline void tile(const Step& t) noexcept {
  using V = typename Vector<kWidth>::type;
  V sum[kRows][2] = {};
  const int64_t row = kHeight > 0 ? 1 : t.a_row;
  // Three rows per address register: base, base + row, base + 2 * row.
  const float* a[(kRows + 2) / 3];
  for (int i = 0; i < (kRows + 2) / 3; ++i) a[i] = t.a + 3 * i * row;
  const float* b = t.b;
  int64_t at = 0;
  for (int64_t k = 0; k < t.depth; ++k) {
    const V b0 = *reinterpret_cast<const V*>(b), b1 = *reinterpret_cast<const V*>(b + kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float x = a[r / 3][r % 3 * row + at];
      sum[r][0] += x * b0;
      sum[r][1] += x * b1;
    }
    b += 2 * kWidth;
    at += kHeight > 0 ? kHeight : 1;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    store<kWidth>(t, t.c + r * t.c_row, sum[r][0]);
    store<kWidth>(t, t.c + r * t.c_row + kWidth, sum[r][1]);
  }
}

/// c (kRows, kColumns) where rows of a and columns of b are contiguous, b_column apart: sums in
/// lanes along k, which are added at the end. b is read once, from memory as a rule.
template <int kWidth, int kRows, class T>
[[gnu::always_inline]] inline void dots(const Product& p, const MatrixOf<T>& of,
                                        int64_t first_column) noexcept {
  using V = typename Vector<kWidth>::type;
  constexpr int kColumns = 4;
  const T* b[kColumns];
  for (int64_t j = 0; j < kColumns; ++j)
    b[j] = of.data + std::min(first_column + j, p.n - 1) * of.column;
  V sum[kRows][kColumns] = {};
  int64_t k = 0;
  for (; k + kWidth <= p.k; k += kWidth) {
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      V y;
      load<kWidth>(y, b[j] + k);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        sum[r][j] += *reinterpret_cast<const V*>(p.a.data + r * p.a.row + k) * y;
    }
  }
  // The rest, with zeros up to a whole vector: one order of adding for every type of b, whatever
  // the compiler makes of a loop over single numbers.
  if (k < p.k) {
    V x[kRows], y[kColumns];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) load_part<kWidth>(x[r], p.a.data + r * p.a.row + k, p.k - k);
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      load_part<kWidth>(y[j], b[j] + k, p.k - k);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r][j] += x[r] * y[j];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kColumns && first_column + j < p.n; ++j) {
      float total = 0;
      for (int lane = 0; lane < kWidth; ++lane) total += sum[r][j][lane];
      finish(p, total, p.c[r * p.c_row + first_column + j]);
    }
}

/// How many rows of b are fetched ahead of the one that is multiplied.
constexpr int64_t kRowsAhead = 16;

/// The same for `columns` columns where rows of b are contiguous, also read once: kWidth rows of
/// sums, of which row k % kWidth takes row k of b. So each element is summed as dots() does it.
template <int kWidth, int kRows, class T>
[[gnu::always_inline]] inline void strip(const Product& p, const MatrixOf<T>& of,
                                         int64_t first_column, int64_t columns) noexcept {
  using V = typename Vector<kWidth>::type;
  constexpr int64_t kLine = 64 / sizeof(T), kColumns = kStripColumns[kRows];
  alignas(64) float sums[kRows][kWidth][kColumns];
  const int64_t whole = columns / kWidth * kWidth;
  const int64_t padded = (columns + kWidth - 1) / kWidth * kWidth;
  for (int r = 0; r < kRows; ++r)
    for (int lane = 0; lane < kWidth; ++lane) std::fill_n(sums[r][lane], padded, 0.0f);
  for (int64_t k = 0; k < p.k; ++k) {
    const T* b = of.data + k * of.row + first_column;
    for (int64_t j = 0; j < columns; j += kLine) __builtin_prefetch(b + kRowsAhead * of.row + j);
    const auto add = [&](int64_t j, const V& y) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        *reinterpret_cast<V*>(sums[r][k % kWidth] + j) += p.a.data[r * p.a.row + k] * y;
    };
    V y;
    for (int64_t j = 0; j < whole; j += kWidth) {
      load<kWidth>(y, b + j);
      add(j, y);
    }
    if (whole == columns) continue;
    load_part<kWidth>(y, b + whole, columns - whole);
    add(whole, y);
  }
  for (int r = 0; r < kRows; ++r) {
    float* const totals = sums[r][0];
    for (int64_t j = 0; j < padded; j += kWidth) {
      V total = {};
      for (int lane = 0; lane < kWidth; ++lane)
        total += *reinterpret_cast<const V*>(sums[r][lane] + j);
      *reinterpret_cast<V*>(totals + j) = total;
    }
    float* const c = p.c + r * p.c_row + first_column;
    for (int64_t j = 0; j < columns; ++j) finish(p, totals[j], c[j]);
  }
}

/// out[j] = a[j] where bit kStep of j is not set, else b[j - kStep]; with kUpper, a[j + kStep]
/// where it is not set, else b[j].
template <int kWidth, int kStep, bool kUpper, int... kLane>
[[gnu::always_inline]] inline void merge(typename Vector<kWidth>::type& out,
                                         const typename Vector<kWidth>::type& a,
                                         const typename Vector<kWidth>::type& b,
                                         std::integer_sequence<int, kLane...>) {
  constexpr int kUnset = kUpper ? kStep : 0;
  out = __builtin_shufflevector(
      a, b, ((kLane & kStep) == 0 ? kLane + kUnset : kLane + kUnset - kStep + kWidth)...);
}

/// Exchanges blocks of kStep lanes between rows that are kStep apart: all steps transpose.
template <int kWidth, int kStep>
[[gnu::always_inline]] inline void exchange(typename Vector<kWidth>::type (&rows)[kWidth]) {
  using V = typename Vector<kWidth>::type;
  constexpr std::make_integer_sequence<int, kWidth> kLanes;
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    if ((i & kStep) != 0) continue;
    const V upper = rows[i], lower = rows[i + kStep];
    merge<kWidth, kStep, false>(rows[i], upper, lower, kLanes);
    merge<kWidth, kStep, true>(rows[i + kStep], upper, lower, kLanes);
  }
  if constexpr (2 * kStep < kWidth) exchange<kWidth, 2 * kStep>(rows);
}

/// out[k * 2 * kWidth + j] = in[j * stride + k], for `columns` j and `depth` k.
template <int kWidth, class T>
[[gnu::always_inline]] inline void transpose(float* out, const T* in, int64_t stride,
                                             int64_t columns, int64_t depth) noexcept {
  using V = typename Vector<kWidth>::type;
  constexpr int64_t kOut = 2 * kWidth;
  const int64_t whole_depth = depth / kWidth * kWidth;
  const int64_t whole_columns = columns / kWidth * kWidth;
  for (int64_t j = 0; j < whole_columns; j += kWidth) {
    for (int64_t k = 0; k < whole_depth; k += kWidth) {
      V rows[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) load<kWidth>(rows[i], in + (j + i) * stride + k);
      exchange<kWidth, 1>(rows);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) *reinterpret_cast<V*>(out + (k + i) * kOut + j) = rows[i];
    }
  }
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t k = j < whole_columns ? whole_depth : 0; k < depth; ++k)
      out[k * kOut + j] = widened(in[j * stride + k]);
}

/// Packs `depth` lines of kCount floats, `stride` apart, one after another.
template <int kCount>
void copy_lines(float* out, const float* in, int64_t stride, int64_t depth) noexcept {
  for (int64_t k = 0; k < depth; ++k)
    std::memcpy(out + k * kCount, in + k * stride, kCount * sizeof(float));
}

/// What one instruction set does; kernels by the number of rows of c.
struct Level {
  const char* name;
  int64_t rows, columns;
  void (*direct[kMaxRows + 1])(const Step&) noexcept;
  void (*packed[kMaxRows + 1])(const Step&) noexcept;
  void (*transpose)(float*, const float*, int64_t, int64_t, int64_t) noexcept;
  void (*transpose_bf16)(float*, const uint16_t*, int64_t, int64_t, int64_t) noexcept;
  void (*dots[kFewRows + 1])(const Product&, int64_t) noexcept;
  void (*dots_bf16[kFewRows + 1])(const Product&, int64_t) noexcept;
  void (*strip[kFewRows + 1])(const Product&, int64_t, int64_t) noexcept;
  void (*strip_bf16[kFewRows + 1])(const Product&, int64_t, int64_t) noexcept;
  void (*copy_rows)(float*, const float*, int64_t, int64_t) noexcept;
  void (*copy_columns)(float*, const float*, int64_t, int64_t) noexcept;
};

// The templates above, inlined into functions that may use an instruction set's vectors.
struct Avx512 {
  static constexpr const char* kName = "avx512";
  static constexpr int kWidth = 16, kHeight = 12;
  template <int kRows, int kPacked>
  TARGET_AVX512 static void step(const Step& t) noexcept {
    tile<kWidth, kRows, kPacked>(t);
  }
  template <int kRows>
  TARGET_AVX512 static void along(const Product& p, int64_t first_column) noexcept {
    dots<kWidth, kRows>(p, p.b, first_column);
  }
  template <int kRows>
  TARGET_AVX512 static void along_bf16(const Product& p, int64_t first_column) noexcept {
    dots<kWidth, kRows>(p, p.b_bf16, first_column);
  }
  template <int kRows>
  TARGET_AVX512 static void across(const Product& p, int64_t first, int64_t columns) noexcept {
    strip<kWidth, kRows>(p, p.b, first, columns);
  }
  template <int kRows>
  TARGET_AVX512 static void across_bf16(const Product& p, int64_t first, int64_t columns) noexcept {
    strip<kWidth, kRows>(p, p.b_bf16, first, columns);
  }
  TARGET_AVX512 static void turn(float* out, const float* in, int64_t stride, int64_t columns,
                                 int64_t depth) noexcept {
    transpose<kWidth>(out, in, stride, columns, depth);
  }
  TARGET_AVX512 static void turn_bf16(float* out, const uint16_t* in, int64_t stride,
                                      int64_t columns, int64_t depth) noexcept {
    transpose<kWidth>(out, in, stride, columns, depth);
  }
};

struct Avx2 {
  static constexpr const char* kName = "avx2";
  static constexpr int kWidth = 8, kHeight = 6;
  template <int kRows, int kPacked>
  TARGET_AVX2 static void step(const Step& t) noexcept {
    tile<kWidth, kRows, kPacked>(t);
  }
  template <int kRows>
  TARGET_AVX2 static void along(const Product& p, int64_t first_column) noexcept {
    dots<kWidth, kRows>(p, p.b, first_column);
  }
  template <int kRows>
  TARGET_AVX2 static void along_bf16(const Product& p, int64_t first_column) noexcept {
    dots<kWidth, kRows>(p, p.b_bf16, first_column);
  }
  template <int kRows>
  TARGET_AVX2 static void across(const Product& p, int64_t first, int64_t columns) noexcept {
    strip<kWidth, kRows>(p, p.b, first, columns);
  }
  template <int kRows>
  TARGET_AVX2 static void across_bf16(const Product& p, int64_t first, int64_t columns) noexcept {
    strip<kWidth, kRows>(p, p.b_bf16, first, columns);
  }
  TARGET_AVX2 static void turn(float* out, const float* in, int64_t stride, int64_t columns,
                               int64_t depth) noexcept {
    transpose<kWidth>(out, in, stride, columns, depth);
  }
  TARGET_AVX2 static void turn_bf16(float* out, const uint16_t* in, int64_t stride, int64_t columns,
                                    int64_t depth) noexcept {
    transpose<kWidth>(out, in, stride, columns, depth);
  }
};

struct Plain {
  static constexpr const char* kName = "plain";
  static constexpr int kWidth = 4, kHeight = 6;
  template <int kRows, int kPacked>
  static void step(const Step& t) noexcept {
    tile<kWidth, kRows, kPacked>(t);
  }
  template <int kRows>
  static void along(const Product& p, int64_t first_column) noexcept {
    dots<kWidth, kRows>(p, p.b, first_column);
  }
  template <int kRows>
  static void along_bf16(const Product& p, int64_t first_column) noexcept {
    dots<kWidth, kRows>(p, p.b_bf16, first_column);
  }
  template <int kRows>
  static void across(const Product& p, int64_t first, int64_t columns) noexcept {
    strip<kWidth, kRows>(p, p.b, first, columns);
  }
  template <int kRows>
  static void across_bf16(const Product& p, int64_t first, int64_t columns) noexcept {
    strip<kWidth, kRows>(p, p.b_bf16, first, columns);
  }
  static void turn(float* out, const float* in, int64_t stride, int64_t columns,
                   int64_t depth) noexcept {
    transpose<kWidth>(out, in, stride, columns, depth);
  }
  static void turn_bf16(float* out, const uint16_t* in, int64_t stride, int64_t columns,
                        int64_t depth) noexcept {
    transpose<kWidth>(out, in, stride, columns, depth);
  }
};

template <class Set, int... kRow>
constexpr Level level_of(std::integer_sequence<int, kRow...>) {
  return {Set::kName,
          Set::kHeight,
          2 * Set::kWidth,
          {nullptr, Set::template step<kRow + 1, 0>...},
          {nullptr, Set::template step<kRow + 1, Set::kHeight>...},
          Set::turn,
          Set::turn_bf16,
          {nullptr, Set::template along<1>, Set::template along<2>, Set::template along<3>},
          {nullptr, Set::template along_bf16<1>, Set::template along_bf16<2>,
           Set::template along_bf16<3>},
          {nullptr, Set::template across<1>, Set::template across<2>, Set::template across<3>},
          {nullptr, Set::template across_bf16<1>, Set::template across_bf16<2>,
           Set::template across_bf16<3>},
          copy_lines<Set::kHeight>,
          copy_lines<2 * Set::kWidth>};
}
template <class Set>
constexpr Level kLevel = level_of<Set>(std::make_integer_sequence<int, Set::kHeight>());

constexpr Level kLevels[] = {kLevel<Plain>, kLevel<Avx2>, kLevel<Avx512>};

GemmLevel find_level() noexcept {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    return GemmLevel::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return GemmLevel::avx2;
#endif
  return GemmLevel::plain;
}

void copy_rows(float* to, int64_t to_row, const float* from, int64_t from_row, int64_t rows,
               int64_t columns) noexcept {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_row, columns, to + r * to_row);
}

void pack_columns(const Level& l, float* out, const Bf16Matrix& b, int64_t columns,
                  int64_t depth) noexcept {
  if (columns < l.columns) std::fill_n(out, depth * l.columns, 0.0f);
  if (b.column != 1) return l.transpose_bf16(out, b.data, b.column, columns, depth);
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) out[k * l.columns + j] = widened(b.data[k * b.row + j]);
}

/// depth rows of `columns` columns of b behind one another, with zeros up to the kernel's width.
void pack_columns(const Level& l, float* out, const Matrix& b, int64_t columns,
                  int64_t depth) noexcept {
  if (columns < l.columns) std::fill_n(out, depth * l.columns, 0.0f);
  if (b.column != 1) return l.transpose(out, b.data, b.column, columns, depth);
  if (columns == l.columns) return l.copy_columns(out, b.data, b.row, depth);
  copy_rows(out, l.columns, b.data, b.row, depth, columns);
}

/// Packs a where its columns are contiguous and its rows are not: kernel by kernel, the rows of one
/// kernel with `depth` columns each.
void pack_rows(const Level& l, float* out, const Matrix& a, int64_t rows, int64_t depth) noexcept {
  for (int64_t row = 0; row < rows; row += l.rows, out += l.rows * depth) {
    if (rows - row >= l.rows)
      l.copy_rows(out, a.data + row, a.column, depth);
    else
      copy_rows(out, l.rows, a.data + row, a.column, depth, rows - row);
  }
}

/// Rows of c, at most kBlockRows of them, over k from `from`.
void block(const Level& l, const Product& p, int64_t from) noexcept {
  alignas(64) float rows_of_a[kDepth * kBlockRows];
  alignas(64) float packed[kDepth * kMaxColumns];
  alignas(64) float edge[kMaxRows * kMaxColumns];
  const int64_t depth = std::min(kDepth, p.k - from);
  const bool packs = p.a.column != 1, add = p.add || from > 0;
  if (packs) pack_rows(l, rows_of_a, p.a.from(0, from), p.m, depth);
  for (int64_t column = 0; column < p.n; column += l.columns) {
    const int64_t columns = std::min(l.columns, p.n - column);
    const bool whole = columns == l.columns;
    if (p.b_bf16.data != nullptr)
      pack_columns(l, packed, p.b_bf16.from(from, column), columns, depth);
    else
      pack_columns(l, packed, p.b.from(from, column), columns, depth);
    for (int64_t row = 0; row < p.m; row += l.rows) {
      const int64_t rows = std::min(l.rows, p.m - row);
      float* c = p.c + row * p.c_row + column;
      if (!whole && add) copy_rows(edge, l.columns, c, p.c_row, rows, columns);
      (packs ? l.packed
             : l.direct)[rows]({.depth = depth,
                                .a = packs ? rows_of_a + row * depth : p.a.from(row, from).data,
                                .a_row = p.a.row,
                                .b = packed,
                                .c = whole ? c : edge,
                                .c_row = whole ? p.c_row : l.columns,
                                .alpha = p.alpha,
                                .add = add});
      if (!whole) copy_rows(c, p.c_row, edge, l.columns, rows, columns);
    }
  }
}

}  // namespace

GemmLevel best_gemm_level() noexcept {
  static const GemmLevel best = find_level();
  return best;
}

const char* name(GemmLevel level) noexcept { return kLevels[static_cast<int>(level)].name; }

void multiply(const Product& p, GemmLevel level) noexcept {
  const Level& l = kLevels[static_cast<int>(level)];
  const bool narrow = p.b_bf16.data != nullptr;
  if (p.m > 0 && p.m <= kFewRows && p.a.column == 1 && (narrow ? p.b_bf16.row : p.b.row) == 1) {
    for (int64_t column = 0; column < p.n; column += 4)
      (narrow ? l.dots_bf16 : l.dots)[p.m](p, column);
    return;
  }
  if (p.m > 0 && p.m <= kFewRows && p.a.column == 1) {
    const int64_t step = kStripColumns[p.m];
    for (int64_t column = 0; column < p.n; column += step)
      (narrow ? l.strip_bf16 : l.strip)[p.m](p, column, std::min(step, p.n - column));
    return;
  }
  for (int64_t row = 0; row < p.m; row += kBlockRows) {
    const Product rows = part_of(p, {row, std::min(kBlockRows, p.m - row), 0, p.n});
    int64_t from = 0;  // runs once even when k is 0: an empty sum is 0
    do block(l, rows, from);
    while ((from += kDepth) < p.k);
  }
}

Product part_of(const Product& p, const Part& part) noexcept {
  Product out = p;
  out.m = part.rows;
  out.n = part.columns;
  out.a = p.a.from(part.row, 0);
  if (p.b_bf16.data != nullptr)
    out.b_bf16 = p.b_bf16.from(0, part.column);
  else
    out.b = p.b.from(0, part.column);
  out.c = p.c + part.row * p.c_row + part.column;
  return out;
}

Parts::Parts(int64_t m, int64_t n) noexcept : m_(m), n_(n) {
  constexpr int64_t kWide = 512, kNarrow = 128, kEnough = 8;
  const int64_t bands = std::max<int64_t>(1, (m + kBlockRows - 1) / kBlockRows);
  rows_ = std::max<int64_t>(1, ((m + bands - 1) / bands + kMaxRows - 1) / kMaxRows * kMaxRows);
  columns_ = bands * (n / kWide) >= kEnough ? kWide : kNarrow;
  // The last band also gets the remaining rows where they are too few to be summed as the others
  // are.
  down_ = (std::max(m - kFewRows, std::min<int64_t>(m, 1)) + rows_ - 1) / rows_;
}

Part Parts::at(int64_t i) const noexcept {
  const int64_t row = i / across() * rows_, column = i % across() * columns_;
  const bool last = i / across() + 1 == down_;
  return {row, last ? m_ - row : rows_, column, std::min(columns_, n_ - column)};
}

}  // namespace ops::cpu
