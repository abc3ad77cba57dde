// See amx_gemm.h. Two panels of rows by 32 columns of c are four tiles of sums. A block of b,
// kDepth deep, is packed into pairs of k, as tiles read it, and stays in the second-level cache
// with the sums; two panels of rows stay in the nearest one while all its columns pass by. The
// instructions are inline assembly, because GCC's functions for them do not say that they read
// memory.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/amx_gemm.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define TARGET_AVX512 __attribute__((target("avx512f,avx512vl,avx512bw")))
#endif

namespace ops::cpu {
namespace {

constexpr int64_t kParts = 3;
constexpr int64_t kDepth = SplitRows::kDepth;
constexpr int64_t kStep = 32;                             ///< k of one tile.
constexpr int64_t kTile = SplitRows::kPanelRows * kStep;  ///< bf16 numbers of one.
constexpr int64_t kColumns = 32;                          ///< Of two tiles.

constexpr int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

int64_t SplitRows::bytes(int64_t m, int64_t k) noexcept {
  return kParts * 2 * rounded_up(m, kPanelRows) * rounded_up(k, kStep) + 64;
}

SplitRows::SplitRows(const Matrix& a, int64_t m, int64_t k, std::byte* memory) noexcept
    : a_(a), m_(m), k_(k) {
  const uintptr_t line = (reinterpret_cast<uintptr_t>(memory) + 63) / 64 * 64;
  packed_ = reinterpret_cast<uint16_t*>(line);
}

// Blocks of kDepth numbers k, one after another, have all panels; a panel has its steps, and a step
// its parts.
uint16_t* SplitRows::panel_at(int64_t from, int64_t panel) const noexcept {
  const int64_t depth = rounded_up(std::min(kDepth, k_ - from), kStep);
  return packed_ + kParts * kPanelRows * (from * panels() + depth * panel);
}

bool takes_amx(const Product& p) noexcept {
  constexpr int64_t kFewRows = 3;
  return p.b_bf16.data != nullptr && p.m > kFewRows && p.k > 0 && p.a.column == 1 && p.alpha == 1 &&
         has_amx();
}

#if defined(__x86_64__) && defined(__GNUC__)
namespace {

/// What LDTILECFG reads: bytes of a row and rows of each tile.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);

/// This thread's tile registers, while it lives.
struct Tiles {
  Tiles() noexcept {
    const TileShapes shapes;
    asm volatile("ldtilecfg %0" ::"m"(shapes));
  }
  ~Tiles() { asm volatile("tilerelease"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

template <int kIndex>
[[gnu::always_inline]] inline void load_tile(const void* from, int64_t row_bytes) noexcept {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kIndex) : "memory");
}
template <int kIndex>
[[gnu::always_inline]] inline void store_tile(void* to, int64_t row_bytes) noexcept {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(kIndex) : "memory");
}
template <int kIndex>
[[gnu::always_inline]] inline void zero_tile() noexcept {
  asm volatile("tilezero %%tmm%c0" ::"i"(kIndex));
}
/// Tile kSum += tile kA times tile kB.
template <int kSum, int kA, int kB>
[[gnu::always_inline]] inline void multiply_tiles() noexcept {
  asm volatile("tdpbf16ps %%tmm%c0, %%tmm%c1, %%tmm%c2" ::"i"(kB), "i"(kA), "i"(kSum));
}

/// Sums of a tile's rows and columns, whose rows are `row` apart.
struct Sums {
  float* data;
  int64_t row;
};

/// sums (16 kPanels, 32), plus what they hold where `add`. Tiles 0 to 3 have them.
template <int kPanels>
void tile(const uint16_t* a, const uint16_t* next, const uint16_t* b, int64_t depth, const Sums& to,
          bool add) noexcept {
  constexpr int64_t kLine = 64;
  const int64_t row_bytes = to.row * static_cast<int64_t>(sizeof(float));
  float* const sums = to.data;
  float* const right = sums + kColumns / 2;
  float* const below = sums + SplitRows::kPanelRows * to.row;
  float* const diagonal = below + kColumns / 2;
  if (add) {
    load_tile<0>(sums, row_bytes);
    load_tile<1>(right, row_bytes);
    if (kPanels == 2) load_tile<2>(below, row_bytes);
    if (kPanels == 2) load_tile<3>(diagonal, row_bytes);
  } else {
    zero_tile<0>();
    zero_tile<1>();
    if (kPanels == 2) zero_tile<2>();
    if (kPanels == 2) zero_tile<3>();
  }
  for (int64_t k = 0; k < depth; k += kStep) {
    load_tile<6>(b, kLine);
    load_tile<7>(b + kTile, kLine);
    b += 2 * kTile;
    for (int64_t part = 0; part < kParts; ++part) {
      load_tile<4>(a, kLine);
      multiply_tiles<0, 4, 6>();
      multiply_tiles<1, 4, 7>();
      a += kTile;
      if (kPanels == 1) continue;
      load_tile<5>(next, kLine);
      multiply_tiles<2, 5, 6>();
      multiply_tiles<3, 5, 7>();
      next += kTile;
    }
  }
  store_tile<0>(sums, row_bytes);
  store_tile<1>(right, row_bytes);
  if (kPanels == 2) store_tile<2>(below, row_bytes);
  if (kPanels == 2) store_tile<3>(diagonal, row_bytes);
}

/// The first `count` of some lanes.
constexpr uint32_t first_lanes(int64_t count, int64_t lanes) {
  const int64_t n = std::clamp<int64_t>(count, 0, lanes);
  return n == 32 ? ~uint32_t{0} : (uint32_t{1} << n) - 1;
}

/// Packs b (depth, columns) where its rows are contiguous: two of them become pairs. Columns are
/// packed 32 at a time, kDepth * 32 numbers apart.
TARGET_AVX512 void pack_rows(uint16_t* out, const Bf16Matrix& b, int64_t columns,
                             int64_t depth) noexcept {
  constexpr int64_t kAhead = 16;  // Each row is on another page.
  const __m512i lower = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i upper = _mm512_add_epi16(lower, _mm512_set1_epi16(16));
  for (int64_t k = 0; k < rounded_up(depth, kStep); k += 2) {
    for (int64_t column = 0; column < columns; column += kColumns) {
      const uint16_t* row = b.data + k * b.row + column;
      __builtin_prefetch(row + kAhead * b.row);
      __builtin_prefetch(row + (kAhead + 1) * b.row);
      const __mmask32 seen = first_lanes(columns - column, kColumns);
      const __m512i even = _mm512_maskz_loadu_epi16(k < depth ? seen : 0, row);
      const __m512i odd = _mm512_maskz_loadu_epi16(k + 1 < depth ? seen : 0, row + b.row);
      uint16_t* to = out + column * kDepth + k / kStep * 2 * kTile + k % kStep / 2 * kStep;
      _mm512_store_si512(to, _mm512_permutex2var_epi16(even, lower, odd));
      _mm512_store_si512(to + kTile, _mm512_permutex2var_epi16(even, upper, odd));
    }
  }
}

/// Exchanges what is off the diagonal of blocks of kSize pairs, between rows that are kSize apart:
/// all sizes transpose.
template <int kSize>
[[gnu::always_inline]] TARGET_AVX512 inline void exchange(__m512i (&rows)[16]) noexcept {
  alignas(64) int32_t lower[16], upper[16];
  for (int lane = 0; lane < 16; ++lane) {
    const bool second = (lane & kSize) != 0;
    lower[lane] = second ? lane - kSize + 16 : lane;
    upper[lane] = second ? lane + 16 : lane + kSize;
  }
  const __m512i low = _mm512_load_si512(lower), high = _mm512_load_si512(upper);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if ((i & kSize) != 0) continue;
    const __m512i first = rows[i], second = rows[i + kSize];
    rows[i] = _mm512_permutex2var_epi32(first, low, second);
    rows[i + kSize] = _mm512_permutex2var_epi32(first, high, second);
  }
}

/// The same where its columns are contiguous: pairs are transposed.
TARGET_AVX512 void pack_columns(uint16_t* out, const Bf16Matrix& b, int64_t columns,
                                int64_t depth) noexcept {
  constexpr int64_t kHalf = kColumns / 2;
  for (int64_t column = 0; column < rounded_up(columns, kColumns); column += kHalf) {
    uint16_t* to = out + column / kColumns * kColumns * kDepth + column % kColumns / kHalf * kTile;
    for (int64_t k = 0; k < depth; k += kStep, to += 2 * kTile) {
      const __mmask32 seen = first_lanes(depth - k, kStep);
      __m512i rows[kHalf];
#pragma GCC unroll 16
      for (int64_t j = 0; j < kHalf; ++j)
        rows[j] = _mm512_maskz_loadu_epi16(column + j < columns ? seen : 0,
                                           b.data + (column + j) * b.column + k);
      exchange<1>(rows);
      exchange<2>(rows);
      exchange<4>(rows);
      exchange<8>(rows);
#pragma GCC unroll 16
      for (int64_t j = 0; j < kHalf; ++j) _mm512_store_si512(to + j * kStep, rows[j]);
    }
  }
}

/// The upper halves of 32 fp32 numbers: bf16, rounded towards zero.
[[gnu::always_inline]] TARGET_AVX512 inline __m512i upper_halves(__m512 low, __m512 high) noexcept {
  const __m512i odd =
      _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                       25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_epi16(_mm512_castps_si512(low), odd, _mm512_castps_si512(high));
}

/// What is left of x, exactly: nothing of an infinity, NaN of a NaN.
[[gnu::always_inline]] TARGET_AVX512 inline __m512 rest(__m512 x) noexcept {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512 part = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536)));
  const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  return _mm512_maskz_sub_ps(_mm512_cmpneq_epi32_mask(size, _mm512_set1_epi32(0x7F800000)), x,
                             part);
}

/// Splits `rows` of a, at most a panel's, over `depth` numbers k.
TARGET_AVX512 void split(uint16_t* out, const Matrix& a, int64_t rows, int64_t depth) noexcept {
  for (int64_t r = 0; r < SplitRows::kPanelRows; ++r) {
    const float* from = a.data + r * a.row;
    for (int64_t k = 0; k < depth; k += kStep) {
      const int64_t count = r < rows ? depth - k : 0;
      const auto lanes = [&](int64_t first) {
        return static_cast<__mmask16>(first_lanes(count - first, 16));
      };
      __m512 low = _mm512_maskz_loadu_ps(lanes(0), from + k);
      __m512 high = _mm512_maskz_loadu_ps(lanes(16), from + k + 16);
      uint16_t* to = out + (k / kStep * kParts) * kTile + r * kStep;
      for (int64_t part = 0; part < kParts; ++part, to += kTile) {
        _mm512_store_si512(to, upper_halves(low, high));
        low = rest(low);
        high = rest(high);
      }
    }
  }
}

bool find_amx() noexcept {
  constexpr uint32_t kOsXsave = 1u << 27, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  constexpr uint32_t kTileState = 3u << 17;  // in XCR0: the shapes, and the tiles
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  uint32_t low = 0, high = 0;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState) return false;
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512bw"))
    return false;
  // For this process: the system makes room for a thread's tiles only after this.
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool has_amx() noexcept {
  static const bool has = find_amx();
  return has;
}

void SplitRows::pack(int64_t panel) const noexcept {
  const int64_t row = panel * kPanelRows;
  for (int64_t from = 0; from < k_; from += kDepth)
    split(panel_at(from, panel), a_.from(row, from), std::min(kPanelRows, m_ - row),
          std::min(kDepth, k_ - from));
}

void SplitRows::multiply(const Product& p, std::byte* scratch) const noexcept {
  const uintptr_t line = (reinterpret_cast<uintptr_t>(scratch) + 63) / 64 * 64;
  uint16_t* const b = reinterpret_cast<uint16_t*>(line);
  float* const sums = reinterpret_cast<float*>(b + kDepth * kMostColumns);
  const int64_t row = rounded_up(p.n, kColumns) + kPad;
  const Tiles tiles;
  for (int64_t from = 0; from < k_; from += kDepth) {
    const int64_t depth = std::min(kDepth, k_ - from);
    (p.b_bf16.column == 1 ? pack_rows : pack_columns)(b, p.b_bf16.from(from, 0), p.n, depth);
    for (int64_t panel = 0; panel < panels(); panel += 2) {
      const bool two = panel + 1 < panels();
      const uint16_t* const a = panel_at(from, panel);
      const uint16_t* const next = two ? panel_at(from, panel + 1) : nullptr;
      for (int64_t column = 0; column < p.n; column += kColumns)
        (two ? tile<2> : tile<1>)(a, next, b + column * kDepth, depth,
                                  {sums + panel * kPanelRows * row + column, row}, from > 0);
    }
  }
  for (int64_t r = 0; r < m_; ++r) {
    const float* from = sums + r * row;
    float* to = p.c + r * p.c_row;
    for (int64_t j = 0; j < p.n; ++j) to[j] = p.add ? to[j] + from[j] : from[j];
  }
}

#else

bool has_amx() noexcept { return false; }
void SplitRows::pack(int64_t) const noexcept {}
void SplitRows::multiply(const Product&, std::byte*) const noexcept {}

#endif

}  // namespace ops::cpu
