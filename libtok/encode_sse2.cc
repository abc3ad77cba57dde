// SPDX-License-Identifier: MIT
// The hot loop for every x86-64 processor: one piece in each register of 16 bytes, one comparison
// and one branch for four of them. For processors with AVX2 that lack AVX-512; its plain twin is in
// encode.cc. Includes: encode_groups.h.
#include "libtok/encode_groups.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tok {

#if defined(__x86_64__)

namespace {

/// For each number of bytes up to 15: what keeps so many of a key's bytes. None for 16, which
/// stands for any number over 15 and is in no entry's key.
struct alignas(16) KeyMask {
  std::array<uint8_t, 16> bytes;
};
constexpr std::array<KeyMask, 17> kKeep = [] {
  std::array<KeyMask, 17> keep{};
  for (size_t size = 0; size < 16; ++size) {
    for (size_t i = 0; i < size; ++i) keep[size].bytes[i] = 0xFF;
  }
  return keep;
}();
constexpr std::array<KeyMask, 17> kLength = [] {
  std::array<KeyMask, 17> length{};
  for (size_t size = 0; size < 17; ++size) length[size].bytes[15] = static_cast<uint8_t>(size);
  return length;
}();

/// Keys and places, in bytes from the first entry, of the groups that wait.
struct alignas(16) WaitingGroups {
  uint8_t keys[kAhead][64];
  uint64_t offsets[kAhead][4];
};

__m128i load16(const void* at) noexcept { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }

/// Makes the key of a piece of `size` bytes, whose bytes are at `at`; returns its place.
uint64_t make_key(const char* at, uint32_t size, uint8_t* to) noexcept {
  const size_t length = std::min<uint32_t>(size, 16);
  const __m128i key =
      _mm_or_si128(_mm_and_si128(load16(at), load16(&kKeep[length])), load16(&kLength[length]));
  _mm_store_si128(reinterpret_cast<__m128i*>(to), key);
  // hot_hash
  const __m128i salt = _mm_set_epi64x(static_cast<int64_t>(0xD6E8FEB86659FD93u),
                                      static_cast<int64_t>(0x9E3779B97F4A7C15u));
  const __m128i mixed = _mm_xor_si128(key, salt);
  const __m128i product = _mm_mul_epu32(mixed, _mm_srli_epi64(mixed, 32));
  const __m128i hash = _mm_add_epi64(product, _mm_shuffle_epi32(product, 0x4E));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(hash)) >> (HotTable::kShift - kLogEntry) &
         (HotTable::kPlaces - 1) << kLogEntry;
}

void make_group(WaitingGroups& groups, size_t g, const uint32_t* bounds, std::string_view text,
                const TextTail& tail, const char* table) noexcept {
  const bool inside = bounds[3] + size_t{16} <= text.size();
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const char* at = inside ? text.data() + bounds[i] : tail.at(text, bounds[i]);
    const uint64_t offset =
        make_key(at, bounds[i + 1] - bounds[i], groups.keys[g % kAhead] + 16 * i);
    groups.offsets[g % kAhead][i] = offset;
    __builtin_prefetch(table + offset);
  }
}

template <bool kNarrow, typename Id>
Id* encode_batch(PieceRun& run, const TextTail& tail, const PieceBounds& bounds, size_t num_groups,
                 TextEnds& text_ends, Id* ids) {
  WaitingGroups groups;
  const char* table = entries_of(run);
  for (size_t g = 0; g < std::min(kAhead, num_groups); ++g) {
    make_group(groups, g, &bounds[4 * g], run.text, tail, table);
  }
  ids = text_ends.end_texts(run, 0, ids);
  size_t text_end = text_ends.next();
  for (size_t g = 0; g < num_groups; ++g) {
    const uint8_t* keys = groups.keys[g % kAhead];
    const uint64_t* offsets = groups.offsets[g % kAhead];
    __m128i equal = _mm_set1_epi8(-1);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      equal =
          _mm_and_si128(equal, _mm_cmpeq_epi32(load16(table + offsets[i]), load16(keys + 16 * i)));
    }
    if (_mm_movemask_epi8(equal) == 0xFFFF) [[likely]] {
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) {
        const auto* entry = reinterpret_cast<const HotEntry*>(table + offsets[i]);
        ids += write_ids<kNarrow>(entry->words, ids);
      }
    } else {
      ids = encode_one_by_one<kNarrow>(run, keys, &bounds[4 * g], ids);
      table = entries_of(run);
    }
    if (g + kAhead < num_groups) {
      make_group(groups, g + kAhead, &bounds[4 * (g + kAhead)], run.text, tail, table);
    }
    if (g + 1 == text_end) {
      ids = text_ends.end_texts(run, g + 1, ids);
      text_end = text_ends.next();
    }
  }
  return ids;
}

template <bool kNarrow, typename Id>
void encode(PieceRun& run, std::span<const uint32_t> ends) {
  const TextTail tail(run.text);
  encode_in_batches<Id>(
      run, ends, [&](const PieceBounds& bounds, size_t num_groups, TextEnds& text_ends, Id* ids) {
        return encode_batch<kNarrow>(run, tail, bounds, num_groups, text_ends, ids);
      });
}

}  // namespace

void encode_pieces_sse2(PieceRun& run, std::span<const uint32_t> ends) {
  if (run.out.width() == IdWidth::two) return encode<true, uint16_t>(run, ends);
  if (run.model.hot.narrow()) return encode<true, int32_t>(run, ends);
  encode<false, int32_t>(run, ends);
}

#else

void encode_pieces_sse2(PieceRun&, std::span<const uint32_t>) {}  // no level leads here

#endif

}  // namespace tok
