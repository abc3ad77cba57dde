// SPDX-License-Identifier: MIT
// The algebra of boundary masks: from the class masks of a block to the places where pieces begin.
// Plain C++ on 64-bit words, inlined into each walk of boundaries_x86.cc, so that it is compiled
// for that walk's instructions. A start is the first byte of a piece. Every rule stands at its line
// as a statement about neighbouring characters; the patterns are in pretokenize.cc. Not for users
// of the library. Longer than 250 lines because a rule and its reason stay together. Includes:
// boundaries.h, unicode.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libtok/boundaries.h"
#include "libtok/unicode.h"

namespace tok {

/// What tells one pattern from another, as far as masks are concerned.
struct Rules {
  bool lines = false;         ///< cl100k's form: newlines, prefixes of words, any-case contractions
  int digits = 0;             ///< N{1,digits}; 0: runs
  bool digits_first = false;  ///< Digits(individual) cuts before the pattern does
  bool marks_are_letters = false;
  bool whole_tail = false;  ///< white space up to the text's end is one piece
};

constexpr Rules kGpt2{};
constexpr Rules kDigitsGpt2{.digits_first = true};
constexpr Rules kCl100k{.lines = true, .digits = 3, .whole_tail = true};
constexpr Rules kLlama3{.lines = true, .digits = 3};
constexpr Rules kQwen2{.lines = true, .digits = 1};
constexpr Rules kQwen35{.lines = true, .digits = 1, .marks_are_letters = true};

/// What lies past the end of the text.
constexpr BlockMasks kEndMasks{.letter = 0,
                               .number = 0,
                               .white = ~uint64_t{0},
                               .blank = 0,
                               .newline = 0,
                               .quote = 0,
                               .inside = 0,
                               .cut = 0};

/// The first `n` bits, n in 0..64.
[[gnu::always_inline]] inline uint64_t low_bits(size_t n) noexcept {
  return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}

/// All ones or all zeros.
[[gnu::always_inline]] inline uint64_t all_if(bool condition) noexcept {
  return uint64_t{0} - static_cast<uint64_t>(condition);
}

/// decode(), with the common three-byte forms first.
[[gnu::always_inline]] inline CodePoint decode_high(std::string_view text, size_t at) noexcept {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + at;
  if ((p[0] & 0xF0) == 0xE0 && at + 3 <= text.size()) [[likely]] {
    char32_t c = (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
    bool whole = (p[1] & 0xC0) == 0x80 && (p[2] & 0xC0) == 0x80;
    if (whole && c >= 0x800 && (c & 0xF800) != 0xD800) [[likely]]
      return {c, 3};
  }
  return decode(text, at);
}

/// Adds the characters of a block that are not ASCII to its masks. Continuation bytes that belong
/// to no well-formed character stay signs. `high`: bytes >= 0x80.
template <Rules R>
[[gnu::noinline]] void classify_high(std::string_view text, const JoinablePairs* joinable,
                                     size_t base, uint64_t high, BlockMasks& masks,
                                     BlockMasks& spill) noexcept {
  constexpr ClassSet kWord = R.marks_are_letters ? kLetter | kMark : kLetter;
  uint64_t letters = spill.letter, numbers = spill.number, whites = spill.white;
  uint64_t insides = spill.inside;
  uint64_t todo = high & ~spill.inside;
  spill = BlockMasks{};
  while (todo != 0) {
    int at = std::countr_zero(todo);
    CodePoint c = decode_high(text, base + static_cast<size_t>(at));
    uint64_t bytes = low_bits(c.length);
    uint64_t cut = 0;
    if (joinable != nullptr && c.length >= 3 && base + static_cast<size_t>(at) != 0) {
      const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + base + at;
      cut = uint64_t{!joinable->joins(p[-1], p[0])} << at;
    }
    uint64_t here = bytes << at;
    todo &= ~here;
    ClassSet set = class_of(c.value);
    uint64_t letter = all_if(set & kWord), white = all_if(set & kSpace);
    uint64_t number = all_if(R.digits_first ? is_rust_number(c.value) : (set & kNumber) != 0);
    masks.cut |= cut & ~white;  // a white run may have a pending start in it
    letters |= here & letter;
    numbers |= here & number;
    whites |= here & white;
    insides |= here & (here - 1);
    if (at + static_cast<int>(c.length) > 64) {
      uint64_t there = bytes >> (64 - at);
      spill.letter = there & letter;
      spill.number = there & number;
      spill.white = there & white;
      spill.inside = there;
    }
  }
  masks.letter |= letters;
  masks.number |= numbers;
  masks.white |= whites;
  masks.inside |= insides;
}

/// Ends the masks at the end of the text, `size` bytes into the block.
[[gnu::always_inline]] inline void end_masks(BlockMasks& masks, size_t size) noexcept {
  uint64_t keep = low_bits(size);
  masks.letter &= keep;
  masks.number &= keep;
  masks.white |= ~keep;
}

/// White space whose next character is not white, at its first byte: S+(?!\S) gives it back. With
/// digits_first a number after it ends the segment, where nothing is given back.
template <Rules R>
[[gnu::always_inline]] inline uint64_t last_white(const BlockMasks& now,
                                                  const BlockMasks& next) noexcept {
  uint64_t stay = R.digits_first ? now.white | now.number : now.white;
  uint64_t stay_next = R.digits_first ? next.white | next.number : next.white;
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

/// Bytes of the contraction at text[at], which is an apostrophe; 0 when there is none.
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

/// Moves the starts behind the apostrophes that begin contractions, given in `quotes`.
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

/// Where an unfinished white run of an earlier block had its last newline so far: a piece starts
/// behind it unless the run goes on to another newline. `last`: the last of a white run, if no
/// newline.
[[gnu::noinline]] inline uint32_t* resolve_pending(uint64_t last, uint64_t indent, uint64_t newline,
                                                   BlockCarry& carry, uint32_t* out) noexcept {
  int run = std::countr_one(indent);
  if (run == 64 && last == 0) return out;
  if (run == 64 || (newline >> run & 1) == 0) *out++ = static_cast<uint32_t>(carry.pending);
  carry.pending = 0;
  return out;
}

/// Starts behind the last newline of a white run that goes on: S*NL+ ends there. `first`: the first
/// of white space after a newline; `last`: the last of a white run, if no newline.
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

/// Starts of the patterns in GPT-2's form, before contractions.
template <Rules R>
[[gnu::always_inline]] inline uint64_t gpt2_starts(const BlockMasks& now, const BlockMasks& next,
                                                   BlockCarry& carry) noexcept {
  uint64_t sign = ~(now.letter | now.number | now.white);
  // A run of one class goes on; a blank before a run belongs to it.
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
  uint64_t sign = ~(now.letter | now.number | now.white);
  uint64_t after_sign = sign << 1 | carry.sign;
  // Newlines right after signs are theirs.
  uint64_t taken = now.newline & ~(now.newline + (now.newline & (after_sign | carry.taken)));
  uint64_t white = now.white & ~taken, newline = now.newline & ~taken;
  uint64_t indent = now.white & ~now.newline;
  uint64_t after_indent = indent << 1 | carry.indent;
  // A sign begins a piece unless it goes on a run of signs or has a blank before it.
  uint64_t first_sign = sign & ~(after_sign | now.blank << 1 | carry.blank);
  // A run of exactly one sign, at the start of a piece, belongs to the letters after it.
  uint64_t lone = first_sign | (now.inside & carry.lone_sign);
  if ((sign & now.inside) != 0) {
    for (int step = 0; step < 3; ++step) lone |= lone << 1 & now.inside;
  }
  uint64_t letters =
      now.letter & ~(now.letter << 1 | carry.letter | after_indent | lone << 1 | carry.lone_sign);
  uint64_t numbers = R.digits == 1 ? now.number & ~now.inside : triple_starts(now, next, carry);
  // White space: the first of a run, the first after its last newline, and the last of it when it
  // is no newline and something follows.
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
  return starts;
}

/// All starts of a block. A start of an earlier block that is known only now goes to `out`.
template <Rules R>
[[gnu::always_inline]] inline uint64_t block_starts(std::string_view text, size_t base,
                                                    const BlockMasks& now, const BlockMasks& next,
                                                    BlockCarry& carry, uint32_t*& out) noexcept {
  uint64_t starts;
  if constexpr (R.lines) {
    starts = line_family_starts<R>(now, next, base, carry, out);
  } else {
    starts = gpt2_starts<R>(now, next, carry);
  }
  starts = (starts & ~carry.no_cut) | carry.cut;
  carry.cut = carry.no_cut = 0;
  uint64_t quotes = now.quote & starts;
  // In cl100k's form an apostrophe after a blank is no start, and neither is one in a run.
  if (quotes != 0) [[unlikely]]
    starts = cut_contractions<R>(text, base, quotes, starts, carry);
  if (base == 0) starts &= ~uint64_t{1};
  return (starts | now.cut) & low_bits(text.size() - base);
}

/// The end of the segment, at `end` of what is scanned: what was pending, and the end itself.
template <Rules R>
[[gnu::always_inline]] inline uint32_t* end_segment(size_t end, const BlockCarry& carry,
                                                    uint32_t* out) noexcept {
  if (!R.whole_tail && carry.pending != 0 && carry.pending != end)
    *out++ = static_cast<uint32_t>(carry.pending);
  *out++ = static_cast<uint32_t>(end);
  return out;
}

}  // namespace tok
