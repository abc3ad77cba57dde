// SPDX-License-Identifier: MIT
// The class masks of a block of 64 bytes: which pattern asks for which (Rules), the characters that
// are not ASCII, the end of the text. Inlined into each walk of boundaries_x86.cc, so that it is
// compiled for that walk's instructions. boundary_rules.h makes starts of them. Not for users of
// the library. Includes: boundaries.h, unicode.h.
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
  bool contractions = true;
  bool cased = false;       ///< o200k's words: upper letters, then lower ones; then a contraction
  bool slash_tail = false;  ///< slashes may follow the newlines behind signs
  bool cjk = false;         ///< DeepSeek-V3: numbers and CJK runs are cut out first
  bool ascii_sign = false;  ///< only a sign of ASCII begins a word, and only of ASCII letters

  /// Whether there are characters that masks do not follow.
  constexpr bool has_hard() const { return cased || ascii_sign; }
};

constexpr Rules kGpt2{};
constexpr Rules kDigitsGpt2{.digits_first = true};
constexpr Rules kCl100k{.lines = true, .digits = 3, .whole_tail = true};
constexpr Rules kLlama3{.lines = true, .digits = 3};
constexpr Rules kQwen2{.lines = true, .digits = 1};
constexpr Rules kQwen35{.lines = true, .digits = 1, .marks_are_letters = true};
constexpr Rules kO200k{.lines = true, .digits = 3, .cased = true, .slash_tail = true};
constexpr Rules kTekken{
    .lines = true, .digits = 1, .contractions = false, .cased = true, .slash_tail = true};
constexpr Rules kDeepseek3{.lines = true,
                           .digits = 3,
                           .marks_are_letters = true,
                           .contractions = false,
                           .cjk = true,
                           .ascii_sign = true};

/// What lies past the end of the text.
constexpr BlockMasks kEndMasks{.letter = 0,
                               .number = 0,
                               .white = ~uint64_t{0},
                               .blank = 0,
                               .newline = 0,
                               .quote = 0,
                               .inside = 0,
                               .cut = 0,
                               .upper = 0,
                               .lower = 0,
                               .slash = 0,
                               .ascii = ~uint64_t{0},
                               .cjk = 0,
                               .hard = 0};

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

/// What Family::cjk_runs takes.
[[gnu::always_inline]] inline bool is_cjk(char32_t c) noexcept {
  return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

/// The masks that only some families have, for a character with these bytes.
template <Rules R>
[[gnu::always_inline]] inline void add_more(BlockMasks& masks, uint64_t bytes, char32_t c,
                                            ClassSet set) noexcept {
  masks.upper |= bytes & all_if(set & (kUpper | kTitle));
  masks.lower |= bytes & all_if(set & kLower);
  if constexpr (R.cjk) masks.cjk |= bytes & all_if(is_cjk(c));
  masks.hard |= bytes & all_if(set & (R.cased ? kMark : kOther));
}

/// The same for a character that began in the block before.
[[gnu::always_inline]] inline void add_more(BlockMasks& masks, const BlockMasks& spill) noexcept {
  masks.upper |= spill.upper;
  masks.lower |= spill.lower;
  masks.cjk |= spill.cjk;
  masks.hard |= spill.hard;
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
  if constexpr (R.has_hard()) add_more(masks, spill);
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
    if constexpr (R.has_hard()) add_more<R>(masks, here, c.value, set);
    if (at + static_cast<int>(c.length) > 64) {
      uint64_t there = bytes >> (64 - at);
      if constexpr (R.has_hard()) add_more<R>(spill, there, c.value, set);
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
  masks.hard &= keep;
}

}  // namespace tok
