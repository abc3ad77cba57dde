// SPDX-License-Identifier: MIT
// From the class masks of a block to the places where pieces begin. A start is the first byte of a
// piece. Every line has its rule as a statement about neighbouring characters; the patterns are in
// pretokenize.cc. Inlined, like its parts boundary_runs.h and boundary_words.h. Not for users of
// the library. Includes: those two, boundary_masks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libtok/boundary_masks.h"
#include "libtok/boundary_runs.h"
#include "libtok/boundary_words.h"

namespace tok {

/// Starts of the patterns in GPT-2's form, before contractions.
template <Rules R>
[[gnu::always_inline]] inline uint64_t gpt2_starts(const BlockMasks& now, const BlockMasks& next,
                                                   BlockCarry& carry) noexcept {
  uint64_t sign = ~(now.letter | now.number | now.white);
  // A run of one class continues; a blank before a run belongs to it.
  uint64_t same = (now.letter & (now.letter << 1 | carry.letter)) |
                  (now.number & (now.number << 1 | carry.number)) |
                  (sign & (sign << 1 | carry.sign));
  uint64_t starts = ~(now.white | same | now.blank << 1 | carry.blank);
  if constexpr (R.digits_first) starts |= now.number & ~now.inside;
  // White space: the first of a run, and the last when something follows.
  starts |= now.white & ~(now.white << 1 | carry.white);
  starts |= last_white<R>(now, next);
  carry.letter = now.letter >> 63;
  carry.number = now.number >> 63;
  carry.sign = sign >> 63;
  carry.white = now.white >> 63;
  carry.blank = now.blank >> 63;
  return starts;
}

/// Starts of the patterns in cl100k's form, before contractions.
template <Rules R>
[[gnu::always_inline]] inline uint64_t line_family_starts(const BlockMasks& now,
                                                          const BlockMasks& next, size_t base,
                                                          BlockCarry& carry,
                                                          uint32_t*& out) noexcept {
  // Every piece ends where a run of CJK begins or ends.
  uint64_t edge = R.cjk ? now.cjk ^ (now.cjk << 1 | carry.cjk) : 0;
  uint64_t sign = ~(now.letter | now.number | now.white);
  uint64_t taken = newlines_of_signs<R>(now, (sign << 1 | carry.sign) & ~edge, carry);
  if constexpr (R.slash_tail) sign &= ~taken;
  uint64_t white = now.white & ~taken, newline = now.newline & ~taken;
  uint64_t indent = now.white & ~now.newline;
  uint64_t after_indent = indent << 1 | carry.indent;
  // A sign begins a piece unless it continues a run of signs or has a blank before it.
  uint64_t first_sign = sign & ~((sign << 1 | carry.sign | now.blank << 1 | carry.blank) & ~edge);
  uint64_t lone = lone_signs<R>(now, sign, first_sign, carry);
  uint64_t letters =
      word_starts<R>(now, now.letter << 1 | carry.letter | after_indent, lone, edge, carry);
  uint64_t numbers = R.digits == 1 ? now.number & ~now.inside : triple_starts(now, next, carry);
  // White space: the first of a run, the first after its last newline, and the last of it if it is
  // not a newline and something follows.
  uint64_t starts = first_sign | letters | numbers;
  starts |= white & ~(white << 1 | carry.white);
  uint64_t last = last_white<R>(now, next) & indent;
  starts |= last;
  if (carry.pending != 0) [[unlikely]]
    out = resolve_pending(last, indent, newline, carry, out);
  uint64_t after_newline = indent & ~after_indent & (newline << 1 | carry.newline);
  starts |= line_starts(after_newline, last, indent, newline, base, carry);
  carry.letter = now.letter >> 63;
  carry.number = now.number >> 63;
  carry.sign = sign >> 63;
  carry.white = white >> 63;
  carry.blank = now.blank >> 63;
  carry.indent = indent >> 63;
  carry.newline = newline >> 63;
  carry.taken = taken >> 63;
  carry.lone_sign = lone >> 63;
  if constexpr (R.cjk) carry.cjk = now.cjk >> 63;
  return starts;
}

/// Adjusts the starts for contractions.
template <Rules R>
[[gnu::always_inline]] inline uint64_t with_contractions(std::string_view text, size_t base,
                                                         const BlockMasks& now,
                                                         const BlockMasks& next,
                                                         uint64_t after_letter, uint64_t starts,
                                                         BlockCarry& carry) noexcept {
  const uint64_t fresh = carry.cut;
  starts = (starts & ~carry.no_cut) | fresh;
  carry.cut = carry.no_cut = 0;
  uint64_t quotes = now.quote & starts;
  if constexpr (R.cased) {
    quotes &= after_letter & ~fresh;
    if (quotes != 0) [[unlikely]] {
      using Wide = unsigned __int128;
      Wide either = Wide{next.letter & ~(next.upper | next.lower)} << 64 |
                    (now.letter & ~(now.upper | now.lower));
      starts = join_contractions<R>(text, base, quotes, starts, either, carry);
    }
  } else if (quotes != 0) [[unlikely]] {
    // In cl100k's form an apostrophe after a blank is not a start, and neither is one in a run.
    starts = cut_contractions<R>(text, base, quotes, starts, carry);
  }
  return starts;
}

/// All starts of a block. A start of an earlier block that is known only now goes to `out`.
template <Rules R>
[[gnu::always_inline]] inline uint64_t block_starts(std::string_view text, size_t base,
                                                    const BlockMasks& now, const BlockMasks& next,
                                                    BlockCarry& carry, uint32_t*& out) noexcept {
  const uint64_t after_letter = now.letter << 1 | carry.letter;
  uint64_t starts;
  if constexpr (R.lines) {
    starts = line_family_starts<R>(now, next, base, carry, out);
  } else {
    starts = gpt2_starts<R>(now, next, carry);
  }
  if constexpr (R.contractions) {
    starts = with_contractions<R>(text, base, now, next, after_letter, starts, carry);
  }
  if (base == 0) starts &= ~uint64_t{1};
  const uint64_t inside_text = low_bits(text.size() - base);
  if constexpr (R.has_hard()) {
    starts &= inside_text;
    carry.newest = starts == 0
                       ? carry.last
                       : carry.origin + base + 63 - static_cast<size_t>(std::countl_zero(starts));
  }
  return (starts | now.cut) & inside_text;
}

/// The end of the segment, at `end`: writes the pending start and the end itself.
template <Rules R>
[[gnu::always_inline]] inline uint32_t* end_segment(size_t end, const BlockCarry& carry,
                                                    uint32_t* out) noexcept {
  if (!R.whole_tail && carry.pending != 0 && carry.pending != end)
    *out++ = static_cast<uint32_t>(carry.pending);
  *out++ = static_cast<uint32_t>(end);
  return out;
}

}  // namespace tok
