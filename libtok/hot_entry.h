// SPDX-License-Identifier: MIT
// An entry of the tables of short pieces: 32 bytes, a piece's bytes and its ids; and the hash that
// gives its place. Not here: the tables (hot_table.h). Includes: piece_cache.h for PieceKey.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "libtok/piece_cache.h"

namespace tok {

/// Hash of a key: two products of 32-bit halves, so that a vector multiplies four keys at once.
/// The bits around the middle are the well-mixed ones.
constexpr uint64_t hot_hash(PieceKey key) noexcept {
  uint64_t a = key.low ^ 0x9E3779B97F4A7C15u;
  uint64_t b = key.high ^ 0xD6E8FEB86659FD93u;
  return (a & 0xFFFFFFFFu) * (a >> 32) + (b & 0xFFFFFFFFu) * (b >> 32);
}

/// A piece of at most 15 bytes and its ids. If all ids of the vocabulary fit in 16 bits an entry is
/// narrow: seven ids and their number as eight 16-bit words; else it is wide: five ids of three
/// bytes, the lowest first, and their number in the last byte. An empty slot has the key of the
/// empty piece, with no ids: so an empty piece is always found.
struct alignas(32) HotEntry {
  PieceKey key;
  uint8_t words[16];

  static constexpr size_t kNarrowIds = 7;
  static constexpr size_t kWideIds = 5;
  static constexpr size_t max_ids(bool narrow) noexcept { return narrow ? kNarrowIds : kWideIds; }

  /// Sets the ids; returns false and changes nothing if there are too many or one is too large.
  bool set_ids(bool narrow, std::span<const int32_t> ids) noexcept {
    if (ids.size() > max_ids(narrow)) return false;
    if (narrow) {
      uint16_t out[8] = {};
      for (size_t i = 0; i < ids.size(); ++i) out[i] = static_cast<uint16_t>(ids[i]);
      out[kNarrowIds] = static_cast<uint16_t>(ids.size());
      std::memcpy(words, out, sizeof words);
    } else {
      uint8_t out[16] = {};
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] > 0xFFFFFF) return false;
        std::memcpy(out + 3 * i, &ids[i], 3);
      }
      out[15] = static_cast<uint8_t>(ids.size());
      std::memcpy(words, out, sizeof words);
    }
    return true;
  }

  /// Makes it the entry of a piece with more ids than places. If all remaining ids equal the one in
  /// the last place, as in runs of blanks, the entry represents them; otherwise it has none,
  /// holds_many() is false, and the ids are in the PieceCache.
  void set_many_ids(bool narrow, std::span<const int32_t> ids) noexcept {
    const std::span<const int32_t> first = ids.first(std::min(ids.size(), max_ids(narrow)));
    const bool same = std::all_of(ids.begin() + static_cast<ptrdiff_t>(first.size()), ids.end(),
                                  [&](int32_t id) { return id == first.back(); });
    key = key.as_many();
    const bool held = same && ids.size() <= kMaxMany && set_ids(narrow, first);
    if (!held) std::memset(words, 0, sizeof words);
    const uint16_t count = held ? static_cast<uint16_t>(ids.size()) : 0;
    if (narrow) {
      std::memcpy(words + 14, &count, sizeof count);
    } else {
      words[15] = static_cast<uint8_t>(count);
    }
  }

  bool holds_many(bool narrow) const noexcept { return words[narrow ? 14 : 15] != 0; }

  /// Most ids of such an entry: one for each byte.
  static constexpr size_t kMaxMany = PieceKey::kMaxBytes;
};
static_assert(sizeof(HotEntry) == 32);

/// Writes the ids in an entry's words: eight (narrow) or five (wide) are written; the returned
/// number says how many are valid. Range: `Id` holds every id of the vocabulary.
template <bool kNarrow, typename Id>
size_t write_ids(const uint8_t (&words)[16], Id* out) noexcept {
  if constexpr (kNarrow) {
    uint16_t in[8];
    std::memcpy(in, words, sizeof in);
    for (size_t i = 0; i < 8; ++i) out[i] = static_cast<Id>(in[i]);
    return in[HotEntry::kNarrowIds];
  } else {
    for (size_t i = 0; i < HotEntry::kWideIds; ++i) {
      uint32_t bits;
      std::memcpy(&bits, words + 3 * i, sizeof bits);
      out[i] = static_cast<Id>(bits & 0xFFFFFF);
    }
    return words[15];
  }
}

/// Writes all ids of an entry of many: PieceKey::kMaxBytes + 1 are written; the returned number
/// says how many are valid; 0 if the entry does not have them.
template <bool kNarrow, typename Id>
size_t write_many_ids(const uint8_t (&words)[16], Id* out) noexcept {
  const size_t count = write_ids<kNarrow>(words, out);
  constexpr size_t kHeld = HotEntry::max_ids(kNarrow);
  for (size_t i = kHeld; i <= HotEntry::kMaxMany; ++i) out[i] = out[kHeld - 1];
  return count;
}

}  // namespace tok
