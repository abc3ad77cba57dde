// SPDX-License-Identifier: MIT
// The hot loop for AVX-512, four pieces in each register: four unaligned loads of 16 bytes,
// everything past each piece's end set to zero and its length put into the last byte; one
// multiplication hashes all four; one comparison says whether all four are known. Then four stores,
// and one well-predicted branch. There is no tail loop: a group is filled with empty pieces, which
// an empty slot matches. Includes: encode_groups.h.
#include "libtok/encode_groups.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace tok {

#if defined(__x86_64__)

namespace {

/// A group's lines are prefetched after this many more groups were made. Prefetching at once would
/// load the eight bytes of a place from a wider store that is still in flight, which stalls.
constexpr size_t kFetchLater = 16;

/// 0..15 in each 16 bytes.
constexpr std::array<uint8_t, 64> kLaneByte = [] {
  std::array<uint8_t, 64> index{};
  for (size_t i = 0; i < 64; ++i) index[i] = static_cast<uint8_t>(i % 16);
  return index;
}();

/// The loops: a struct of static members, because attributes and inlining need named functions.
struct GroupLoop {
  static constexpr size_t kAhead = PieceRun::kAhead;

  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline __m128i
  load16(const char* at) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  }

  /// The address of the entries that a run searches first, eight times.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline __m512i
  table_of(const PieceRun& run) noexcept {
    return _mm512_set1_epi64(reinterpret_cast<int64_t>(entries_of(run)));
  }

  /// Sixteen bytes from each of four positions.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline __m512i
  four_times_16(const char* a, const char* b, const char* c, const char* d) noexcept {
    __m512i bytes = _mm512_zextsi128_si512(load16(a));
    bytes = _mm512_inserti32x4(bytes, load16(b), 1);
    bytes = _mm512_inserti32x4(bytes, load16(c), 2);
    return _mm512_inserti32x4(bytes, load16(d), 3);
  }

  /// Makes a group whose pieces begin at four positions in memory.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline void
  make_group(WaitingGroup& group, const uint32_t* bounds, const char* a, const char* b,
             const char* c, const char* d, __m512i table) noexcept {
    const __m128i begins = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bounds));
    const __m128i ends = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bounds + 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(group.begins), begins);
    _mm_store_si128(reinterpret_cast<__m128i*>(group.ends), ends);
    // Sixteen stands for any length over fifteen: no entry has it.
    const __m128i sizes = _mm_min_epu32(_mm_sub_epi32(ends, begins), _mm_set1_epi32(16));
    const __m512i raw = four_times_16(a, b, c, d);
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i lengths = _mm512_maskz_permutexvar_epi32(0xFFFF, lane, _mm512_zextsi128_si512(sizes));
    lengths = _mm512_shuffle_epi8(lengths, _mm512_setzero_si512());
    const __mmask64 inside = _mm512_cmplt_epu8_mask(_mm512_loadu_si512(kLaneByte.data()), lengths);
    const __m512i last_bytes = _mm512_set4_epi32(static_cast<int>(0xFF000000u), 0, 0, 0);
    constexpr int kOrAnd = 0xF8;  // first | (second & third)
    const __m512i key =
        _mm512_ternarylogic_epi64(_mm512_maskz_mov_epi8(inside, raw), lengths, last_bytes, kOrAnd);
    _mm512_store_si512(group.keys, key);
    // hot_hash
    const __m512i salt = _mm512_set4_epi64(
        static_cast<int64_t>(0xD6E8FEB86659FD93u), static_cast<int64_t>(0x9E3779B97F4A7C15u),
        static_cast<int64_t>(0xD6E8FEB86659FD93u), static_cast<int64_t>(0x9E3779B97F4A7C15u));
    const __m512i mixed = _mm512_xor_si512(key, salt);
    const __m512i product =
        _mm512_maskz_mul_epu32(0xFF, mixed, _mm512_maskz_srli_epi64(0xFF, mixed, 32));
    const __m512i other = _mm512_maskz_shuffle_epi32(0xFFFF, product, _MM_PERM_BADC);
    const __m512i hash = _mm512_add_epi64(product, other);
    // A place times the size of an entry, behind the first entry; every other of eight counts.
    const __m512i at =
        _mm512_and_si512(_mm512_maskz_srli_epi64(0xFF, hash, HotTable::kShift - kLogEntry),
                         _mm512_set1_epi64((HotTable::kPlaces - 1) << kLogEntry));
    const __m512i places = _mm512_maskz_permutexvar_epi64(
        0xFF, _mm512_setr_epi64(0, 2, 4, 6, 0, 0, 0, 0), _mm512_add_epi64(at, table));
    std::memcpy(group.places, &places, sizeof group.places);
  }

  /// Prefetches the lines in which the pieces of a group are looked up.
  [[gnu::always_inline]] static inline void fetch(const WaitingGroup& group) noexcept {
    for (size_t i = 0; i < 4; ++i) _mm_prefetch(group.places[i], _MM_HINT_T0);
  }

  /// Encodes a group; returns where the next ids go.
  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline Id*
  encode_group(PieceRun& run, const WaitingGroup& group, __m512i& table, Id* ids) {
    static_assert(offsetof(HotEntry, key) == 0);
    constexpr size_t kWords = offsetof(HotEntry, words);
    const char *a = group.places[0], *b = group.places[1];
    const char *c = group.places[2], *d = group.places[3];
    const __m512i keys = _mm512_load_si512(group.keys);
    const __mmask8 equal = _mm512_cmpeq_epi64_mask(four_times_16(a, b, c, d), keys);
    if (equal == 0xFF) [[likely]] {
      ids += put_ids<kNarrow>(a + kWords, ids);
      ids += put_ids<kNarrow>(b + kWords, ids);
      ids += put_ids<kNarrow>(c + kWords, ids);
      ids += put_ids<kNarrow>(d + kWords, ids);
      return ids;
    }
    ids = encode_one_by_one<kNarrow>(run, group, ids);
    table = table_of(run);
    return ids;
  }

  /// Makes a group anywhere in the text.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline void
  make_anywhere(WaitingGroup& group, const PieceRun& run, const uint32_t* bounds,
                __m512i table) noexcept {
    make_group(group, bounds, run.tail.at(run.text, bounds[0]), run.tail.at(run.text, bounds[1]),
               run.tail.at(run.text, bounds[2]), run.tail.at(run.text, bounds[3]), table);
  }

  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2")]] static void make(
      PieceRun& run, size_t from, size_t to) noexcept {
    __m512i table = table_of(run);
    for (size_t g = from; g < to; ++g, ++run.made) {
      make_anywhere(run.waiting[run.made % kAhead], run, &run.bounds[4 * g], table);
      if (run.made >= kFetchLater) fetch(run.waiting[(run.made - kFetchLater) % kAhead]);
    }
  }

  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2")]] static Id* encode_and_make(
      PieceRun& run, size_t from, size_t to, Id* ids) {
    const char* const text = run.text.data();
    __m512i table = table_of(run);
    // Groups from here on have a piece from which 16 bytes cannot be read.
    size_t near_end = to;
    while (near_end > from && run.bounds[4 * near_end - 1] + size_t{16} > run.text.size()) {
      --near_end;
    }
    size_t g = from, slot = run.made % kAhead;
    for (; g < near_end; ++g, slot = (slot + 1) % kAhead) {
      WaitingGroup& group = run.waiting[slot];
      ids = encode_group<kNarrow, Id>(run, group, table, ids);
      const uint32_t* at = &run.bounds[4 * g];
      make_group(group, at, text + at[0], text + at[1], text + at[2], text + at[3], table);
      fetch(run.waiting[(slot + kAhead - kFetchLater) % kAhead]);
    }
    for (; g < to; ++g, slot = (slot + 1) % kAhead) {
      WaitingGroup& group = run.waiting[slot];
      ids = encode_group<kNarrow, Id>(run, group, table, ids);
      make_anywhere(group, run, &run.bounds[4 * g], table);
      fetch(run.waiting[(slot + kAhead - kFetchLater) % kAhead]);
    }
    run.made += to - from;
    run.encoded += to - from;
    return ids;
  }

  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2")]] static Id* encode_waiting(
      PieceRun& run, size_t count, Id* ids) {
    __m512i table = table_of(run);
    for (; count > 0; --count, ++run.encoded) {
      ids = encode_group<kNarrow, Id>(run, run.waiting[run.encoded % kAhead], table, ids);
    }
    return ids;
  }
};

}  // namespace

void add_groups_avx512(PieceRun& run, size_t num_groups) { add_groups<GroupLoop>(run, num_groups); }

void finish_groups_avx512(PieceRun& run) {
  for (size_t g = std::max(run.encoded, run.made - std::min(run.made, kFetchLater)); g < run.made;
       ++g) {
    GroupLoop::fetch(run.waiting[g % PieceRun::kAhead]);
  }
  finish_groups<GroupLoop>(run);
}

#else

// Never called: no level uses it.
void add_groups_avx512(PieceRun&, size_t) {}
void finish_groups_avx512(PieceRun&) {}

#endif

}  // namespace tok
