// SPDX-License-Identifier: MIT
// Byte-pair encoding of one piece. merge_piece_plain is the law, written to be read; merge_piece
// gives the same ids in O(n log n) whatever the piece; ExactCut says where a piece can be cut in
// two without changing any id.
// Not here: cutting text into pieces (pretokenize.h), remembering pieces (piece_cache.h). Includes:
// vocab.h; boundaries.h for JoinablePairs. Source: Sennrich et al. 2016; merge order of Hugging
// Face tokenizers 0.23 (models/bpe/word.rs) and tiktoken 0.14: lowest rank first, among equals the
// leftmost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "libtok/boundaries.h"
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
};

/// Writes the ids of a piece to `ids`, which has room for piece.size() of them, and returns their
/// number. Equals merge_piece_plain. Cost: O(n log n); no allocation for pieces of 32 bytes or
/// less. Range: piece.size() < 2^31.
size_t merge_piece(const Vocab& vocab, std::string_view piece, MergeScratch& scratch, int32_t* ids);

/// Where no merge can cross: a position that no token, put anywhere over it, can span given the
/// bytes around it. Cutting there leaves ids as they are, because merges on one side neither enable
/// nor block merges on the other. The test may miss such positions; it never invents one.
/// A whole-piece look-up must come before the cut.
class ExactCut {
 public:
  explicit ExactCut(const Vocab& vocab);

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
  /// Most bytes on either side of a position that the test looks at.
  static constexpr size_t kContext = 3;

  bool may_span(std::string_view piece, size_t at) const noexcept;
  void add_context(std::string_view left, std::string_view right);

  /// Bytes that are neighbours inside a token.
  JoinablePairs neighbours_;
  /// A Bloom filter of the contexts inside tokens.
  std::vector<uint64_t> contexts_;
  uint64_t contexts_mask_ = 0;
  /// Bytes without a token vanish or become unk_id, so no context may hold one.
  bool missing_[256] = {};
};

}  // namespace tok
