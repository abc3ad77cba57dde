// SPDX-License-Identifier: MIT
// What the loops of encode_x86.cc and encode_avx2.cc share: the order in which groups of four
// pieces are made and encoded, the ends of texts, and groups that have to be looked up piece by
// piece. Not for other callers. Includes: encode.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "libtok/encode.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tok {

/// Logarithm of an entry's size.
inline constexpr int kLogEntry = 5;
static_assert(sizeof(HotEntry) == 1 << kLogEntry);

/// The entries that a run searches first.
inline const char* entries_of(const PieceRun& run) noexcept {
  return reinterpret_cast<const char*>(run.scratch.hot.entries(run.model.hot));
}

#if defined(__x86_64__)
/// write_ids in a few instructions; `at` is the place of an entry's words. Eight ids are written.
template <bool kNarrow, typename Id>
[[gnu::target("avx2"), gnu::always_inline]] inline size_t put_ids(const char* at,
                                                                  Id* ids) noexcept {
  const __m128i words = _mm_load_si128(reinterpret_cast<const __m128i*>(at));
  if constexpr (kNarrow && sizeof(Id) == 2) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(ids), words);
  } else if constexpr (kNarrow) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(ids), _mm256_cvtepu16_epi32(words));
  } else {
    // Both halves see all words: three bytes of each of four ids, and of the fifth.
    const __m256i spread =
        _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 12, 13, 14, -1, -1,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i wide = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(words), spread);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(ids), wide);
  }
  if constexpr (!kNarrow) return static_cast<uint8_t>(at[15]);
  uint16_t count;
  std::memcpy(&count, at + 14, sizeof count);
  return count;
}
#endif

/// Encodes a group that has a piece which is not in its first place.
template <bool kNarrow, typename Id>
[[gnu::noinline]] Id* encode_one_by_one(PieceRun& run, const WaitingGroup& group, Id* ids) {
  for (size_t i = 0; i < 4; ++i) {
    // An earlier piece of the group may have changed the entries: look again.
    const HotEntry* entries = run.scratch.hot.entries(run.model.hot);
    PieceKey key;
    std::memcpy(&key, group.keys + 16 * i, sizeof key);
    const size_t place = HotTable::place_of(hot_hash(key));
    const HotEntry* entry = find_entry(entries, place, key);
    if (entry == nullptr) {
      ids = run.encode_missed(group.begins[i], group.ends[i], ids);
      continue;
    }
    ids += write_ids<kNarrow>(entry->words, ids);
    if (entry != &entries[place]) run.scratch.hot.found_in_second(place);
  }
  return ids;
}

/// Ends the text whose last group was encoded just now, if there is one.
template <typename Id>
Id* end_text(PieceRun& run, Id* ids) {
  if (run.groups_to_text_end() != 0) return ids;
  ++run.first_mark;
  return run.lengths->end_text(run.out, ids);
}

/// What each instruction set provides, in functions compiled for it. Loop::make(run, from, to)
/// makes groups from..to of the block; Loop::encode_and_make(run, from, to, ids) does so and
/// encodes as many queued ones; Loop::encode_waiting(run, count, ids) only encodes. Each updates
/// run.made and run.encoded.
template <typename Loop, bool kNarrow, typename Id>
void add_groups_as(PieceRun& run, size_t num_groups) {
  Id* ids = run.out.reserve_more<Id>(PieceRun::kWords);
  size_t g = std::min(num_groups, PieceRun::kAhead - (run.made - run.encoded));
  Loop::make(run, 0, g);
  while (g < num_groups) {
    const size_t count = std::min(num_groups - g, run.groups_to_text_end());
    ids = Loop::template encode_and_make<kNarrow>(run, g, g + count, ids);
    ids = end_text(run, ids);
    g += count;
  }
  run.out.advance_to(ids);
}

template <typename Loop, bool kNarrow, typename Id>
void finish_groups_as(PieceRun& run) {
  Id* ids = run.out.reserve_more<Id>(PieceRun::kWords);
  while (run.encoded < run.made) {
    const size_t count = std::min(run.made - run.encoded, run.groups_to_text_end());
    ids = Loop::template encode_waiting<kNarrow>(run, count, ids);
    ids = end_text(run, ids);
  }
  run.out.advance_to(ids);
}

/// Both, for the run's width of ids and form of entries.
template <typename Loop>
void add_groups(PieceRun& run, size_t num_groups) {
  if (run.out.width() == IdWidth::two) return add_groups_as<Loop, true, uint16_t>(run, num_groups);
  if (run.model.hot.narrow()) return add_groups_as<Loop, true, int32_t>(run, num_groups);
  add_groups_as<Loop, false, int32_t>(run, num_groups);
}
template <typename Loop>
void finish_groups(PieceRun& run) {
  if (run.out.width() == IdWidth::two) return finish_groups_as<Loop, true, uint16_t>(run);
  if (run.model.hot.narrow()) return finish_groups_as<Loop, true, int32_t>(run);
  finish_groups_as<Loop, false, int32_t>(run);
}

}  // namespace tok
