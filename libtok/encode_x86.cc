// SPDX-License-Identifier: MIT
// The hot loop for AVX-512, four pieces in each register: four unaligned loads of 16 bytes,
// everything past each piece's end set to zero and its length put into the last byte; one
// multiplication hashes all four; one comparison says whether all four are known. Then four stores,
// and one branch that is nearly always taken the same way. No tail: a group is filled up with
// pieces of no bytes, which an empty slot answers. Includes: encode_groups.h.
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

/// Keys and offsets of the groups that wait. A group has four keys of 16 bytes, and eight offsets
/// of which every other counts.
struct alignas(64) WaitingGroups {
  uint8_t keys[kAhead][64];
  uint64_t offsets[kAhead][8];
};

/// 0..15 in each 16 bytes.
constexpr std::array<uint8_t, 64> kLaneByte = [] {
  std::array<uint8_t, 64> index{};
  for (size_t i = 0; i < 64; ++i) index[i] = static_cast<uint8_t>(i % 16);
  return index;
}();

/// The loops: a struct of static members, because attributes and inlining need named functions.
struct GroupLoop {
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline __m128i
  load16(const char* at) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  }

  /// Makes the keys and offsets of group `g` from four positions in memory.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline void
  make_group(WaitingGroups& groups, size_t g, const uint32_t* bounds, const char* a, const char* b,
             const char* c, const char* d, const char* table) noexcept {
    const __m128i starts = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bounds));
    const __m128i ends = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bounds + 1));
    // Sixteen stands for any length over fifteen: no entry has it.
    const __m128i sizes = _mm_min_epu32(_mm_sub_epi32(ends, starts), _mm_set1_epi32(16));
    __m512i raw = _mm512_zextsi128_si512(load16(a));
    raw = _mm512_inserti32x4(raw, load16(b), 1);
    raw = _mm512_inserti32x4(raw, load16(c), 2);
    raw = _mm512_inserti32x4(raw, load16(d), 3);
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i lengths = _mm512_maskz_permutexvar_epi32(0xFFFF, lane, _mm512_zextsi128_si512(sizes));
    lengths = _mm512_shuffle_epi8(lengths, _mm512_setzero_si512());
    const __mmask64 inside = _mm512_cmplt_epu8_mask(_mm512_loadu_si512(kLaneByte.data()), lengths);
    __m512i key = _mm512_maskz_mov_epi8(inside, raw);
    key = _mm512_mask_mov_epi8(key, 0x8000800080008000u, lengths);
    _mm512_store_si512(groups.keys[g % kAhead], key);
    // hot_hash
    const __m512i salt = _mm512_set4_epi64(
        static_cast<int64_t>(0xD6E8FEB86659FD93u), static_cast<int64_t>(0x9E3779B97F4A7C15u),
        static_cast<int64_t>(0xD6E8FEB86659FD93u), static_cast<int64_t>(0x9E3779B97F4A7C15u));
    const __m512i mixed = _mm512_xor_si512(key, salt);
    const __m512i product =
        _mm512_maskz_mul_epu32(0xFF, mixed, _mm512_maskz_srli_epi64(0xFF, mixed, 32));
    const __m512i other = _mm512_maskz_shuffle_epi32(0xFFFF, product, _MM_PERM_BADC);
    const __m512i hash = _mm512_add_epi64(product, other);
    // A place times the size of an entry: where it lies in the table.
    const __m512i at =
        _mm512_and_si512(_mm512_maskz_srli_epi64(0xFF, hash, HotTable::kShift - kLogEntry),
                         _mm512_set1_epi64((HotTable::kPlaces - 1) << kLogEntry));
    uint64_t* offsets = groups.offsets[g % kAhead];
    _mm512_store_si512(offsets, at);
    _mm_prefetch(table + offsets[0], _MM_HINT_T0);
    _mm_prefetch(table + offsets[2], _MM_HINT_T0);
    _mm_prefetch(table + offsets[4], _MM_HINT_T0);
    _mm_prefetch(table + offsets[6], _MM_HINT_T0);
  }

  /// Writes the ids of an entry and returns how many count.
  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline size_t
  put(const char* entry_words, Id* ids) noexcept {
    const __m128i words = _mm_load_si128(reinterpret_cast<const __m128i*>(entry_words));
    if constexpr (kNarrow) {
      if constexpr (sizeof(Id) == 2) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(ids), words);
      } else {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(ids), _mm256_cvtepu16_epi32(words));
      }
      uint16_t count;
      std::memcpy(&count, entry_words + 14, sizeof count);
      return count;
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(ids), words);
      uint32_t count;
      std::memcpy(&count, entry_words + 12, sizeof count);
      return count;
    }
  }

  /// The keys of four entries.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline __m512i
  four_keys(const char* a, const char* b, const char* c, const char* d) noexcept {
    static_assert(offsetof(HotEntry, key) == 0);
    __m512i keys = _mm512_zextsi128_si512(load16(a));
    keys = _mm512_inserti32x4(keys, load16(b), 1);
    keys = _mm512_inserti32x4(keys, load16(c), 2);
    return _mm512_inserti32x4(keys, load16(d), 3);
  }

  /// Encodes group `g`, whose keys are made; returns where the next ids go.
  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline Id*
  emit(PieceRun& run, const WaitingGroups& groups, size_t g, const uint32_t* bounds,
       const char*& table, Id* ids) {
    constexpr size_t kWords = offsetof(HotEntry, words);
    const uint64_t* at = groups.offsets[g % kAhead];
    const char *a = table + at[0], *b = table + at[2], *c = table + at[4], *d = table + at[6];
    const __m512i keys = _mm512_load_si512(groups.keys[g % kAhead]);
    if (_mm512_cmpeq_epi64_mask(four_keys(a, b, c, d), keys) == 0xFF) [[likely]] {
      ids += put<kNarrow, Id>(a + kWords, ids);
      ids += put<kNarrow, Id>(b + kWords, ids);
      ids += put<kNarrow, Id>(c + kWords, ids);
      ids += put<kNarrow, Id>(d + kWords, ids);
      return ids;
    }
    ids = encode_one_by_one<kNarrow>(run, groups.keys[g % kAhead], bounds, ids);
    table = entries_of(run);
    return ids;
  }

  /// Makes group `g`, whose pieces may lie near the end of the text.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline void
  make(WaitingGroups& groups, size_t g, const uint32_t* at, std::string_view text,
       const TextTail& tail, const char* table) noexcept {
    const char* from = text.data();
    if (at[3] + size_t{16} <= text.size()) [[likely]] {
      make_group(groups, g, at, from + at[0], from + at[1], from + at[2], from + at[3], table);
    } else {
      make_group(groups, g, at, tail.at(text, at[0]), tail.at(text, at[1]), tail.at(text, at[2]),
                 tail.at(text, at[3]), table);
    }
  }

  /// Encodes the pieces of a batch behind `ids`; returns where the next ids go.
  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2")]] static Id* encode_batch(
      PieceRun& run, const TextTail& tail, const PieceBounds& bounds, size_t num_groups,
      TextEnds& text_ends, Id* ids) {
    WaitingGroups groups;
    const std::string_view text = run.text;
    const uint32_t* at = bounds.data();
    const char* table = entries_of(run);
    for (size_t g = 0; g < std::min(kAhead, num_groups); ++g) {
      make(groups, g, at + 4 * g, text, tail, table);
    }
    ids = text_ends.end_texts(run, 0, ids);
    size_t text_end = text_ends.next();
    for (size_t g = 0; g < num_groups; ++g, at += 4) {
      ids = emit<kNarrow, Id>(run, groups, g, at, table, ids);
      if (g + kAhead < num_groups) make(groups, g + kAhead, at + 4 * kAhead, text, tail, table);
      if (g + 1 == text_end) {
        ids = text_ends.end_texts(run, g + 1, ids);
        text_end = text_ends.next();
      }
    }
    return ids;
  }

  template <bool kNarrow, typename Id>
  static void encode(PieceRun& run, std::span<const uint32_t> ends) {
    const TextTail tail(run.text);
    encode_in_batches<Id>(
        run, ends, [&](const PieceBounds& bounds, size_t num_groups, TextEnds& text_ends, Id* ids) {
          return encode_batch<kNarrow>(run, tail, bounds, num_groups, text_ends, ids);
        });
  }
};

}  // namespace

void encode_pieces_avx512(PieceRun& run, std::span<const uint32_t> ends) {
  if (run.out.width() == IdWidth::two) return GroupLoop::encode<true, uint16_t>(run, ends);
  if (run.model.hot.narrow()) return GroupLoop::encode<true, int32_t>(run, ends);
  GroupLoop::encode<false, int32_t>(run, ends);
}

#else

void encode_pieces_avx512(PieceRun&, std::span<const uint32_t>) {}  // no level leads here

#endif

}  // namespace tok
