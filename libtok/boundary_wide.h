// SPDX-License-Identifier: MIT
// Where a text of characters of three bytes (East Asian scripts) may be cut inside its pieces, for
// a block of 64 bytes at once, with AVX-512. Part of boundaries_x86.cc; not for other callers.
// Not here: which characters may join (joinable_pairs.h). Includes: boundaries.h.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "libtok/boundaries.h"

namespace tok {

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
bytes_between(__m512i bytes, uint8_t low, uint8_t high) noexcept {
  return _mm512_cmple_epu8_mask(_mm512_sub_epi8(bytes, _mm512_set1_epi8(static_cast<char>(low))),
                                _mm512_set1_epi8(static_cast<char>(high - low)));
}

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
bytes_equal(__m512i bytes, uint8_t value) noexcept {
  return _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(static_cast<char>(value)));
}

/// Half of 64 bytes, as words.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline __m512i
half_as_words(__m512i bytes, int half) noexcept {
  return _mm512_maskz_cvtepu8_epi16(~__mmask32{0},
                                    half == 0 ? _mm512_maskz_extracti64x4_epi64(0xF, bytes, 0)
                                              : _mm512_maskz_extracti64x4_epi64(0xF, bytes, 1));
}

/// Places among `leads` (bytes E0..EF) before which no merge joins the continuation byte before.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
wide_row_cuts(const JoinablePairs& joinable, __m512i bytes, __m512i before,
              uint64_t leads) noexcept {
  const __m512i low_rows = _mm512_loadu_si512(joinable.wide);
  const __m512i high_rows = _mm512_loadu_si512(joinable.wide + 32);
  const __m512i one = _mm512_set1_epi16(1);
  uint64_t joined = 0;
  for (int half = 0; half < 2; ++half) {
    // A row is chosen by the low six bits of the first byte, its bit by the low four of the
    // second.
    const __m512i row = _mm512_permutex2var_epi16(low_rows, half_as_words(before, half), high_rows);
    const __m512i bit =
        _mm512_sllv_epi16(one, _mm512_and_si512(half_as_words(bytes, half), _mm512_set1_epi16(15)));
    joined |= static_cast<uint64_t>(_mm512_test_epi16_mask(row, bit)) << 32 * half;
  }
  return leads & bytes_between(before, 0x80, 0xBF) & ~joined;
}

/// The places where letters of three bytes begin, of the frequent kinds.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
wide_letters(__m512i bytes, __m512i second, __m512i third) noexcept {
  // U+4000..4DBF, 4E00..9FFF; B000..CFFF
  uint64_t letters = bytes_between(bytes, 0xE5, 0xE9) | bytes_between(bytes, 0xEB, 0xEC) |
                     (bytes_equal(bytes, 0xE4) & ~bytes_equal(second, 0xB7));
  // U+3041..307F, 3080..30BF but 3097..309C and 30A0, 30C0..30FF but 30FB
  letters |=
      bytes_equal(bytes, 0xE3) &
      ((bytes_equal(second, 0x81) & ~bytes_equal(third, 0x80)) |
       (bytes_equal(second, 0x82) & ~bytes_between(third, 0x97, 0x9C) & ~bytes_equal(third, 0xA0)) |
       (bytes_equal(second, 0x83) & ~bytes_equal(third, 0xBB)));
  return letters & bytes_between(second, 0x80, 0xBF) & bytes_between(third, 0x80, 0xBF);
}

/// The same for signs.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
wide_signs(__m512i bytes, __m512i second, __m512i third) noexcept {
  // U+3001..3004, 3008..3020; FF01..FF0F, FF1A..FF20; 2010..2027
  const uint64_t x80 = bytes_equal(second, 0x80);
  uint64_t signs = bytes_equal(bytes, 0xE3) & x80 &
                   (bytes_between(third, 0x81, 0x84) | bytes_between(third, 0x88, 0xA0));
  signs |= bytes_equal(bytes, 0xEF) & bytes_equal(second, 0xBC) &
           (bytes_between(third, 0x81, 0x8F) | bytes_between(third, 0x9A, 0xA0));
  return signs | (bytes_equal(bytes, 0xE2) & x80 & bytes_between(third, 0x90, 0xA7));
}

/// Among these places, those of Family::cjk_runs: U+4E00..9FA5, and the rest of 3040..30FF.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
wide_cjk(__m512i bytes, __m512i second, __m512i third) noexcept {
  return bytes_between(bytes, 0xE5, 0xE8) |
         (bytes_equal(bytes, 0xE4) & bytes_between(second, 0xB8, 0xBF)) |
         (bytes_equal(bytes, 0xE9) &
          (bytes_between(second, 0x80, 0xBD) |
           (bytes_equal(second, 0xBE) & bytes_between(third, 0x80, 0xA5)))) |
         (bytes_equal(bytes, 0xE3) & bytes_between(second, 0x81, 0x83));
}

/// The low 16 bits of the code point of a character of three bytes at each of 64 places, given the
/// bytes there and the two after them.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline void
wide_numbers(__m512i first, __m512i second, __m512i third, uint16_t* numbers) noexcept {
  const __m512i six = _mm512_set1_epi16(63);
  for (int half = 0; half < 2; ++half) {
    const __m512i high = _mm512_slli_epi16(half_as_words(first, half), 12);
    const __m512i middle = _mm512_and_si512(half_as_words(second, half), six);
    const __m512i low = _mm512_and_si512(half_as_words(third, half), six);
    _mm512_store_si512(numbers + 32 * half,
                       _mm512_or_si512(_mm512_or_si512(high, _mm512_slli_epi16(middle, 6)), low));
  }
}

/// Of the places in `asked`, where one character of three bytes follows another, those where the
/// two share a side (JoinablePairs::wide_sides). One in ten does, which a branch predictor cannot
/// guess: so there is no branch for each. `numbers`: those of the characters at 67 places, the
/// first three of which are before the block.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
shared_sides(const JoinablePairs& joinable, const uint16_t* numbers, uint64_t asked) noexcept {
  const WideSides* const sides = joinable.wide_sides.data();
  uint64_t shared = 0;
  for (uint64_t places = asked; places != 0; places &= places - 1) {
    const int at = std::countr_zero(places);
    const bool common = (sides[numbers[at - 3]].left & sides[numbers[at]].right) != 0;
    shared |= static_cast<uint64_t>(common) << at;
  }
  return shared;
}

/// Places before which a block's characters of three bytes, which begin at `known`, may be cut from
/// what is before them. `from`: the block's first byte, `base` bytes into a text of which `left`
/// bytes are left.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
wide_cuts(const JoinablePairs& joinable, const char* from, size_t base, size_t left, __m512i bytes,
          __m512i second, __m512i third, uint64_t known) noexcept {
  const uint64_t keep = base == 0 ? ~uint64_t{1} : ~uint64_t{0};
  const __m512i before = _mm512_maskz_loadu_epi8(low_bits(left + 1) & keep, from - 1);
  uint64_t cuts = wide_row_cuts(joinable, bytes, before, known);
  uint64_t asked = known & ~cuts;
  if (asked == 0 || joinable.wide_sides.empty()) return cuts;
  alignas(64) uint16_t with_before[32 + 64];
  uint16_t* const numbers = with_before + 32;
  wide_numbers(bytes, second, third, numbers);
  // The character before a place must be of three bytes too.
  uint64_t behind = known << 3;
  if (base != 0) [[likely]] {
    const int at = std::countr_zero(known | 8);  // of the first of them; avoids a branch
    numbers[at - 3] = wide_number(from + at - 3);
    behind |= static_cast<uint64_t>(is_wide(from + at - 3)) << at;
  }
  asked &= behind;
  const uint64_t shared = shared_sides(joinable, numbers, asked);
  cuts |= asked & ~shared;
  return joinable.asks_contexts ? cuts | joinable.wide_cuts(from, shared) : cuts;
}

}  // namespace tok
