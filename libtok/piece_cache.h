// Pieces already encoded, of one worker: bounded, without allocation once made. An entry holds what
// merge_piece gives for the same bytes, so contents never change results, only speed.
// Not here: what a piece's ids are (merge.h, encode.h).
// Includes: C++ library only.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tok {

/// Bytes of a short piece (at most 15), zero-filled, with its length in the last byte.
struct PieceKey {
  uint64_t low;
  uint64_t high;

  static constexpr size_t kMaxBytes = 15;

  bool operator==(const PieceKey&) const = default;

  /// Key of a piece of 1..15 bytes. `readable_end` is the end of the memory around the piece:
  /// within 16 bytes of it the piece is copied, elsewhere read in two words.
  static PieceKey of(std::string_view piece, const char* readable_end) noexcept {
    uint64_t low = 0;
    uint64_t high = 0;
    const size_t size = piece.size();
    if (piece.data() + 16 <= readable_end) [[likely]] {
      std::memcpy(&low, piece.data(), 8);
      std::memcpy(&high, piece.data() + 8, 8);
      low &= size >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * size)) - 1;
      high &= size <= 8 ? 0 : (uint64_t{1} << (8 * (size - 8))) - 1;
    } else {
      char bytes[16] = {};
      std::memcpy(bytes, piece.data(), size);
      std::memcpy(&low, bytes, 8);
      std::memcpy(&high, bytes + 8, 8);
    }
    return {low, high | static_cast<uint64_t>(size) << 56};
  }

  /// The same bytes under another name: a segment of a longer piece, for which a whole-piece
  /// look-up must not count.
  PieceKey as_segment() const noexcept { return {low, high | uint64_t{0x80} << 56}; }
  bool is_segment() const noexcept { return high >> 63 != 0; }

  uint64_t hash() const noexcept {
    const unsigned __int128 product =
        static_cast<unsigned __int128>(low ^ 0x2D358DCCAA6C78A5u) * (high ^ 0x8BB84B93962EACC9u);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
};

/// The two tables: short pieces by key, two to a cache line; longer ones by their bytes.
class PieceCache {
 public:
  /// Ids that a short entry holds; pieces of more go to the table of long entries.
  static constexpr size_t kShortIds = 3;

  /// A short piece: its ids, and in the last word how many there are, so that one copy of all four
  /// words writes the ids wherever there is room for four.
  struct alignas(32) Short {
    PieceKey key;
    int32_t words[kShortIds + 1];

    size_t count() const noexcept { return static_cast<size_t>(words[kShortIds]); }
    std::span<const int32_t> ids() const noexcept { return {words, count()}; }
  };
  static_assert(sizeof(Short) == 32);

  /// Room for `num_short` short entries, rounded up to a power of two, and `num_long` long ones;
  /// 0 switches a table off.
  explicit PieceCache(size_t num_short = kDefaultShort, size_t num_long = kDefaultLong);

  static constexpr size_t kDefaultShort = size_t{1} << 16;  ///< 2 MiB
  static constexpr size_t kDefaultLong = size_t{1} << 12;   ///< 1 MiB
  static constexpr size_t kLongIds = 32;                    ///< most ids of a long entry

  /// Brings the line of a key near.
  void prefetch(uint64_t hash) const noexcept {
    __builtin_prefetch(&short_[(hash & short_mask_) * 2]);
  }

  /// Entry of a key; null when it is not here.
  const Short* find(const PieceKey& key, uint64_t hash) const noexcept {
    const Short* pair = &short_[(hash & short_mask_) * 2];
    if (pair[0].key == key) return &pair[0];
    if (pair[1].key == key) return &pair[1];
    return nullptr;
  }

  /// Remembers a short piece; one of more than kShortIds ids is left out.
  void insert(const PieceKey& key, uint64_t hash, std::span<const int32_t> ids) noexcept;

  /// Ids of a longer piece, or of a short one of many ids; empty when it is not here.
  /// `tag` keeps look-ups of different meaning apart.
  std::span<const int32_t> find_long(std::string_view piece, uint8_t tag) const noexcept;

  /// Remembers such a piece if it and its ids fit an entry.
  void insert_long(std::string_view piece, uint8_t tag, std::span<const int32_t> ids) noexcept;

 private:
  struct Long {
    static constexpr size_t kBytes = 124;
    int32_t ids[kLongIds];
    uint8_t size;
    uint8_t count;
    uint8_t tag;
    char bytes[kBytes + 1];
  };
  static_assert(sizeof(Long) == 256);

  size_t long_slot(std::string_view piece, uint8_t tag) const noexcept;

  std::vector<Short> short_;
  std::vector<Long> long_;
  size_t short_mask_ = 0;  ///< of pairs
  size_t long_mask_ = 0;
  bool short_on_ = false;
};

}  // namespace tok
