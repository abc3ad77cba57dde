// From pieces to ids: the hot loop, and the way of a piece that is not in the cache. This is the
// seam between cutting (pretokenize.h, boundaries.h) and the text-level work (tokenizer.cc).
// Includes: merge.h, piece_cache.h, token_buffer.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "libtok/merge.h"
#include "libtok/piece_cache.h"
#include "libtok/token_buffer.h"
#include "libtok/vocab.h"

namespace tok {

/// Working memory of one worker for encode_pieces.
struct PieceScratch {
  explicit PieceScratch(size_t num_short = PieceCache::kDefaultShort,
                        size_t num_long = PieceCache::kDefaultLong)
      : cache(num_short, num_long) {}

  PieceCache cache;
  MergeScratch merge;
};

/// Appends the ids of neighbouring pieces. Piece i is text[ends[i-1] .. ends[i]), the first begins
/// at `begin`. Results do not depend on the cache's contents.
/// Range: ends ascending, the last no more than text.size(); a piece is shorter than 2^31 bytes.
/// State: `text` may be read up to its own end, no further.
void encode_pieces(const Vocab& vocab, const ExactCut& cut, std::string_view text, size_t begin,
                   std::span<const uint32_t> ends, PieceScratch& scratch, TokenBuffer& out);

/// Appends the ids of one piece by the plain law: whole-piece look-up if the vocabulary has it,
/// else merge_piece_plain. What encode_pieces must equal.
void encode_piece_plain(const Vocab& vocab, std::string_view piece, std::vector<int32_t>& out);

}  // namespace tok
