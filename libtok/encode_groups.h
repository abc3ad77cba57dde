// SPDX-License-Identifier: MIT
// What the loops of encode_x86.cc and encode_sse2.cc share: batches, groups of four pieces,
// the end of the text, where texts end. Not for other callers. Includes: encode.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "libtok/encode.h"

namespace tok {

/// Pieces of a batch: their bounds stay in the first-level cache.
inline constexpr size_t kBatch = 1024;

/// Groups of four pieces whose keys are made before the first of them is looked up: while one group
/// is encoded, the lines of the tables that the next ones need are on the way.
inline constexpr size_t kAhead = 32;

/// Piece i is bounds[i] .. bounds[i + 1].
using PieceBounds = std::array<uint32_t, kBatch + 8>;

/// Logarithm of an entry's size.
inline constexpr int kLogEntry = 5;
static_assert(sizeof(HotEntry) == 1 << kLogEntry);

/// The last bytes of a text with room behind them, so that 16 can be read from any position.
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

/// Where texts end among the groups of a run.
struct TextEnds {
  std::span<const uint32_t> marks;  ///< of the texts that have not ended
  size_t groups_before = 0;         ///< of the run, before the batch

  /// Ends the texts whose last group is the one before group `g` of the batch.
  template <typename Id>
  Id* end_texts(PieceRun& run, size_t g, Id* ids) {
    for (; next() == g; marks = marks.subspan(1)) ids = run.lengths->end_text(run.out, ids);
    return ids;
  }

  /// The group of the batch before which the next text ends.
  size_t next() const noexcept { return marks.empty() ? SIZE_MAX : marks.front() - groups_before; }
};

/// The entries that a run searches first.
inline const char* entries_of(const PieceRun& run) noexcept {
  return reinterpret_cast<const char*>(run.scratch.hot.entries(run.model.hot));
}

/// Hands a run's pieces to `encode_batch(bounds, num_groups, text_ends, ids)`, which returns where
/// the next ids go. A group that is not full is filled up with pieces of no bytes.
template <typename Id, typename EncodeBatch>
void encode_in_batches(PieceRun& run, std::span<const uint32_t> ends, EncodeBatch encode_batch) {
  PieceBounds bounds;
  TextEnds text_ends{.marks = run.marks};
  while (!ends.empty()) {
    const size_t count = std::min(kBatch, ends.size());
    const size_t num_groups = (count + 3) / 4;
    bounds[0] = static_cast<uint32_t>(run.begin);
    std::memcpy(&bounds[1], ends.data(), count * sizeof(uint32_t));
    for (size_t i = 0; i < 4; ++i) bounds[count + 1 + i] = bounds[count];
    Id* ids = run.out.reserve_more<Id>((kBatch + 1) * PieceRun::kWordsPerPiece);
    run.out.advance_to(encode_batch(bounds, num_groups, text_ends, ids));
    text_ends.groups_before += num_groups;
    run.begin = bounds[count];
    ends = ends.subspan(count);
  }
}

/// Encodes a group that has a piece which is not in its first place; `keys` and `bounds` are those
/// of its pieces.
template <bool kNarrow, typename Id>
[[gnu::noinline]] Id* encode_one_by_one(PieceRun& run, const uint8_t* keys, const uint32_t* bounds,
                                        Id* ids) {
  for (size_t i = 0; i < 4; ++i) {
    // An earlier piece of the group may have changed the entries: look again.
    const HotEntry* entries = run.scratch.hot.entries(run.model.hot);
    PieceKey key;
    std::memcpy(&key, keys + 16 * i, sizeof key);
    const size_t place = HotTable::place_of(hot_hash(key));
    const HotEntry* entry = find_entry(entries, place, key);
    if (entry == nullptr) {
      ids = run.encode_missed(bounds[i], bounds[i + 1], ids, kBatch);
      continue;
    }
    ids += write_ids<kNarrow>(entry->words, ids);
    if (entry != &entries[place]) run.scratch.hot.found_in_second(place);
  }
  return ids;
}

}  // namespace tok
