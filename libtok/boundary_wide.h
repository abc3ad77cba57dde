// SPDX-License-Identifier: MIT
// Where a text of characters of three bytes (East Asian scripts) may be cut inside its pieces, for
// a block of 64 bytes at once, with AVX-512. Part of boundaries_x86.cc; not for other callers.
// Not here: what may join (JoinablePairs in boundaries.h). Includes: boundaries.h.
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

/// The low 16 bits of the code point of a character of three bytes at each of 64 places, given the
/// bytes there and the two behind.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline void
wide_numbers(__m512i first, __m512i second, __m512i third, uint16_t* numbers) noexcept {
  const __m512i six = _mm512_set1_epi16(63);
  for (int half = 0; half < 2; ++half) {
    const __m512i high = _mm512_slli_epi16(half_as_words(first, half), 12);
    const __m512i middle = _mm512_and_si512(half_as_words(second, half), six);
    const __m512i low = _mm512_and_si512(half_as_words(third, half), six);
    _mm512_storeu_si512(numbers + 32 * half,
                        _mm512_or_si512(_mm512_or_si512(high, _mm512_slli_epi16(middle, 6)), low));
  }
}

/// Of the places among `asked`, those where two characters of three bytes share a side
/// (JoinablePairs::wide_left), or where the one before is of another kind. Nine in ten do not, but
/// which is hard to guess: so there is no branch for each. `second`, `third`: the bytes behind each
/// of `bytes`; `readable`: places before which three bytes can be read.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
shared_sides(const JoinablePairs& joinable, const char* from, uint64_t readable, __m512i bytes,
             __m512i second, __m512i third, uint64_t asked) noexcept {
  uint16_t rights[64], lefts[64];
  wide_numbers(bytes, second, third, rights);
  const __m512i before1 = _mm512_maskz_loadu_epi8(readable, from - 1);
  const __m512i before2 = _mm512_maskz_loadu_epi8(readable, from - 2);
  const __m512i before3 = _mm512_maskz_loadu_epi8(readable, from - 3);
  wide_numbers(before3, before2, before1, lefts);
  uint64_t shared = ~(bytes_between(before3, 0xE0, 0xEF) & bytes_between(before2, 0x80, 0xBF) &
                      bytes_between(before1, 0x80, 0xBF));
  const uint64_t* const left_sides = joinable.wide_left.data();
  const uint64_t* const right_sides = joinable.wide_right.data();
  for (uint64_t places = asked; places != 0; places &= places - 1) {
    const size_t at = static_cast<size_t>(std::countr_zero(places));
    const bool common = (left_sides[lefts[at]] & right_sides[rights[at]]) != 0;
    shared |= static_cast<uint64_t>(common) << at;
  }
  return asked & shared;
}

}  // namespace tok
