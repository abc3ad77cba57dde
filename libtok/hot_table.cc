// Seeding and learning of hot_table.h.
// Includes: hot_table.h; madvise for huge pages, which is a wish and may be refused.
// SPDX-License-Identifier: MIT
#include "libtok/hot_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace tok {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

constexpr PieceKey kNoKey{0, 0};

PieceKey key_of(std::string_view piece) noexcept { return PieceKey::of(piece, piece.data()); }

}  // namespace

HotSets make_hot_sets(size_t count) {
  size_t bytes = count * sizeof(HotSet);
  const bool huge = bytes >= kHugePage;
  const size_t alignment = huge ? kHugePage : sizeof(HotSet);
  bytes = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  // Before the first touch, or the pages are small already.
  if (huge) (void)madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  return HotSets(static_cast<HotSet*>(memory));
}

HotTable::HotTable(const Vocab& vocab)
    : sets_(make_hot_sets(kSets)), narrow_(vocab.id_limit() <= 0x10000) {
  MergeScratch scratch;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab.id_limit(); ++id) {
    const std::string_view bytes = vocab.bytes(id);
    if (bytes.empty() || vocab.text_only(id)) continue;
    ids.resize(bytes.size());
    size_t count = merge_piece(vocab, bytes, scratch, ids.data());
    if (count != 1 || ids[0] != id) {
      has_unreachable_tokens_ = true;
      if (vocab.whole_piece_first()) {
        ids[0] = id;
        count = 1;
      }
    }
    if (bytes.size() > PieceKey::kMaxBytes) continue;
    HotEntry entry{.key = key_of(bytes), .words = {}};
    const size_t at = set_of(hot_hash(entry.key));
    const size_t way = sets_[at].find(kNoKey);
    if (at == kNothing || way == 2) continue;
    if (entry.set_ids(narrow_, {ids.data(), count})) sets_[at].set(way, entry);
  }
}

HotScratch::HotScratch(size_t num_warm) {
  if (num_warm == 0) return;
  const size_t sets = std::bit_ceil(std::max<size_t>(4, num_warm)) / 2;
  warm_ = make_hot_sets(sets);
  warm_mask_ = sets - 1;
}

bool HotScratch::find(const HotTable& table, const PieceKey& key, uint64_t hash, HotEntry& entry) {
  if (warm_ == nullptr) return false;
  if (own_ == nullptr && ++questions_ > kLearnAfter) {
    own_ = make_hot_sets(HotTable::kSets);
    std::memcpy(static_cast<void*>(own_.get()), table.sets(), HotTable::kSets * sizeof(HotSet));
  }
  HotSet& warm = warm_[warm_set(hash)];
  const size_t way = warm.find(key);
  if (way == 2) return false;
  entry = warm.entry(way);
  const size_t at = HotTable::set_of(hash);
  if (own_ == nullptr || at == HotTable::kNothing) return true;
  // Asked for again: it changes places with one of the two that the first table has there.
  warm.set(way, HotEntry{});
  HotSet& hot = own_[at];
  const size_t loser_way = ++questions_ & 1;
  const HotEntry loser = hot.entry(loser_way);
  hot.set(loser_way, entry);
  if (loser.key != kNoKey) insert_warm(loser, hot_hash(loser.key));
  return true;
}

void HotScratch::insert(const HotEntry& entry, uint64_t hash) noexcept {
  if (warm_ == nullptr) return;
  const size_t at = HotTable::set_of(hash);
  if (own_ != nullptr && at != HotTable::kNothing) {
    const size_t free_way = own_[at].find(kNoKey);
    if (free_way != 2) return own_[at].set(free_way, entry);
  }
  insert_warm(entry, hash);
}

void HotScratch::insert_warm(const HotEntry& entry, uint64_t hash) noexcept {
  // The newest comes first; the older of the two leaves.
  HotSet& warm = warm_[warm_set(hash)];
  if (warm.keys[0] != kNoKey) warm.set(1, warm.entry(0));
  warm.set(0, entry);
}

size_t HotScratch::memory() const noexcept {
  const size_t warm = warm_ == nullptr ? 0 : (warm_mask_ + 1) * sizeof(HotSet);
  return warm + (own_ == nullptr ? 0 : HotTable::kSets * sizeof(HotSet));
}

}  // namespace tok
