// PieceCache: sizes, replacement, and the table of long pieces.
// SPDX-License-Identifier: MIT
#include "libtok/piece_cache.h"

#include <algorithm>
#include <bit>

namespace tok {

PieceCache::PieceCache(size_t num_short, size_t num_long) : short_on_(num_short > 0) {
  // A key of length 0 does not exist, so zeroed entries are empty.
  const size_t num_pairs = std::bit_ceil(std::max<size_t>(1, num_short / 2));
  short_.resize(num_pairs * 2);
  short_mask_ = num_pairs - 1;
  if (num_long == 0) return;
  long_.resize(std::bit_ceil(num_long));
  long_mask_ = long_.size() - 1;
}

void PieceCache::insert(const PieceKey& key, uint64_t hash, std::span<const int32_t> ids) noexcept {
  if (ids.size() > kShortIds || !short_on_) return;
  Short* pair = &short_[(hash & short_mask_) * 2];
  // Who comes first is likely to be frequent and keeps the first place; the second one changes.
  Short& entry = pair[0].key.high == 0 || pair[0].key == key ? pair[0] : pair[1];
  entry.key = key;
  std::copy(ids.begin(), ids.end(), entry.words);
  entry.words[kShortIds] = static_cast<int32_t>(ids.size());
}

size_t PieceCache::long_slot(std::string_view piece, uint8_t tag) const noexcept {
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
  return (hash ^ hash >> 32) & long_mask_;
}

std::span<const int32_t> PieceCache::find_long(std::string_view piece, uint8_t tag) const noexcept {
  if (long_.empty() || piece.size() > Long::kBytes) return {};
  const Long& entry = long_[long_slot(piece, tag)];
  if (entry.size != piece.size() || entry.tag != tag ||
      std::memcmp(entry.bytes, piece.data(), piece.size()) != 0) {
    return {};
  }
  return {entry.ids, entry.count};
}

void PieceCache::insert_long(std::string_view piece, uint8_t tag,
                             std::span<const int32_t> ids) noexcept {
  if (long_.empty() || piece.size() > Long::kBytes || ids.empty() || ids.size() > kLongIds) {
    return;
  }
  Long& entry = long_[long_slot(piece, tag)];
  std::memcpy(entry.bytes, piece.data(), piece.size());
  entry.size = static_cast<uint8_t>(piece.size());
  entry.count = static_cast<uint8_t>(ids.size());
  entry.tag = tag;
  std::copy(ids.begin(), ids.end(), entry.ids);
}

}  // namespace tok
