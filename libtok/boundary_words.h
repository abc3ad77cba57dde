// SPDX-License-Identifier: MIT
// Words in boundary masks: contractions, and words that depend on case (o200k, Tekken). The few
// places that masks cannot decide are examined one by one. Inlined like boundary_runs.h. Not for
// users of the library. Includes: boundary_masks.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libtok/boundary_masks.h"

namespace tok {

/// Length in bytes of the contraction at text[at], which is an apostrophe; 0 if there is none.
template <Rules R>
size_t contraction_length(std::string_view text, size_t at) noexcept {
  auto letter = [&](size_t i) noexcept -> int {
    if (i >= text.size()) return 0;
    int c = static_cast<uint8_t>(text[i]);
    return R.lines && c >= 'A' && c <= 'Z' ? c + 32 : c;
  };
  int a = letter(at + 1), b = letter(at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l')) return 3;
  return R.lines && a == 0xC5 && b == 0xBF ? 3 : 0;  // U+017F folds to s
}

/// Moves the starts after the apostrophes in `quotes`, which begin contractions.
template <Rules R>
[[gnu::noinline]] uint64_t cut_contractions(std::string_view text, size_t base, uint64_t quotes,
                                            uint64_t starts, BlockCarry& carry) noexcept {
  for (; quotes != 0; quotes &= quotes - 1) {
    int at = std::countr_zero(quotes);
    size_t length = contraction_length<R>(text, base + static_cast<size_t>(at));
    if (length == 0) continue;
    unsigned __int128 cut = static_cast<unsigned __int128>(1) << (at + static_cast<int>(length));
    unsigned __int128 no_cut = static_cast<unsigned __int128>(2) << at;
    starts = (starts & ~static_cast<uint64_t>(no_cut)) | static_cast<uint64_t>(cut);
    carry.no_cut |= static_cast<uint64_t>(no_cut >> 64);
    carry.cut |= static_cast<uint64_t>(cut >> 64);
  }
  return starts;
}

/// Where a word of o200k's form begins inside a run of letters: at an upper-case letter after a
/// lower part, and at the upper-case letters that end a run if a caseless letter but no lower part
/// is before them: there the pattern backtracks to that letter.
[[gnu::always_inline]] inline uint64_t case_starts(const BlockMasks& now,
                                                   BlockCarry& carry) noexcept {
  uint64_t run = now.letter & ~now.upper;  // a lower part, if there is a lower-case letter
  uint64_t seeds = now.lower | (run & carry.low);
  uint64_t low = (run & ~(run + seeds)) | seeds;
  uint64_t either = run & ~low;
  uint64_t starts = now.upper & (low << 1 | carry.low);
  for (uint64_t todo = now.upper & (either << 1 | carry.either); todo != 0; todo &= todo - 1) {
    int at = std::countr_zero(todo);
    int end = at + std::countr_one(now.upper >> at);
    if (end >= 64) {
      carry.hard = 1;
    } else if ((now.letter >> end & 1) == 0) {
      starts |= todo & (0 - todo);
    }
  }
  carry.low = low >> 63;
  carry.either = either >> 63;
  return starts;
}

/// First letters of words, inside which only case causes cuts. `goes_on`: letters that follow
/// something of the same word, except signs.
template <Rules R>
[[gnu::always_inline]] inline uint64_t word_starts(const BlockMasks& now, uint64_t goes_on,
                                                   uint64_t lone, uint64_t edge,
                                                   BlockCarry& carry) noexcept {
  uint64_t after_lone = lone << 1 | carry.lone_sign;
  if constexpr (R.ascii_sign) {
    uint64_t run = now.letter & now.ascii;
    after_lone &= run;
    uint64_t words = run & ~(run + (after_lone | (run & carry.punct_word & 1)));
    // Such a word ends at its first letter of another kind.
    if (((words << 1 | carry.punct_word) & now.letter & ~now.ascii & ~edge) != 0) carry.hard = 1;
    carry.punct_word = words >> 63;
  }
  uint64_t starts = now.letter & ~((goes_on & ~edge) | after_lone);
  if constexpr (R.cased) starts |= case_starts(now, carry);
  return starts;
}

/// o200k's contractions end words: the piece with the letters before the apostrophes in `quotes`
/// extends to their ends.
template <Rules R>
[[gnu::noinline]] uint64_t join_contractions(std::string_view text, size_t base, uint64_t quotes,
                                             uint64_t starts, unsigned __int128 either,
                                             BlockCarry& carry) noexcept {
  using Wide = unsigned __int128;
  Wide fresh = 0;  // ends of contractions: an apostrophe there does not follow a word
  for (; quotes != 0; quotes &= quotes - 1) {
    int at = std::countr_zero(quotes);
    if ((fresh >> at & 1) != 0) continue;
    size_t length = contraction_length<R>(text, base + static_cast<size_t>(at));
    if (length == 0) continue;
    int end = at + static_cast<int>(length);
    Wide none = ((Wide{1} << length) - 1) << at;
    starts &= ~static_cast<uint64_t>(none);
    starts |= static_cast<uint64_t>(Wide{1} << end);
    carry.no_cut |= static_cast<uint64_t>(none >> 64);
    carry.cut |= static_cast<uint64_t>(Wide{1} << end >> 64);
    fresh |= Wide{1} << end;
    // The letter after it is not in a lower part, whatever the masks say.
    if ((either >> end & 1) != 0) carry.hard = 1;
  }
  return starts;
}

}  // namespace tok
