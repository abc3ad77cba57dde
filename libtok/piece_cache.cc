// PieceCache: where an entry lies, what it holds.
// SPDX-License-Identifier: MIT
#include "libtok/piece_cache.h"

#include <algorithm>
#include <bit>

namespace tok {

PieceCache::PieceCache(size_t num_entries) {
  if (num_entries == 0) return;
  entries_.resize(std::bit_ceil(num_entries));
  mask_ = entries_.size() - 1;
}

size_t PieceCache::slot(std::string_view piece, uint8_t tag) const noexcept {
  uint64_t hash = piece.size() * 0x9E3779B97F4A7C15u + tag;
  const char* at = piece.data();
  size_t left = piece.size();
  for (; left > 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = std::rotl((hash ^ word) * 0xD6E8FEB86659FD93u, 29);
  }
  uint64_t word = 0;
  std::memcpy(&word, at, left);
  hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
  return (hash ^ hash >> 32) & mask_;
}

std::span<const int32_t> PieceCache::find(std::string_view piece, uint8_t tag) const noexcept {
  if (entries_.empty() || piece.size() > Entry::kBytes) return {};
  const Entry& entry = entries_[slot(piece, tag)];
  if (entry.size != piece.size() || entry.tag != tag ||
      std::memcmp(entry.bytes, piece.data(), piece.size()) != 0) {
    return {};
  }
  return {entry.ids, entry.count};
}

void PieceCache::insert(std::string_view piece, uint8_t tag,
                        std::span<const int32_t> ids) noexcept {
  if (entries_.empty() || piece.size() > Entry::kBytes || ids.empty() || ids.size() > kMaxIds) {
    return;
  }
  Entry& entry = entries_[slot(piece, tag)];
  std::memcpy(entry.bytes, piece.data(), piece.size());
  entry.size = static_cast<uint8_t>(piece.size());
  entry.count = static_cast<uint8_t>(ids.size());
  entry.tag = tag;
  std::copy(ids.begin(), ids.end(), entry.ids);
}

}  // namespace tok
