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
  if (run == 64 || (newline >> run & 1) == 0) {
    *out++ = static_cast<uint32_t>(carry.pending);
    carry.last = carry.pending;
  }
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

/// Where a word of o200k's form begins inside a run of letters: at an upper letter behind a lower
/// part, and at the upper letters that end a run if no lower part is before them but a letter that
/// can be either: there the pattern goes back to that letter.
[[gnu::always_inline]] inline uint64_t case_starts(const BlockMasks& now,
                                                   BlockCarry& carry) noexcept {
  uint64_t run = now.letter & ~now.upper;  // a lower part, once there is a lower letter
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

/// Newlines right after signs are theirs, and with slash_tail slashes after such a newline.
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

/// Ends of signs each of which, being alone, belongs to the letters after it.
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

/// First letters of words, inside which only their case cuts. `goes_on`: letters that follow
/// something which belongs to the same word, signs aside.
template <Rules R>
[[gnu::always_inline]] inline uint64_t word_starts(const BlockMasks& now, uint64_t goes_on,
                                                   uint64_t lone, uint64_t edge,
                                                   BlockCarry& carry) noexcept {
  uint64_t after_lone = lone << 1 | carry.lone_sign;
  if constexpr (R.ascii_sign) {
    uint64_t run = now.letter & now.ascii;
    after_lone &= run;
    uint64_t words = run & ~(run + (after_lone | (run & carry.punct_word & 1)));
    // Such a word ends at its first other letter.
    if (((words << 1 | carry.punct_word) & now.letter & ~now.ascii & ~edge) != 0) carry.hard = 1;
    carry.punct_word = words >> 63;
  }
  uint64_t starts = now.letter & ~((goes_on & ~edge) | after_lone);
  if constexpr (R.cased) starts |= case_starts(now, carry);
  return starts;
}

/// Starts of the patterns in cl100k's form, before contractions.
template <Rules R>
[[gnu::always_inline]] inline uint64_t line_family_starts(const BlockMasks& now,
                                                          const BlockMasks& next, size_t base,
                                                          BlockCarry& carry,
                                                          uint32_t*& out) noexcept {
  // Where a run of CJK begins or ends, everything ends.
  uint64_t edge = R.cjk ? now.cjk ^ (now.cjk << 1 | carry.cjk) : 0;
  uint64_t sign = ~(now.letter | now.number | now.white);
  uint64_t taken = newlines_of_signs<R>(now, (sign << 1 | carry.sign) & ~edge, carry);
  if constexpr (R.slash_tail) sign &= ~taken;
  uint64_t white = now.white & ~taken, newline = now.newline & ~taken;
  uint64_t indent = now.white & ~now.newline;
  uint64_t after_indent = indent << 1 | carry.indent;
  // A sign begins a piece unless it goes on a run of signs or has a blank before it.
  uint64_t first_sign = sign & ~((sign << 1 | carry.sign | now.blank << 1 | carry.blank) & ~edge);
  uint64_t lone = lone_signs<R>(now, sign, first_sign, carry);
  uint64_t letters =
      word_starts<R>(now, now.letter << 1 | carry.letter | after_indent, lone, edge, carry);
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
  if constexpr (R.cjk) carry.cjk = now.cjk >> 63;
  return starts;
}

/// o200k's contractions end words: the piece of the letters before the apostrophes in `quotes` goes
/// on to their ends.
template <Rules R>
[[gnu::noinline]] uint64_t join_contractions(std::string_view text, size_t base, uint64_t quotes,
                                             uint64_t starts, unsigned __int128 either,
                                             BlockCarry& carry) noexcept {
  using Wide = unsigned __int128;
  Wide fresh = 0;  // ends of contractions: an apostrophe there follows no word
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
    // The letter after it is in no lower part, whatever the masks say.
    if ((either >> end & 1) != 0) carry.hard = 1;
  }
  return starts;
}

/// Moves the starts as contractions want it.
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
    // In cl100k's form an apostrophe after a blank is no start, and neither is one in a run.
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
