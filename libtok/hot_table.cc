// Seeding and learning of hot_table.h.
// Includes: hot_table.h.
// SPDX-License-Identifier: MIT
#include "libtok/hot_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tok {
namespace {

constexpr PieceKey kNoKey{0, 0};

/// Whether `held` is `key`, or the same piece with many ids.
bool same_piece(const PieceKey& held, const PieceKey& key) noexcept {
  return held.low == key.low && held.as_one().high == key.high;
}

PieceKey key_of(std::string_view piece) noexcept { return PieceKey::of(piece, piece.data()); }

}  // namespace

HotTable::HotTable(const Vocab& vocab, const ParallelFor& parallel_for)
    : entries_(make_zeroed_array<HotEntry>(kPlaces)), narrow_(vocab.id_limit() <= 0x10000) {
  bool unreachable[kSeedParts] = {};
  parallel_for(kSeedParts, [&](size_t part) { unreachable[part] = seed_part(vocab, part); });
  has_unreachable_tokens_ = std::ranges::find(unreachable, true) != std::end(unreachable);
}

/// Seeds the places of a part, and checks its share of the longer tokens; returns whether one of
/// its tokens is not what merging gives.
bool HotTable::seed_part(const Vocab& vocab, size_t part) {
  MergeScratch scratch;
  std::vector<int32_t> ids;
  struct Waiting {
    int32_t id;
    uint64_t hash;
  };
  // Prefetches the lines of tokens a few ahead: most of them are in no cache yet.
  constexpr size_t kAhead = 16;
  Waiting waiting[kAhead];
  size_t count = 0;
  bool unreachable = false;
  for (int32_t id = 0; id < vocab.id_limit(); ++id) {
    const std::string_view bytes = vocab.bytes(id);
    if (bytes.empty() || vocab.text_only(id)) continue;
    const bool is_key = bytes.size() <= PieceKey::kMaxBytes;
    const uint64_t hash = is_key ? hot_hash(key_of(bytes)) : 0;
    const size_t place = place_of(hash);
    const size_t its = is_key ? place / (kPlaces / kSeedParts) : static_cast<size_t>(id);
    if (its % kSeedParts != part) continue;
    __builtin_prefetch(&entries_[place], 1);
    Waiting& next = waiting[count++ % kAhead];
    if (count > kAhead) unreachable |= seed(vocab, next.id, next.hash, scratch, ids);
    next = {id, hash};
  }
  for (size_t i = count < kAhead ? 0 : count - kAhead; i < count; ++i) {
    const Waiting& last = waiting[i % kAhead];
    unreachable |= seed(vocab, last.id, last.hash, scratch, ids);
  }
  return unreachable;
}

/// Adds a token to the table if there is room; returns whether it is not what merging its bytes
/// gives.
bool HotTable::seed(const Vocab& vocab, int32_t id, uint64_t hash, MergeScratch& scratch,
                    std::vector<int32_t>& ids) {
  const std::string_view bytes = vocab.bytes(id);
  ids.resize(bytes.size());
  size_t count = merge_piece(vocab, bytes, scratch, ids.data());
  const bool unreachable = count != 1 || ids[0] != id;
  if (unreachable && vocab.whole_piece_first()) {
    ids[0] = id;
    count = 1;
  }
  if (bytes.size() > PieceKey::kMaxBytes) return unreachable;
  HotEntry entry{.key = key_of(bytes), .words = {}};
  const size_t place = place_of(hash);
  const HotEntry* free = find_entry(entries_.get(), place, kNoKey);
  if (free == nullptr || stays_empty(place)) return unreachable;
  if (entry.set_ids(narrow_, {ids.data(), count})) {
    entries_[static_cast<size_t>(free - entries_.get())] = entry;
  }
  return unreachable;
}

HotScratch::HotScratch(size_t num_warm) {
  if (num_warm == 0) return;
  const size_t pairs = std::bit_ceil(std::max<size_t>(4, num_warm)) / 2;
  warm_ = make_zeroed_array<HotEntry>(2 * pairs);
  warm_mask_ = pairs - 1;
}

bool HotScratch::find(const HotTable& table, const PieceKey& key, uint64_t hash, HotEntry& entry) {
  if (warm_ == nullptr) return false;
  const size_t place = HotTable::place_of(hash);
  if (const HotEntry* many = find_entry(entries(table), place, key.as_many())) {
    entry = *many;
    return true;
  }
  if (own_ == nullptr && ++questions_ > kLearnAfter) {
    own_ = make_zeroed_array<HotEntry>(HotTable::kPlaces);
    std::memcpy(static_cast<void*>(own_.get()), table.entries(),
                HotTable::kPlaces * sizeof(HotEntry));
  }
  const bool learns = own_ != nullptr && !HotTable::stays_empty(place);
  // While a line has room none of its pieces is in the second table, which is in a distant cache.
  if (learns && find_entry(own_.get(), place, kNoKey) != nullptr) return false;
  HotEntry* const pair = warm_pair(hash);
  const size_t way = same_piece(pair[0].key, key) ? 0 : 1;
  if (!same_piece(pair[way].key, key)) return false;
  entry = pair[way];
  if (!learns) return true;
  // Looked up again: it replaces one of the two entries of its line in the first table.
  pair[way] = HotEntry{};
  HotEntry& loser = own_[place ^ (++questions_ & 1)];
  const HotEntry out = std::exchange(loser, entry);
  if (out.key != kNoKey) insert_warm(out, hot_hash(out.key.as_one()));
  return true;
}

void HotScratch::insert(const HotEntry& entry, uint64_t hash) noexcept {
  if (warm_ == nullptr) return;
  const size_t place = HotTable::place_of(hash);
  if (own_ != nullptr && !HotTable::stays_empty(place)) {
    const HotEntry* free = find_entry(own_.get(), place, kNoKey);
    if (free != nullptr) {
      own_[static_cast<size_t>(free - own_.get())] = entry;
      return;
    }
  }
  insert_warm(entry, hash);
}

void HotScratch::insert_warm(const HotEntry& entry, uint64_t hash) noexcept {
  // The newest is first; the older of the two is evicted.
  HotEntry* const pair = warm_pair(hash);
  if (pair[0].key != kNoKey) pair[1] = pair[0];
  pair[0] = entry;
}

void HotScratch::found_in_second(size_t place) noexcept {
  if (own_ == nullptr || ++questions_ % kChangeOneOf != 0) return;
  std::swap(own_[place], own_[place ^ 1]);
}

size_t HotScratch::memory() const noexcept {
  const size_t warm = warm_ == nullptr ? 0 : (warm_mask_ + 1) * 2;
  return (warm + (own_ == nullptr ? 0 : HotTable::kPlaces)) * sizeof(HotEntry);
}

}  // namespace tok
