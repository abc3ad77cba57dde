// SPDX-License-Identifier: MIT
// Byte-pair encoding of one piece. merge_piece_plain is the law, written to be read; merge_piece
// gives the same ids in O(n log n) whatever the piece, merge_windows in little memory; ExactCut
// says where a piece can be cut in two without changing any id.
// Not here: cutting text into pieces (pretokenize.h), remembering pieces (piece_cache.h). Includes:
// vocab.h, token_buffer.h; joinable_pairs.h. Source: Sennrich et al. 2016; merge
// order of Hugging Face tokenizers 0.23 (models/bpe/word.rs) and tiktoken 0.14: lowest rank first,
// among equals the leftmost.
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

/// Appends the ids of a piece, by the textbook: find the neighbours of lowest rank, merge them, and
/// begin again. Quadratic. A whole-piece look-up is the caller's business.
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
/// over at a token that both have. False, with `out` as it was, where two windows have none in
/// common or a byte has no token: merge_piece must do it. Equals merge_piece_plain.
/// Why it is exact: in a row of tokens that merging gives, any two neighbours are what merging
/// gives for their bytes alone, since no merge ever crossed the ends of the two. And a row of which
/// that is true for all neighbours is what merging gives: the first merge to cross an end in it
/// would be the one that merging the two tokens' bytes alone takes at that moment.
bool merge_windows(const Vocab& vocab, std::string_view piece, size_t window, MergeScratch& scratch,
                   TokenBuffer& out);

/// Where no merge can cross: a position that no token, put anywhere over it, can span given the
/// bytes around it. Cutting there leaves ids as they are, because merges on one side neither enable
/// nor block merges on the other. The test may miss such positions; it never invents one.
/// A whole-piece look-up must come before the cut.
class ExactCut {
 public:
  /// Of a vocabulary without merges.
  ExactCut() = default;

  /// Wide characters are asked as a whole where more than `few_wide` of the 1,024 pairs of bytes
  /// between two of them may join: in cl100k 279, in NeoX's vocabulary 61; in GPT-2's 45, where two
  /// bytes tell enough, and sooner.
  explicit ExactCut(const Vocab& vocab, int few_wide = 50);

  /// Whether `piece` can be cut before byte `at`. Range: 0 < at < piece.size().
  bool can_cut(std::string_view piece, size_t at) const noexcept {
    if (!neighbours_.joins(static_cast<uint8_t>(piece[at - 1]), static_cast<uint8_t>(piece[at]))) {
      return true;
    }
    return !may_span(piece, at);
  }

  /// Bytes that some merge may join. A position between two others is a cut, whatever stands around
  /// them.
  const JoinablePairs& neighbours() const noexcept { return neighbours_; }

 private:
  bool may_span(std::string_view piece, size_t at) const noexcept;
  void add_context(std::string_view token, size_t at, std::unordered_set<uint64_t>& marked);

  /// Bytes that are neighbours inside a token, and what stands around them.
  JoinablePairs neighbours_;
  /// Bytes without a token vanish or become unk_id, so no context may hold one.
  bool missing_[256] = {};
};

}  // namespace tok
