// SPDX-License-Identifier: MIT
// From pieces to ids: the hot loop, and the way of a piece that is not in a table. This is the seam
// between cutting (pretokenize.h, boundaries.h) and the text-level work (tokenizer.cc).
// The loop exists once plainly, and twice for four pieces at a time (encode_sse2.cc,
// encode_x86.cc).
// Includes: boundaries.h, hot_table.h, merge.h, piece_cache.h, token_buffer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "libtok/boundaries.h"
#include "libtok/hot_table.h"
#include "libtok/merge.h"
#include "libtok/piece_cache.h"
#include "libtok/token_buffer.h"
#include "libtok/vocab.h"

namespace tok {

/// What is known of a tokenizer where pieces become ids. Immutable, shared by threads.
struct PieceModel {
  const Vocab& vocab;
  const ExactCut& cut;
  const HotTable& hot;
  SimdLevel level;

  /// Whether a text may be cut inside its pieces wherever ExactCut allows, each part being looked
  /// up like a piece: a part never means something else than the same bytes as a piece.
  bool parts_are_pieces() const noexcept {
    return !vocab.whole_piece_first() || !hot.has_unreachable_tokens();
  }
};

/// Working memory of one worker for encode_pieces: a stated constant (docs/tokenizer-speed.md).
struct PieceScratch {
  /// Entries of the second table of short pieces and of the table of long ones; 0 switches one off.
  explicit PieceScratch(size_t num_short = kDefaultShort,
                        size_t num_long = PieceCache::kDefaultEntries)
      : hot(num_short), cache(num_long) {}

  static constexpr size_t kDefaultShort = size_t{1} << 16;  ///< 2 MiB

  HotScratch hot;
  PieceCache cache;
  MergeScratch merge;
  std::vector<int32_t> merged;
};

/// Appends the ids of neighbouring pieces. Piece i is text[ends[i-1] .. ends[i]), the first begins
/// at `begin`. Results depend neither on the tables' contents nor on the level.
/// Range: ends ascending, the last no more than text.size(); a piece is shorter than 2^31 bytes;
/// with a buffer of IdWidth::two all ids of the vocabulary are below 65,536.
/// State: `text` may be read up to its own end, no further.
void encode_pieces(const PieceModel& model, std::string_view text, size_t begin,
                   std::span<const uint32_t> ends, PieceScratch& scratch, TokenBuffer& out);

/// What becomes of the texts of a row (boundaries.h) beside their ids.
struct TextLengths {
  int32_t end_id = kNoId;            ///< appended to each text that has ids; kNoId: nothing is
  size_t begin = 0;                  ///< index in the buffer of the current text's first id
  std::vector<int32_t> counts = {};  ///< ids of each text that ended, end_id counted

  /// Ends a text whose ids lie before `ids`, in `out`; there is room for one more.
  template <typename Id>
  Id* end_text(const TokenBuffer& out, Id* ids) {
    size_t at = static_cast<size_t>(ids - out.data<Id>());
    if (at > begin && end_id != kNoId) {
      *ids++ = static_cast<Id>(end_id);
      ++at;
    }
    counts.push_back(static_cast<int32_t>(at - begin));
    begin = at;
    return ids;
  }
};

/// encode_pieces for a row of texts: behind the groups of four pieces that `marks` numbers, a text
/// ends.
void encode_texts(const PieceModel& model, std::string_view all, size_t begin,
                  std::span<const uint32_t> ends, std::span<const uint32_t> marks,
                  TextLengths& lengths, PieceScratch& scratch, TokenBuffer& out);

/// Appends the ids of one piece by the plain law: whole-piece look-up if the vocabulary has it,
/// else merge_piece_plain. What encode_pieces must equal.
void encode_piece_plain(const Vocab& vocab, std::string_view piece, std::vector<int32_t>& out);

/// A run of encode_pieces, as the loops and the slow path share it. Not for other callers.
struct PieceRun {
  const PieceModel& model;
  std::string_view text;
  size_t begin;  ///< of the piece after the last one encoded
  PieceScratch& scratch;
  TokenBuffer& out;
  std::span<const uint32_t> marks = {};
  TextLengths* lengths = nullptr;

  /// Words that a loop may write past the last id, an entry's padding included.
  static constexpr size_t kWordsPerPiece = 8;

  /// Encodes text[from..to), which the first table does not have, after the ids that end at `ids`;
  /// returns where the next ids go, with room for `pieces_left` more pieces.
  template <typename Id>
  Id* encode_missed(size_t from, size_t to, Id* ids, size_t pieces_left);
};

/// The loop for every x86-64 processor.
void encode_pieces_sse2(PieceRun& run, std::span<const uint32_t> ends);

/// The loop for AVX-512. Range: the processor has SimdLevel::avx512bw.
void encode_pieces_avx512(PieceRun& run, std::span<const uint32_t> ends);

}  // namespace tok
