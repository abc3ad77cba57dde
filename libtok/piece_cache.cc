// PieceCache: where an entry lies, what it holds.
// SPDX-License-Identifier: MIT
#include "libtok/piece_cache.h"

#include <algorithm>
#include <bit>

#include "libtok/hash.h"

namespace tok {

PieceCache::PieceCache(size_t num_entries) {
  if (num_entries == 0) return;
  const size_t pairs = std::bit_ceil(std::max<size_t>(2, num_entries)) / 2;
  entries_.resize(2 * pairs);
  mask_ = pairs - 1;
}

size_t PieceCache::pair(std::string_view piece, uint8_t tag) const noexcept {
  return 2 * (hash_bytes(piece, tag) & mask_);
}

std::span<const int32_t> PieceCache::find(std::string_view piece, uint8_t tag) const noexcept {
  if (entries_.empty() || piece.size() > Entry::kBytes) return {};
  const Entry* entry = &entries_[pair(piece, tag)];
  for (int way = 0; way < 2; ++way, ++entry) {
    if (entry->size == piece.size() && entry->tag == tag &&
        std::memcmp(entry->bytes, piece.data(), piece.size()) == 0) {
      return {entry->ids, entry->count};
    }
  }
  return {};
}

void PieceCache::insert(std::string_view piece, uint8_t tag,
                        std::span<const int32_t> ids) noexcept {
  if (entries_.empty() || piece.size() > Entry::kBytes || ids.empty() || ids.size() > kMaxIds) {
    return;
  }
  // The newest comes first; the older of the two leaves.
  Entry& entry = entries_[pair(piece, tag)];
  if (entry.size != 0) *(&entry + 1) = entry;
  std::memcpy(entry.bytes, piece.data(), piece.size());
  entry.size = static_cast<uint8_t>(piece.size());
  entry.count = static_cast<uint8_t>(ids.size());
  entry.tag = tag;
  std::copy(ids.begin(), ids.end(), entry.ids);
}

}  // namespace tok
