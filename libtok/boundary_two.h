// SPDX-License-Identifier: MIT
// The classes of characters of two bytes (U+0080..07FF: Latin letters with accents, Greek,
// Cyrillic, Hebrew, Arabic), for a block of 64 bytes at once, with AVX-512. Part of
// boundaries_x86.cc; not for other callers. Includes: boundary_masks.h, boundary_wide.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "libtok/boundary_masks.h"
#include "libtok/boundary_wide.h"

namespace tok {

/// A bit for each code point below U+0800, sixteen in a row: whether it is in a class.
struct alignas(64) ClassRows {
  uint16_t rows[128] = {};

  void set(char32_t c, bool in_class) noexcept {
    rows[c >> 4] = static_cast<uint16_t>(rows[c >> 4] | uint32_t{in_class} << (c & 15));
  }
};

/// The classes that a pattern asks for.
template <Rules R>
struct TwoByteClasses {
  ClassRows letter, number, white, upper, lower, hard;

  TwoByteClasses() noexcept {
    for (char32_t c = 0x80; c < 0x800; ++c) {
      const ClassSet set = class_of(c);
      letter.set(c, (set & word_classes<R>()) != 0);
      number.set(c, is_number<R>(c, set));
      white.set(c, (set & kSpace) != 0);
      upper.set(c, (set & (kUpper | kTitle)) != 0);
      lower.set(c, (set & kLower) != 0);
      hard.set(c, (set & hard_classes<R>()) != 0);
    }
  }
};

/// Row and bit of the characters of two bytes that begin at 64 places, half of them each.
struct TwoByteNumbers {
  __m512i row[2], bit[2];
};

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline TwoByteNumbers
two_byte_numbers(__m512i first, __m512i second) noexcept {
  TwoByteNumbers numbers;
  for (int half = 0; half < 2; ++half) {
    const __m512i lead = _mm512_and_si512(half_as_words(first, half), _mm512_set1_epi16(31));
    const __m512i other = _mm512_and_si512(half_as_words(second, half), _mm512_set1_epi16(63));
    numbers.row[half] = _mm512_or_si512(_mm512_slli_epi16(lead, 2), _mm512_srli_epi16(other, 4));
    numbers.bit[half] =
        _mm512_sllv_epi16(_mm512_set1_epi16(1), _mm512_and_si512(other, _mm512_set1_epi16(15)));
  }
  return numbers;
}

/// Places whose characters are in a class; anything at places where none begins.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
in_class(const ClassRows& rows, const TwoByteNumbers& at) noexcept {
  uint64_t in = 0;
  for (int half = 0; half < 2; ++half) {
    const __m512i low = _mm512_permutex2var_epi16(_mm512_load_si512(rows.rows), at.row[half],
                                                  _mm512_load_si512(rows.rows + 32));
    const __m512i high = _mm512_permutex2var_epi16(_mm512_load_si512(rows.rows + 64), at.row[half],
                                                   _mm512_load_si512(rows.rows + 96));
    const __mmask32 is_high = _mm512_test_epi16_mask(at.row[half], _mm512_set1_epi16(64));
    const __m512i row = _mm512_mask_blend_epi16(is_high, low, high);
    in |= static_cast<uint64_t>(_mm512_test_epi16_mask(row, at.bit[half])) << 32 * half;
  }
  return in;
}

/// Adds the characters of two bytes of a block to its masks, and to `spill` the bits for the next
/// block; returns the places where they begin. `second`: the byte after each of `bytes`.
template <Rules R>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"),
  gnu::always_inline]] inline uint64_t
classify_two(__m512i bytes, __m512i second, BlockMasks& masks, BlockMasks& spill) noexcept {
  const uint64_t leads = bytes_between(bytes, 0xC2, 0xDF) & bytes_between(second, 0x80, 0xBF);
  if (leads == 0) return 0;
  static const TwoByteClasses<R> classes;
  const TwoByteNumbers numbers = two_byte_numbers(bytes, second);
  const auto add =
      [ leads, &numbers ](const ClassRows& rows, uint64_t& mask, uint64_t& over) __attribute__((
          target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt,popcnt"), always_inline)) {
    const uint64_t in = leads & in_class(rows, numbers);
    mask |= in | in << 1;
    over |= in >> 63;
  };
  add(classes.letter, masks.letter, spill.letter);
  add(classes.number, masks.number, spill.number);
  add(classes.white, masks.white, spill.white);
  if constexpr (R.has_hard()) {
    add(classes.upper, masks.upper, spill.upper);
    add(classes.lower, masks.lower, spill.lower);
    add(classes.hard, masks.hard, spill.hard);
  }
  masks.inside |= leads << 1;
  spill.inside |= leads >> 63;
  return leads;
}

}  // namespace tok
