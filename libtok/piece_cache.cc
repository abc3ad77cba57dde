// PieceCache: places and contents of entries.
// SPDX-License-Identifier: MIT
#include "libtok/piece_cache.h"

#include <algorithm>
#include <bit>

#include "libtok/hash.h"

namespace tok {

namespace {

/// There is one large entry for this many usual ones.
constexpr size_t kUsualPerLarge = 8;

}  // namespace

PieceCache::PieceCache(size_t num_entries) {
  if (num_entries == 0) return;
  const size_t num_usual = std::bit_ceil(std::max<size_t>(2, num_entries));
  usual_.emplace(num_usual);
  large_.emplace(std::max<size_t>(2, num_usual / kUsualPerLarge));
}

template <typename AnEntry>
AnEntry* PieceCache::Table<AnEntry>::pair(std::string_view piece, uint8_t tag) const noexcept {
  return &entries[2 * (hash_bytes(piece, tag) & mask)];
}

template <typename AnEntry>
std::span<const int32_t> PieceCache::Table<AnEntry>::find(std::string_view piece,
                                                          uint8_t tag) const noexcept {
  if (piece.size() > AnEntry::kBytes) return {};
  const AnEntry* entry = pair(piece, tag);
  for (int way = 0; way < 2; ++way, ++entry) {
    if (entry->size == piece.size() && entry->tag == tag &&
        std::memcmp(entry->bytes, piece.data(), piece.size()) == 0) {
      return {entry->ids, entry->count};
    }
  }
  return {};
}

template <typename AnEntry>
void PieceCache::Table<AnEntry>::insert(std::string_view piece, uint8_t tag,
                                        std::span<const int32_t> ids) noexcept {
  // The newest is first; the older of the two is evicted.
  AnEntry& entry = *pair(piece, tag);
  if (entry.size != 0) *(&entry + 1) = entry;
  std::memcpy(entry.bytes, piece.data(), piece.size());
  entry.size = static_cast<uint8_t>(piece.size());
  entry.count = static_cast<uint8_t>(ids.size());
  entry.tag = tag;
  std::copy(ids.begin(), ids.end(), entry.ids);
}

std::span<const int32_t> PieceCache::find(std::string_view piece, uint8_t tag) const noexcept {
  if (!usual_.has_value()) return {};
  const std::span<const int32_t> ids = usual_->find(piece, tag);
  return ids.empty() ? large_->find(piece, tag) : ids;
}

void PieceCache::insert(std::string_view piece, uint8_t tag,
                        std::span<const int32_t> ids) noexcept {
  if (!usual_.has_value() || piece.size() > Large::kBytes || ids.empty() || ids.size() > kMaxIds) {
    return;
  }
  if (piece.size() <= Usual::kBytes && ids.size() <= Usual::kMostIds) {
    return usual_->insert(piece, tag, ids);
  }
  large_->insert(piece, tag, ids);
}

}  // namespace tok
