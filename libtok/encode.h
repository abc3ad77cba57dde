// SPDX-License-Identifier: MIT
// From pieces to ids: the hot loop, and the way of a piece that is not in a table. This is the seam
// between cutting (pretokenize.h, boundaries.h) and the text-level work (tokenizer.cc).
// The loop exists once plainly and once for AVX-512, four pieces at a time (encode_x86.cc).
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

/// Working memory of one worker for encode_pieces: at most 8 MiB with the defaults.
struct PieceScratch {
  /// Entries of the second table of short pieces and of the table of long ones; 0 switches one off.
  explicit PieceScratch(size_t num_short = kDefaultShort,
                        size_t num_long = PieceCache::kDefaultLong)
      : hot(num_short), cache(num_short == 0 ? 0 : kSegments, num_long) {}

  static constexpr size_t kDefaultShort = size_t{1} << 16;  ///< 2 MiB
  static constexpr size_t kSegments = size_t{1} << 12;      ///< 256 KiB

  HotScratch hot;
  PieceCache cache;
  MergeScratch merge;
};

/// Appends the ids of neighbouring pieces. Piece i is text[ends[i-1] .. ends[i]), the first begins
/// at `begin`. Results depend neither on the tables' contents nor on the level.
/// Range: ends ascending, the last no more than text.size(); a piece is shorter than 2^31 bytes.
/// State: `text` may be read up to its own end, no further.
void encode_pieces(const PieceModel& model, std::string_view text, size_t begin,
                   std::span<const uint32_t> ends, PieceScratch& scratch, TokenBuffer& out);

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

  /// Words that a loop may write past the last id, an entry's padding included.
  static constexpr size_t kWordsPerPiece = 8;

  /// Encodes text[from..to), which the first table does not have, after the ids that end at `ids`;
  /// returns where the next ids go, with room for `pieces_left` more pieces.
  int32_t* encode_missed(size_t from, size_t to, int32_t* ids, size_t pieces_left);
};

/// The loop for AVX-512. Range: the processor has SimdLevel::avx512bw.
void encode_pieces_avx512(PieceRun& run, std::span<const uint32_t> ends);

}  // namespace tok
