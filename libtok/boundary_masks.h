// SPDX-License-Identifier: MIT
// The class masks of a block of 64 bytes: which pattern needs which (Rules), the characters that
// are not ASCII, the end of the text. Inlined into each scan of boundaries_x86.cc, so that it is
// compiled for that scan's instructions. boundary_rules.h computes starts from them. Not for users
// of the library. Includes: boundaries.h, unicode.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libtok/boundaries.h"
#include "libtok/unicode.h"

namespace tok {

/// The differences between patterns that matter for masks.
struct Rules {
  bool lines = false;         ///< cl100k's form: newlines, prefixes of words, any-case contractions
  int digits = 0;             ///< N{1,digits}; 0: runs
  bool digits_first = false;  ///< Digits(individual) cuts before the pattern does
  bool marks_are_letters = false;
  bool whole_tail = false;  ///< white space up to the text's end is one piece
  bool contractions = true;
  bool cased = false;       ///< o200k's words: upper letters, then lower ones; then a contraction
  bool slash_tail = false;  ///< slashes may follow the newlines after signs
  bool cjk = false;         ///< DeepSeek-V3: numbers and CJK runs are cut out first
  bool ascii_sign = false;  ///< only an ASCII sign begins a word, and only one of ASCII letters

  /// Whether there are characters without mask rules.
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

/// Masks of bytes past the end of the text.
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

/// The characters of Family::cjk_runs.
[[gnu::always_inline]] inline bool is_cjk(char32_t c) noexcept {
  return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

/// The classes that words are made of.
template <Rules R>
constexpr ClassSet word_classes() noexcept {
  return R.marks_are_letters ? kLetter | kMark : kLetter;
}
/// Classes without mask rules, in families that have such.
template <Rules R>
constexpr ClassSet hard_classes() noexcept {
  return R.cased ? kMark : kOther;
}
/// Whether a pattern treats a character of the class `set` as a number.
template <Rules R>
[[gnu::always_inline]] inline bool is_number(char32_t c, ClassSet set) noexcept {
  return R.digits_first ? is_rust_number(c) : (set & kNumber) != 0;
}

/// The masks that only some families have, for a character with these bytes.
template <Rules R>
[[gnu::always_inline]] inline void add_more(BlockMasks& masks, uint64_t bytes, char32_t c,
                                            ClassSet set) noexcept {
  masks.upper |= bytes & all_if(set & (kUpper | kTitle));
  masks.lower |= bytes & all_if(set & kLower);
  if constexpr (R.cjk) masks.cjk |= bytes & all_if(is_cjk(c));
  masks.hard |= bytes & all_if(set & hard_classes<R>());
}

/// Adds the masks of characters that are not ASCII.
template <Rules R>
[[gnu::always_inline]] inline void add_masks(BlockMasks& masks, const BlockMasks& more) noexcept {
  masks.letter |= more.letter;
  masks.number |= more.number;
  masks.white |= more.white;
  masks.inside |= more.inside;
  masks.cut |= more.cut;
  if constexpr (R.has_hard()) {
    masks.upper |= more.upper;
    masks.lower |= more.lower;
    masks.cjk |= more.cjk;
    masks.hard |= more.hard;
  }
}

/// Sets the same masks, one by one: reading one word while a wider store of it and its neighbours
/// is in flight would stall.
template <Rules R>
[[gnu::always_inline]] inline void set_masks(BlockMasks& masks, const BlockMasks& to) noexcept {
  masks.letter = to.letter;
  masks.number = to.number;
  masks.white = to.white;
  masks.inside = to.inside;
  masks.cut = to.cut;
  if constexpr (R.has_hard()) {
    masks.upper = to.upper;
    masks.lower = to.lower;
    masks.cjk = to.cjk;
    masks.hard = to.hard;
  }
}

/// Decodes the characters of a block that are not ASCII, whose bytes are `todo`, and sets their
/// masks: in the block, and for a character that continues in the next block, there. Continuation
/// bytes that belong to no well-formed character stay signs.
template <Rules R>
[[gnu::noinline]] void classify_high(std::string_view text, const JoinablePairs* joinable,
                                     size_t base, uint64_t todo, BlockMasks& masks,
                                     BlockMasks& spill) noexcept {
  BlockMasks in{}, over{};
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
    uint64_t letter = all_if(set & word_classes<R>()), white = all_if(set & kSpace);
    uint64_t number = all_if(is_number<R>(c.value, set));
    in.cut |= cut & ~white;  // a white run may have a pending start in it
    in.letter |= here & letter;
    in.number |= here & number;
    in.white |= here & white;
    in.inside |= here & (here - 1);
    if constexpr (R.has_hard()) add_more<R>(in, here, c.value, set);
    if (at + static_cast<int>(c.length) > 64) {
      uint64_t there = bytes >> (64 - at);
      over.letter = there & letter;
      over.number = there & number;
      over.white = there & white;
      over.inside = there;
      if constexpr (R.has_hard()) add_more<R>(over, there, c.value, set);
    }
  }
  set_masks<R>(masks, in);
  set_masks<R>(spill, over);
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
