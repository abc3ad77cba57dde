// SPDX-License-Identifier: MIT
// Pieces whose ids are known, found four at a time: a table of 32-byte entries, two to a line,
// keyed by a piece's own bytes. One table, seeded from the vocabulary, is shared by all workers and
// never written; a worker that finds many other pieces makes a copy, to which frequent ones are
// added. An entry holds what merging gives for the whole piece, so contents never change results.
// Not here: what an entry looks like (hot_entry.h), pieces of more than 15 bytes (piece_cache.h),
// the loop (encode_x86.cc). Includes: hot_entry.h, vocab.h, merge.h, zeroed_array.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "libtok/hot_entry.h"
#include "libtok/merge.h"
#include "libtok/parallel_for.h"
#include "libtok/vocab.h"
#include "libtok/zeroed_array.h"

namespace tok {

/// Finds a key among `entries`; null if it is not there. Two neighbouring entries share a cache
/// line: the hash gives one of them, the key's first place, and the other is its second.
inline const HotEntry* find_entry(const HotEntry* entries, size_t place,
                                  const PieceKey& key) noexcept {
  if (entries[place].key == key) return &entries[place];
  return entries[place ^ 1].key == key ? &entries[place ^ 1] : nullptr;
}

using HotEntries = ZeroedArray<HotEntry>;

/// The table that all workers share. Immutable; any number of threads may read.
class HotTable {
 public:
  /// The bit of a hash at which a place begins.
  static constexpr int kShift = 24;
  static constexpr size_t kPlaces = size_t{1} << 19;  ///< 16 MiB

  /// Seeds the table with what merging gives for each token of the vocabulary, small ids first: in
  /// trained vocabularies they are the frequent ones. Cost: merges every token of the vocabulary.
  explicit HotTable(const Vocab& vocab, const ParallelFor& parallel_for = serial_for);

  /// First place of a key's hash, in this table and in copies of it.
  static constexpr size_t place_of(uint64_t hash) noexcept {
    return (hash >> kShift) & (kPlaces - 1);
  }

  /// Whether a place is in the line of the empty piece's key, which stays empty.
  static constexpr bool stays_empty(size_t place) noexcept {
    return place / 2 == place_of(hot_hash({0, 0})) / 2;
  }

  const HotEntry* entries() const noexcept { return entries_.get(); }
  bool narrow() const noexcept { return narrow_; }

  /// Whether a token of the vocabulary is not what merging its bytes gives. Only then can a part of
  /// a piece have other ids than a piece of the same bytes, under whole_piece_first.
  bool has_unreachable_tokens() const noexcept { return has_unreachable_tokens_; }

 private:
  /// The table is seeded in this many parts, each with its own places.
  static constexpr size_t kSeedParts = 2;

  bool seed_part(const Vocab& vocab, size_t part);
  bool seed(const Vocab& vocab, int32_t id, uint64_t hash, MergeScratch& scratch,
            std::vector<int32_t>& ids);

  HotEntries entries_;
  bool narrow_;
  bool has_unreachable_tokens_ = false;
};

/// One worker's tables besides the shared one: a second table of pieces that it has found, and,
/// once that pays, its own copy of the first. Bounded; one thread at a time.
class HotScratch {
 public:
  /// `num_warm`: entries of the second table, rounded up to a power of two; 0 switches it off, and
  /// learning with it.
  explicit HotScratch(size_t num_warm);

  /// The entries to search first.
  const HotEntry* entries(const HotTable& table) const noexcept {
    return own_ != nullptr ? own_.get() : table.entries();
  }

  /// Looks up a piece that is not under its own key in the first table: there as one of many ids,
  /// and in the second table. True if found, under its key or that of many ids. A piece that is
  /// looked up again is swapped with an entry of the worker's copy of the first table.
  bool find(const HotTable& table, const PieceKey& key, uint64_t hash, HotEntry& entry);

  /// Stores a piece: in the worker's copy of the first table if it has room, else in the second.
  void insert(const HotEntry& entry, uint64_t hash) noexcept;

  /// A piece was found in its second place, beside `place`: frequent entries are swapped to the
  /// first.
  void found_in_second(size_t place) noexcept;

  /// Bytes of memory held.
  size_t memory() const noexcept;

 private:
  /// Look-ups in the second table before the first one is copied.
  static constexpr uint32_t kLearnAfter = 256;
  /// One of this many pieces found in their second place is swapped.
  static constexpr uint32_t kChangeOneOf = 8;

  void insert_warm(const HotEntry& entry, uint64_t hash) noexcept;
  /// First of the two entries that a piece may have in the second table.
  HotEntry* warm_pair(uint64_t hash) const noexcept {
    return &warm_[(static_cast<size_t>((hash * 0x9E3779B97F4A7C15u) >> 20) & warm_mask_) * 2];
  }

  HotEntries own_;
  HotEntries warm_;
  size_t warm_mask_ = 0;  ///< of pairs
  uint32_t questions_ = 0;
};

}  // namespace tok
