// SPDX-License-Identifier: MIT
// The cuts of pretokenize.h, sixty-four bytes at a time: a block becomes one bit mask per character
// class, and a few dozen operations on 64-bit words find every place where a piece begins.
// Carries between blocks are exact, so a text may be of any length and alignment, and short texts
// take the same path. Not here: the rules (pretokenize.h), the encoding of pieces (encode.h).
// Includes: pretokenize.h, joinable_pairs.h. Positions are bytes in a segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "libtok/joinable_pairs.h"
#include "libtok/pretokenize.h"

namespace tok {

/// Which instructions are used. Each level includes the ones before it; results never differ.
enum class SimdLevel : uint8_t {
  plain,        ///< the scanners of pretokenize.h
  avx2,         ///< AVX2, BMI1, BMI2
  avx512bw,     ///< AVX-512 F, BW, DQ, VL
  avx512vbmi2,  ///< the same with VBMI, VBMI2 (Ice Lake, Zen 4)
};

/// "plain", "avx2", "avx512bw" or "avx512vbmi2".
std::string_view simd_level_name(SimdLevel level) noexcept;

/// The best level of this processor.
SimdLevel best_simd_level() noexcept;

/// The level to use: the best one, lowered by TOK_FORCE_LEVEL=NAME or TOK_FORCE_SCALAR=1 in the
/// environment. A level that this processor does not have gives the best one below it.
SimdLevel chosen_simd_level() noexcept;

/// True when the cuts of `pretokenizer` are found by masks; others are found by the plain scanners.
bool has_boundary_masks(const PreTokenizer& pretokenizer) noexcept;

/// Masks of one block. Bit i is for byte i; all bytes of a character have its class. Bytes past
/// the end of the text count as white space.
struct BlockMasks {
  uint64_t letter;
  uint64_t number;
  uint64_t white;    ///< \s
  uint64_t blank;    ///< U+0020
  uint64_t newline;  ///< CR and LF
  uint64_t quote;    ///< U+0027
  uint64_t inside;   ///< not the first byte of its character
  uint64_t cut;      ///< a place where a piece may be cut inside
  // Only some families use these (Rules in boundary_masks.h):
  uint64_t upper;  ///< letters that begin words: Lu, Lt
  uint64_t lower;  ///< letters that end the upper part of a word: Ll
  uint64_t slash;  ///< U+002F
  uint64_t ascii;  ///< below U+0080
  uint64_t cjk;    ///< the characters of Family::cjk_runs
  uint64_t hard;   ///< characters without mask rules: the scanners cut the block
};

/// State passed from one block to the next.
struct BlockCarry {
  BlockMasks spill{};   ///< bits of a character that continues in the next classified block
  uint64_t letter = 0;  ///< of the last byte of the block: 0 or 1, like the eight after it
  uint64_t number = 0;
  uint64_t sign = 0;   ///< not letter, number or white
  uint64_t white = 0;  ///< white and not taken
  uint64_t blank = 0;
  uint64_t indent = 0;     ///< white but not newline
  uint64_t newline = 0;    ///< newline and not taken
  uint64_t taken = 0;      ///< newline that belongs to the signs before it
  uint64_t lone_sign = 0;  ///< end of a sign that becomes part of the word of a letter directly
                           ///< after it
  uint64_t cut = 0;        ///< starts that a contraction puts into the next block
  uint64_t no_cut = 0;     ///< and the start that it removes there
  uint64_t digits = 0;     ///< number characters since the last start in an unfinished run, 1..3
  uint64_t pending = 0;    ///< a start if no newline follows in an unfinished white run; 0: none
  uint64_t low = 0;        ///< in the lower part of a word
  uint64_t either = 0;     ///< a caseless letter, outside a lower part
  uint64_t cjk = 0;
  uint64_t punct_word = 0;  ///< an ASCII letter of a word that begins with a sign
  uint64_t hard = 0;        ///< 1 if the scanners must cut a block
  uint64_t last = 0;        ///< the last place where a piece begins, cuts inside not counted
  uint64_t newest = 0;      ///< the same, including the current block
  uint64_t origin = 0;      ///< place of the text in what is scanned
};

/// Concatenated texts that are cut independently. After a text's last piece come empty pieces, so
/// that the number of pieces of one next() is a multiple of four.
struct TextRow {
  std::span<const uint32_t> ends;  ///< of the texts, ascending; no text is empty
  uint32_t* marks;       ///< where next() writes which groups of four pieces are the last of a
                         ///< text: a number of groups, counted from the first of that next()
  size_t num_marks = 0;  ///< how many the last next() wrote: at most a quarter of its capacity
};

/// Finds the pieces of one segment, or of a row of texts, in batches. A value type without
/// allocation; the scanned text must outlive it.
class BoundaryScan {
 public:
  /// Largest segment, and all texts of a row together.
  static constexpr size_t kMaxSegment = 0xFFFFFF00u;
  /// Smallest buffer for next().
  static constexpr size_t kMinBatch = 192;

  /// `joinable`: null, or which bytes some merge may join. With it pieces are also cut inside,
  /// before characters of three or four bytes whose first byte does not join the byte before it.
  /// Levels differ in how many such cuts they find; level plain finds none.
  /// Range: segment.size() <= kMaxSegment.
  BoundaryScan(const PreTokenizer& pretokenizer, std::string_view segment,
               SimdLevel level = chosen_simd_level(),
               const JoinablePairs* joinable = nullptr) noexcept;

  /// The same for a row of texts, which are at the beginning of `all`; positions are in `all`.
  BoundaryScan(const PreTokenizer& pretokenizer, std::string_view all, TextRow& row,
               SimdLevel level, const JoinablePairs* joinable) noexcept;

  /// Writes where the next pieces end, ascending, and returns how many; 0 at the end.
  /// Bytes of `ends` past that count, inside `capacity`, may be overwritten. Never reads past the
  /// segment, or the text of a row. Range: capacity >= kMinBatch.
  size_t next(uint32_t* ends, size_t capacity) noexcept;

 private:
  using Walk = size_t (*)(BoundaryScan&, uint32_t*, size_t) noexcept;
  friend struct BlockWalk;

  static size_t walk_plain(BoundaryScan& self, uint32_t* ends, size_t capacity) noexcept;
  bool next_text(const uint32_t* ends, uint32_t*& out) noexcept;
  size_t cut_plainly(size_t from, size_t limit, uint32_t*& out) noexcept;

  Walk walk_;
  bool done_;
  std::string_view text_;
  size_t origin_ = 0;  ///< place of text_ in what is scanned
  size_t base_ = 0;    ///< first byte in text_ of the block of `masks_`, if not 0
  const JoinablePairs* joinable_;
  TextRow* row_ = nullptr;
  size_t next_text_ = 1;
  BlockMasks masks_{};
  BlockCarry carry_;
  PieceCutter cutter_;  ///< used only at level plain
};

/// The end of a text has been written: fills its last group of four, records it, and moves to the
/// next text. False if there is none.
[[gnu::always_inline]] inline bool BoundaryScan::next_text(const uint32_t* ends,
                                                           uint32_t*& out) noexcept {
  if (row_ == nullptr) return false;
  const uint32_t end = out[-1];
  out[0] = out[1] = out[2] = end;
  out += (ends - out) & 3;
  row_->marks[row_->num_marks++] = static_cast<uint32_t>((out - ends) / 4);
  if (next_text_ == row_->ends.size()) return false;
  text_ = {text_.data() + text_.size(), row_->ends[next_text_++] - end};
  origin_ = end;
  return true;
}

}  // namespace tok
