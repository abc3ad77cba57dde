// One worker's cache of encoded pieces: bounded, without allocation once constructed. An entry has
// what merge_piece gives for the same bytes, so contents affect only speed. Not here: computing a
// piece's ids (merge.h, encode.h). Includes: zeroed_array.h.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "libtok/zeroed_array.h"

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

  /// The same bytes under another key: a segment of a longer piece, for which a whole-piece look-up
  /// must not be used.
  PieceKey as_segment() const noexcept { return {low, high | uint64_t{0x80} << 56}; }
  bool is_segment() const noexcept { return high >> 63 != 0; }

  /// The key of the same piece if it has more ids than fit in a HotEntry, so that no loop copies
  /// such an entry.
  PieceKey as_many() const noexcept { return {low, high | kMany}; }
  PieceKey as_one() const noexcept { return {low, high & ~kMany}; }
  bool is_many() const noexcept { return (high & kMany) != 0; }

  static constexpr uint64_t kMany = uint64_t{0x40} << 56;
};

/// Pieces of more than 15 bytes, and shorter ones of more ids than a HotEntry holds.
class PieceCache {
 public:
  static constexpr size_t kDefaultEntries = size_t{1} << 15;  ///< 5 MiB
  static constexpr size_t kMaxIds = 32;                       ///< most ids of an entry

  /// Room for `num_entries` usual entries, rounded up to a power of two, and some large ones; 0
  /// switches the table off.
  explicit PieceCache(size_t num_entries = kDefaultEntries);

  /// Ids of a piece; empty if it is not in the cache. `tag` distinguishes look-ups with different
  /// meanings.
  std::span<const int32_t> find(std::string_view piece, uint8_t tag) const noexcept;

  /// Stores a piece if it and its ids fit in an entry.
  void insert(std::string_view piece, uint8_t tag, std::span<const int32_t> ids) noexcept;

 private:
  /// An entry of `kSize` bytes, the piece's bytes first: most entries have few ids and are in one
  /// cache line.
  template <size_t kSize, size_t kIds>
  struct Entry {
    static constexpr size_t kBytes = kSize - 4 - 4 * kIds;
    static constexpr size_t kMostIds = kIds;
    uint8_t size;
    uint8_t count;
    uint8_t tag;
    char bytes[kBytes + 1];
    int32_t ids[kIds];
  };
  using Usual = Entry<128, 20>;       ///< up to 44 bytes
  using Large = Entry<256, kMaxIds>;  ///< up to 124 bytes
  static_assert(sizeof(Usual) == 128 && sizeof(Large) == 256);

  template <typename AnEntry>
  struct Table {
    explicit Table(size_t num_entries)
        : entries(make_zeroed_array<AnEntry>(num_entries)), mask(num_entries / 2 - 1) {}

    /// First of the two entries that a piece may have.
    AnEntry* pair(std::string_view piece, uint8_t tag) const noexcept;
    std::span<const int32_t> find(std::string_view piece, uint8_t tag) const noexcept;
    void insert(std::string_view piece, uint8_t tag, std::span<const int32_t> ids) noexcept;

    ZeroedArray<AnEntry> entries;
    size_t mask;  ///< of pairs
  };

  std::optional<Table<Usual>> usual_;
  std::optional<Table<Large>> large_;
};

}  // namespace tok
