// SPDX-License-Identifier: MIT
// Runs in boundary masks: white space and its newlines, numbers, signs. Computes single facts about
// the bytes of a block from its class masks; boundary_rules.h combines them. Plain C++ on 64-bit
// words, inlined into each scan of boundaries_x86.cc, so that it is compiled for that scan's
// instructions. Not for users of the library. Includes: boundary_masks.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "libtok/boundary_masks.h"

namespace tok {

/// White space whose next character is not white, at its first byte: S+(?!\S) gives it back. Where
/// numbers are cut out first, one after it ends the segment, and nothing is given back.
template <Rules R>
[[gnu::always_inline]] inline uint64_t last_white(const BlockMasks& now,
                                                  const BlockMasks& next) noexcept {
  uint64_t stay = now.white, stay_next = next.white;
  if constexpr (R.digits_first || R.cjk) {
    stay |= now.number | now.cjk;
    stay_next |= next.number | next.cjk;
  }
  if (((now.white & now.inside) | (next.white & next.inside & 1)) == 0) [[likely]] {
    return now.white & ~(stay >> 1 | stay_next << 63);
  }
  // White space of two or three bytes: its last byte is known; step back to the first.
  using Wide = unsigned __int128;
  Wide inside = Wide{next.inside} << 64 | now.inside;
  Wide last = (Wide{next.white} << 64 | now.white) & ~((Wide{stay_next} << 64 | stay) >> 1);
  for (int step = 0; step < 2; ++step) last = (last & ~inside) | (last & inside) >> 1;
  return static_cast<uint64_t>(last);
}

/// N{1,3} where numbers have several bytes: character by character.
[[gnu::noinline]] inline uint64_t count_triples(uint64_t number, uint64_t inside,
                                                BlockCarry& carry) noexcept {
  uint64_t before = number << 1 | carry.number;
  uint64_t starts = 0;
  for (uint64_t todo = number & ~inside; todo != 0; todo &= todo - 1) {
    uint64_t bit = todo & (0 - todo);
    bool fresh = (before & bit) == 0 || carry.digits == 3;
    if (fresh) starts |= bit;
    carry.digits = fresh ? 1 : carry.digits + 1;
  }
  return starts;
}

/// N{1,3}: the first of a run of numbers and every third after it.
[[gnu::always_inline]] inline uint64_t triple_starts(const BlockMasks& now, const BlockMasks& next,
                                                     BlockCarry& carry) noexcept {
  uint64_t run = now.number;
  if (((run & now.inside) | (run >> 63 & next.inside)) != 0) [[unlikely]] {
    return count_triples(run, now.inside, carry);
  }
  uint64_t starts = run & ~(run << 1 | carry.number);
  if ((run & carry.number) != 0) {
    uint64_t to_next = low_bits(4 - carry.digits);  // up to and with the next start
    if ((run & to_next) == to_next) starts |= to_next ^ to_next >> 1;
  }
  uint64_t three = run & run << 1 & run << 2;
  for (uint64_t s = starts << 3 & three; s != 0; s = s << 3 & three) starts |= s;
  // An unfinished run: its last start is the last of all.
  carry.digits = static_cast<uint64_t>(std::countl_zero(starts | 1)) + 1;
  return starts;
}

/// Resolves the pending start after the last newline of an unfinished white run of an earlier
/// block: a piece starts there unless the run has another newline. `last`: the last of a white run,
/// if not a newline.
[[gnu::noinline]] inline uint32_t* resolve_pending(uint64_t last, uint64_t indent, uint64_t newline,
                                                   BlockCarry& carry, uint32_t* out) noexcept {
  int run = std::countr_one(indent);
  if (run == 64 && last == 0) return out;
  if (run == 64 || (newline >> run & 1) == 0) {
    *out++ = static_cast<uint32_t>(carry.pending);
    carry.last = carry.pending;
  }
  carry.pending = 0;
  return out;
}

/// Starts after the last newline of a white run that continues: S*NL+ ends there. `first`: the
/// first of white space after a newline; `last`: the last of a white run, if not a newline.
[[gnu::always_inline]] inline uint64_t line_starts(uint64_t first, uint64_t last, uint64_t indent,
                                                   uint64_t newline, size_t base,
                                                   BlockCarry& carry) noexcept {
  uint64_t starts = 0;
  for (; first != 0; first &= first - 1) {
    int at = std::countr_zero(first);
    int end = at + std::countr_one(indent >> at);
    if (end >= 64 && last >> at == 0) {
      carry.pending = carry.origin + base + static_cast<size_t>(at);
    } else if (end >= 64 || (newline >> end & 1) == 0) {
      starts |= first & (0 - first);
    }
  }
  return starts;
}

/// Newlines directly after signs belong to them, and with slash_tail slashes after such a newline
/// do too.
template <Rules R>
[[gnu::always_inline]] inline uint64_t newlines_of_signs(const BlockMasks& now, uint64_t after_sign,
                                                         const BlockCarry& carry) noexcept {
  if constexpr (R.slash_tail) {
    uint64_t tail = now.newline | now.slash;
    uint64_t seeds = (now.newline & after_sign) | (tail & carry.taken);
    return (tail & ~(tail + seeds)) | seeds;
  }
  return now.newline & ~(now.newline + (now.newline & (after_sign | carry.taken)));
}

/// Ends of single signs that belong to the letters after them.
template <Rules R>
[[gnu::always_inline]] inline uint64_t lone_signs(const BlockMasks& now, uint64_t sign,
                                                  uint64_t first_sign,
                                                  const BlockCarry& carry) noexcept {
  if constexpr (R.ascii_sign) return first_sign & now.ascii;
  uint64_t lone = first_sign | (now.inside & carry.lone_sign);
  if ((sign & now.inside) != 0) {
    for (int step = 0; step < 3; ++step) lone |= lone << 1 & now.inside;
  }
  return lone;
}

}  // namespace tok
