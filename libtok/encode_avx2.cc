// SPDX-License-Identifier: MIT
// The hot loop for AVX2: one piece in each register of 16 bytes, one comparison and one branch for
// four of them. The plain version is in encode.cc. Includes: encode_groups.h.
#include "libtok/encode_groups.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tok {

#if defined(__x86_64__)

namespace {

/// For each number of bytes up to 15: the mask that keeps that many of a key's bytes. None for 16,
/// which means any number over 15 and is in no entry's key.
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

[[gnu::target("avx2"), gnu::always_inline]] inline __m128i load16(const void* at) noexcept {
  return _mm_loadu_si128(static_cast<const __m128i*>(at));
}

/// Makes the key of a piece of `size` bytes, whose bytes are at `at`; returns its place.
[[gnu::target("avx2"), gnu::always_inline]] inline uint64_t make_key(const char* at, uint32_t size,
                                                                     uint8_t* to) noexcept {
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

/// The loops.
struct OneByOneLoop {
  static constexpr size_t kAhead = PieceRun::kAhead;

  [[gnu::target("avx2"), gnu::always_inline]] static inline void make_group(
      WaitingGroup& group, const PieceRun& run, const uint32_t* bounds,
      const char* table) noexcept {
    std::memcpy(group.begins, bounds, sizeof group.begins);
    std::memcpy(group.ends, bounds + 1, sizeof group.ends);
    const bool inside = bounds[3] + size_t{16} <= run.text.size();
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const char* at = inside ? run.text.data() + bounds[i] : run.tail.at(run.text, bounds[i]);
      const char* place = table + make_key(at, bounds[i + 1] - bounds[i], group.keys + 16 * i);
      group.places[i] = place;
      __builtin_prefetch(place);
    }
  }

  template <bool kNarrow, typename Id>
  [[gnu::target("avx2"), gnu::always_inline]] static inline Id* encode_group(
      PieceRun& run, const WaitingGroup& group, const char*& table, Id* ids) {
    __m128i equal = _mm_set1_epi8(-1);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      equal = _mm_and_si128(equal,
                            _mm_cmpeq_epi32(load16(group.places[i]), load16(group.keys + 16 * i)));
    }
    if (_mm_movemask_epi8(equal) == 0xFFFF) [[likely]] {
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) {
        ids += put_ids<kNarrow>(group.places[i] + offsetof(HotEntry, words), ids);
      }
      return ids;
    }
    ids = encode_one_by_one<kNarrow>(run, group, ids);
    table = entries_of(run);
    return ids;
  }

  [[gnu::target("avx2")]] static void make(PieceRun& run, size_t from, size_t to) noexcept {
    const char* table = entries_of(run);
    for (size_t g = from; g < to; ++g, ++run.made) {
      make_group(run.waiting[run.made % kAhead], run, &run.bounds[4 * g], table);
    }
  }

  template <bool kNarrow, typename Id>
  [[gnu::target("avx2")]] static Id* encode_and_make(PieceRun& run, size_t from, size_t to,
                                                     Id* ids) {
    const char* table = entries_of(run);
    size_t slot = run.made % kAhead;
    for (size_t g = from; g < to; ++g, slot = (slot + 1) % kAhead) {
      ids = encode_group<kNarrow>(run, run.waiting[slot], table, ids);
      make_group(run.waiting[slot], run, &run.bounds[4 * g], table);
    }
    run.made += to - from;
    run.encoded += to - from;
    return ids;
  }

  template <bool kNarrow, typename Id>
  [[gnu::target("avx2")]] static Id* encode_waiting(PieceRun& run, size_t count, Id* ids) {
    const char* table = nullptr;
    for (; count > 0; --count, ++run.encoded) {
      ids = encode_group<kNarrow>(run, run.waiting[run.encoded % kAhead], table, ids);
    }
    return ids;
  }
};

}  // namespace

void add_groups_avx2(PieceRun& run, size_t num_groups) {
  add_groups<OneByOneLoop>(run, num_groups);
}
void finish_groups_avx2(PieceRun& run) { finish_groups<OneByOneLoop>(run); }

#else

// Never called: no level uses it.
void add_groups_avx2(PieceRun&, size_t) {}
void finish_groups_avx2(PieceRun&) {}

#endif

}  // namespace tok
