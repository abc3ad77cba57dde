// SPDX-License-Identifier: MIT
// Byte-pair encoding of one piece. merge_piece_plain is the reference, written to be read;
// merge_piece gives the same ids in O(n log n) for any piece, merge_windows in little memory;
// ExactCut says where a piece can be cut in two without changing any id. Not here: cutting text
// into pieces (pretokenize.h), caching pieces (piece_cache.h). Includes: vocab.h, token_buffer.h;
// joinable_pairs.h. Source: Sennrich et al. 2016; merge order of Hugging Face tokenizers 0.23
// (models/bpe/word.rs) and tiktoken 0.14: lowest rank first, among equals the leftmost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "libtok/joinable_pairs.h"
#include "libtok/token_buffer.h"
#include "libtok/vocab.h"

namespace tok {

/// Appends the ids of a piece by the textbook algorithm: finds the neighbours of lowest rank,
/// merges them, and repeats. Quadratic. The caller does the whole-piece look-up.
void merge_piece_plain(const Vocab& vocab, std::string_view piece, std::vector<int32_t>& ids);

/// Working memory of merge_piece, kept between calls.
struct MergeScratch {
  struct Symbol {
    int32_t id;
    uint32_t next;
    uint32_t previous;
    Merge merge;  ///< with the symbol after it
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;
  std::vector<int32_t> window;       ///< ids of merge_windows' window,
  std::vector<int32_t> next_window;  ///< and of the one that overlaps its end
};

/// Writes the ids of a piece to `ids`, which has room for piece.size() of them, and returns their
/// number. Equals merge_piece_plain. Cost: O(n log n); no allocation for pieces of 32 bytes or
/// less. Range: piece.size() < 2^31.
size_t merge_piece(const Vocab& vocab, std::string_view piece, MergeScratch& scratch, int32_t* ids);

/// Appends the ids of a piece of any length, and takes memory for `window` bytes of it at a time:
/// each window begins at an end of a token of the one before, overlaps it by a quarter, and takes
/// over at a token that both have. Returns false, with `out` unchanged, if two windows have none in
/// common or a byte has no token: then use merge_piece. Equals merge_piece_plain. Proof: in a
/// result of merging, any two neighbouring tokens are also the result of merging their bytes alone,
/// since no merge crossed the outer ends of the two. Conversely, a sequence of tokens for which
/// this holds for all neighbours is the result of merging: the first merge to cross an end in it
/// would also happen when the two tokens' bytes are merged alone.
bool merge_windows(const Vocab& vocab, std::string_view piece, size_t window, MergeScratch& scratch,
                   TokenBuffer& out);

/// Positions that no merge can cross: given the bytes around it, no token can span such a position.
/// Cutting there does not change ids, because merges on one side neither enable nor block merges on
/// the other. The test may miss such positions, but has no false positives. A whole-piece look-up
/// must come before the cut.
class ExactCut {
 public:
  /// For a vocabulary without merges.
  ExactCut() = default;

  /// Wide characters are tested as a whole if more than `few_wide` of the 1,024 pairs of bytes
  /// between two of them may join: 279 in cl100k, 61 in NeoX's vocabulary; in GPT-2's 45, where
  /// testing two bytes is enough, and faster.
  explicit ExactCut(const Vocab& vocab, int few_wide = 50);

  /// Whether `piece` can be cut before byte `at`. Range: 0 < at < piece.size().
  bool can_cut(std::string_view piece, size_t at) const noexcept {
    if (!neighbours_.joins(static_cast<uint8_t>(piece[at - 1]), static_cast<uint8_t>(piece[at]))) {
      return true;
    }
    return !may_span(piece, at);
  }

  /// Bytes that some merge may join. A position between two bytes that no merge joins is a cut,
  /// whatever is around them.
  const JoinablePairs& neighbours() const noexcept { return neighbours_; }

 private:
  bool may_span(std::string_view piece, size_t at) const noexcept;
  void add_context(std::string_view token, size_t at, std::unordered_set<uint64_t>& marked);

  /// Bytes that are neighbours inside a token, and the bytes around them.
  JoinablePairs neighbours_;
  /// Bytes without a token vanish or become unk_id, so no context may contain one.
  bool missing_[256] = {};
};

}  // namespace tok
