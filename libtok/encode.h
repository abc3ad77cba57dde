// SPDX-License-Identifier: MIT
// From pieces to ids: the hot loop, and the path of a piece that is not in a table. This connects
// cutting (pretokenize.h, boundaries.h) and the text-level work (tokenizer.cc). The loop exists
// once plainly, and twice for four pieces at a time (encode_avx2.cc, encode_x86.cc). Includes:
// boundaries.h, hot_table.h, merge.h, piece_cache.h, token_buffer.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// The parts of a tokenizer that turn pieces into ids. Immutable, shared by threads.
struct PieceModel {
  const Vocab& vocab;
  const ExactCut& cut;
  const HotTable& hot;
  SimdLevel level;

  /// Whether a text may be cut inside its pieces wherever ExactCut allows, each part being looked
  /// up like a piece: a part always has the same ids as a piece of the same bytes.
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

  static constexpr size_t kDefaultShort = size_t{1} << 17;  ///< 4 MiB

  HotScratch hot;
  PieceCache cache;
  MergeScratch merge;
  std::vector<int32_t> merged;
};

/// Results for the texts of a row (boundaries.h) besides their ids.
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

/// Appends the ids of one piece by the reference implementation: whole-piece look-up if the
/// vocabulary has it, else merge_piece_plain. PieceRun must equal it.
void encode_piece_plain(const Vocab& vocab, std::string_view piece, std::vector<int32_t>& out);

/// The last bytes of a text with room after them, so that 16 can be read from any position.
struct TextTail {
  std::array<char, 48> bytes{};
  size_t from;  ///< position in the text of bytes[0]

  explicit TextTail(std::string_view text) noexcept
      : from(text.size() - std::min<size_t>(16, text.size())) {
    std::memcpy(bytes.data(), text.data() + from, text.size() - from);
  }
  const char* at(std::string_view text, size_t position) const noexcept {
    return position + 16 <= text.size() ? text.data() + position : bytes.data() + (position - from);
  }
};

/// Four pieces whose keys are made, queued for the look-up.
struct alignas(128) WaitingGroup {
  uint8_t keys[64];       ///< four keys of 16 bytes
  const char* places[4];  ///< where a key's first place lies
  uint32_t begins[4];     ///< of the pieces in the text
  uint32_t ends[4];
};

/// Encodes consecutive pieces, in blocks. Results do not depend on the tables' contents, the level
/// or the blocks.
/// Range: a piece is shorter than 2^31 bytes; with a buffer of IdWidth::two all ids of the
/// vocabulary are below 65,536. State: `text` may be read up to its own end, no further.
class PieceRun {
 public:
  static constexpr size_t kBlock = 1024;  ///< most pieces of one add()

  /// The first piece begins at `begin`. `lengths`: null, or receives the ends of texts.
  PieceRun(const PieceModel& piece_model, std::string_view whole_text, size_t begin,
           PieceScratch& piece_scratch, TokenBuffer& ids, TextLengths* text_lengths = nullptr);

  /// Where the ends of the next pieces go, ascending, the last no more than text.size().
  std::span<uint32_t> room() noexcept { return {bounds.data() + 1, kBlock}; }

  /// Takes `count` pieces, whose ends are in room(); a text ends behind each of their groups of
  /// four that `marks` numbers. The ids of the last few may be appended only by a later call.
  void add(size_t count, std::span<const uint32_t> marks = {});

  /// Appends the remaining ids. Call at the end.
  void finish();

  // For the loops:

  /// How many groups of four pieces have their keys made before the first of them is looked up:
  /// while one group is encoded, the tables' lines for the next ones are prefetched.
  static constexpr size_t kAhead = 32;
  /// Words that a loop may write past the last id, an entry's padding included.
  static constexpr size_t kWordsPerPiece = 8;
  /// Words that may be written by one add() or finish() before encode_missed() is called.
  static constexpr size_t kWords = (kBlock + 4 * kAhead + 1) * kWordsPerPiece;

  /// Encodes text[from..to), which the first table does not have, after the ids that end at `ids`;
  /// returns where the next ids go, with room for kWords.
  template <typename Id>
  Id* encode_missed(size_t from, size_t to, Id* ids);

  /// Groups to be encoded before the next text ends.
  size_t groups_to_text_end() const noexcept {
    return first_mark == num_marks ? SIZE_MAX : marks[first_mark] - encoded;
  }

  const PieceModel& model;
  const std::string_view text;
  PieceScratch& scratch;
  TokenBuffer& out;
  TextLengths* const lengths;
  const TextTail tail;
  size_t made = 0;                           ///< groups whose keys are made, those encoded included
  size_t encoded = 0;                        ///< groups
  std::array<uint32_t, kBlock + 8> bounds;   ///< piece i of a block is bounds[i] .. bounds[i + 1]
  std::array<WaitingGroup, kAhead> waiting;  ///< group g is waiting[g % kAhead]
  std::array<uint32_t, kBlock / 4 + kAhead> marks;  ///< groups behind which a text ends
  size_t first_mark = 0;                            ///< of those that were not reached
  size_t num_marks = 0;
};

/// Appends the ids of neighbouring pieces, as PieceRun does. Piece i is text[ends[i-1] .. ends[i]),
/// the first begins at `begin`.
void encode_pieces(const PieceModel& model, std::string_view text, size_t begin,
                   std::span<const uint32_t> ends, PieceScratch& scratch, TokenBuffer& out);

/// The loops: add() and finish() for groups of four, whose number is that of the block. Range: the
/// processor has SimdLevel::avx2 or SimdLevel::avx512bw.
void add_groups_avx2(PieceRun& run, size_t num_groups);
void finish_groups_avx2(PieceRun& run);
void add_groups_avx512(PieceRun& run, size_t num_groups);
void finish_groups_avx512(PieceRun& run);

}  // namespace tok
