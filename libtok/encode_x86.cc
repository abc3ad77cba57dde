// SPDX-License-Identifier: MIT
// The hot loop for AVX-512, four pieces in each register: four unaligned loads of 16 bytes,
// everything past each piece's end set to zero and its length put into the last byte; one
// multiplication hashes all four; one comparison says whether all four are known. Then four stores,
// and one branch that is nearly always taken the same way. No tail: a group is filled up with
// pieces of no bytes, which an empty slot answers. Includes: encode.h.
#include "libtok/encode.h"

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

/// Pieces of a batch: their bounds stay in the first-level cache.
constexpr size_t kBatch = 1024;

/// Groups of four pieces whose keys are made before the first of them is looked up: while one group
/// is encoded, the lines of the tables that the next ones need are on the way.
constexpr size_t kAhead = 32;

/// Piece bounds of a batch, and keys and offsets of the groups that wait. A group has four keys of
/// 16 bytes, and eight offsets of sets of which every other counts.
struct alignas(64) GroupBatch {
  uint8_t keys[kAhead][64];
  uint64_t offsets[kAhead][8];
  std::array<uint32_t, kBatch + 8> bounds;  ///< piece i is bounds[i] .. bounds[i + 1]
};

/// Logarithm of an entry's size.
constexpr int kLogEntry = 5;
static_assert(sizeof(HotEntry) == 1 << kLogEntry);

/// The last bytes of a text with room behind them, so that 16 can be read from any position.
struct TextTail {
  std::array<char, 48> bytes{};
  size_t from;  ///< position in the text of bytes[0]

  explicit TextTail(std::string_view text) noexcept
      : from(text.size() - std::min<size_t>(16, text.size())) {
    std::memcpy(bytes.data(), text.data() + from, text.size() - from);
  }
  const char* at(std::string_view text, size_t position) const noexcept {
    return position + 16 <= text.size() ? text.data() + position : bytes.data() + (position - from);
  }
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
  make_group(GroupBatch& batch, size_t g, const char* a, const char* b, const char* c,
             const char* d, const char* table) noexcept {
    const uint32_t* bounds = &batch.bounds[4 * g];
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
    _mm512_store_si512(batch.keys[g % kAhead], key);
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
    uint64_t* offsets = batch.offsets[g % kAhead];
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

  /// Encodes a group that has a piece which is not in its first place.
  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"), gnu::noinline]] static Id*
  emit_others(PieceRun& run, const GroupBatch& batch, size_t g, Id* ids) {
    for (size_t i = 0; i < 4; ++i) {
      // An earlier piece of the group may have changed the entries: look again.
      const HotEntry* entries = run.scratch.hot.entries(run.model.hot);
      const size_t place = batch.offsets[g % kAhead][2 * i] >> kLogEntry;
      PieceKey key;
      std::memcpy(&key, batch.keys[g % kAhead] + 16 * i, sizeof key);
      const HotEntry* entry = find_entry(entries, place, key);
      if (entry == nullptr) {
        ids = run.encode_missed(batch.bounds[4 * g + i], batch.bounds[4 * g + i + 1], ids, kBatch);
        continue;
      }
      ids += put<kNarrow, Id>(reinterpret_cast<const char*>(entry->words), ids);
      if (entry != &entries[place]) run.scratch.hot.found_in_second(place);
    }
    return ids;
  }

  static const char* entries_of(const PieceRun& run) noexcept {
    return reinterpret_cast<const char*>(run.scratch.hot.entries(run.model.hot));
  }

  /// Encodes group `g`, whose keys are made; returns where the next ids go.
  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline Id*
  emit(PieceRun& run, const GroupBatch& batch, size_t g, const char*& table, Id* ids) {
    constexpr size_t kWords = offsetof(HotEntry, words);
    const uint64_t* at = batch.offsets[g % kAhead];
    const char *a = table + at[0], *b = table + at[2], *c = table + at[4], *d = table + at[6];
    const __m512i keys = _mm512_load_si512(batch.keys[g % kAhead]);
    if (_mm512_cmpeq_epi64_mask(four_keys(a, b, c, d), keys) == 0xFF) [[likely]] {
      ids += put<kNarrow, Id>(a + kWords, ids);
      ids += put<kNarrow, Id>(b + kWords, ids);
      ids += put<kNarrow, Id>(c + kWords, ids);
      ids += put<kNarrow, Id>(d + kWords, ids);
      return ids;
    }
    ids = emit_others<kNarrow, Id>(run, batch, g, ids);
    table = entries_of(run);
    return ids;
  }

  /// Makes group `g`, whose pieces may lie near the end of the text.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2"),
    gnu::always_inline]] static inline void
  make(GroupBatch& batch, size_t g, std::string_view text, const TextTail& tail,
       const char* table) noexcept {
    const uint32_t* at = &batch.bounds[4 * g];
    const char* from = text.data();
    if (at[3] + size_t{16} <= text.size()) [[likely]] {
      make_group(batch, g, from + at[0], from + at[1], from + at[2], from + at[3], table);
    } else {
      make_group(batch, g, tail.at(text, at[0]), tail.at(text, at[1]), tail.at(text, at[2]),
                 tail.at(text, at[3]), table);
    }
  }

  /// Encodes the pieces of a batch behind `ids`. `mark` moves on over the texts that end in it;
  /// groups are numbered from `groups_before`.
  template <bool kNarrow, typename Id>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2")]] static Id* encode_batch(
      PieceRun& run, const TextTail& tail, GroupBatch& batch, size_t num_groups,
      std::span<const uint32_t>& marks, size_t groups_before, Id* ids) {
    const std::string_view text = run.text;
    const char* table = entries_of(run);
    const auto end_texts = [&](size_t g) {
      for (; !marks.empty() && marks.front() == groups_before + g; marks = marks.subspan(1)) {
        ids = run.lengths->end_text(run.out, ids);
      }
      return marks.empty() ? SIZE_MAX : marks.front() - groups_before;
    };
    for (size_t g = 0; g < std::min(kAhead, num_groups); ++g) make(batch, g, text, tail, table);
    size_t text_end = end_texts(0);
    for (size_t g = 0; g < num_groups; ++g) {
      ids = emit<kNarrow, Id>(run, batch, g, table, ids);
      if (g + kAhead < num_groups) make(batch, g + kAhead, text, tail, table);
      if (g + 1 == text_end) text_end = end_texts(g + 1);
    }
    return ids;
  }

  template <bool kNarrow, typename Id>
  static void encode(PieceRun& run, std::span<const uint32_t> ends) {
    GroupBatch batch;
    const TextTail tail(run.text);
    std::span<const uint32_t> marks = run.marks;
    size_t groups_before = 0;
    while (!ends.empty()) {
      const size_t count = std::min(kBatch, ends.size());
      const size_t num_groups = (count + 3) / 4;
      uint32_t* bounds = batch.bounds.data();
      bounds[0] = static_cast<uint32_t>(run.begin);
      std::memcpy(bounds + 1, ends.data(), count * sizeof *bounds);
      for (size_t i = 0; i < 4; ++i) bounds[count + 1 + i] = bounds[count];
      Id* ids = run.out.reserve_more<Id>((kBatch + 1) * PieceRun::kWordsPerPiece);
      ids = encode_batch<kNarrow>(run, tail, batch, num_groups, marks, groups_before, ids);
      groups_before += num_groups;
      run.out.advance_to(ids);
      run.begin = bounds[count];
      ends = ends.subspan(count);
    }
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
