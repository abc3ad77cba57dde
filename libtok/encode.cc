// SPDX-License-Identifier: MIT
// The plain loop, and the path of a piece that the first table does not have: the second table, the
// table of long pieces, the whole-piece look-up, the exact cut, the merge. None of it allocates in
// the steady state. The other loops are in encode_avx2.cc
// and encode_x86.cc. Includes: encode.h.
#include "libtok/encode.h"

#include <algorithm>
#include <cassert>

namespace tok {
namespace {

/// Keys are made this many pieces ahead, so that their cache lines are prefetched.
constexpr size_t kLookAhead = 64;

/// Longer parts are merged in windows of this size: one takes 28 bytes for each byte and stays in
/// the second-level cache.
constexpr size_t kWindow = size_t{1} << 15;

/// Tags of look-ups among long pieces: a whole piece, or a part of one, which must not be confused
/// with it.
constexpr uint8_t kWhole = 0;
constexpr uint8_t kPart = 1;

/// Appends the ids in an entry's words.
void append_words(PieceRun& run, const uint8_t (&words)[16]) {
  if (run.out.width() == IdWidth::two) {
    uint16_t* ids = run.out.reserve_more<uint16_t>(PieceRun::kWordsPerPiece);
    return run.out.advance(write_ids<true>(words, ids));
  }
  int32_t* ids = run.out.reserve_more<int32_t>(PieceRun::kWordsPerPiece);
  run.out.advance(run.model.hot.narrow() ? write_ids<true>(words, ids)
                                         : write_ids<false>(words, ids));
}

/// The same for an entry of many ids; false if it does not have them.
bool append_many(PieceRun& run, const uint8_t (&words)[16]) {
  constexpr size_t kRoom = HotEntry::kMaxMany + 1;
  size_t count;
  if (run.out.width() == IdWidth::two) {
    count = write_many_ids<true>(words, run.out.reserve_more<uint16_t>(kRoom));
  } else {
    int32_t* ids = run.out.reserve_more<int32_t>(kRoom);
    count = run.model.hot.narrow() ? write_many_ids<true>(words, ids)
                                   : write_many_ids<false>(words, ids);
  }
  run.out.advance(count);
  return count > 0;
}

/// Appends a short piece: second table, else merge. `whole`: a whole-piece look-up comes first.
void append_short(PieceRun& run, std::string_view piece, PieceKey key, bool whole) {
  const Vocab& vocab = run.model.vocab;
  const uint64_t hash = hot_hash(key);
  const bool narrow = run.model.hot.narrow();
  const uint8_t tag = key.is_segment() ? kPart : kWhole;
  HotEntry entry{.key = key, .words = {}};
  const bool found = run.scratch.hot.find(run.model.hot, key, hash, entry);
  if (found) {
    if (!entry.key.is_many()) return append_words(run, entry.words);
    if (append_many(run, entry.words)) return;
    const std::span<const int32_t> ids = run.scratch.cache.find(piece, tag);
    if (!ids.empty()) return run.out.append(ids);
  }
  int32_t ids[PieceKey::kMaxBytes];
  size_t count = 1;
  if (!whole || (ids[0] = vocab.find(piece)) == kNoId) {
    count = merge_piece(vocab, piece, run.scratch.merge, ids);
  }
  if (!found) {
    if (!entry.set_ids(narrow, {ids, count})) entry.set_many_ids(narrow, {ids, count});
    run.scratch.hot.insert(entry, hash);
  }
  if (entry.key.is_many() && !entry.holds_many(narrow)) {
    run.scratch.cache.insert(piece, tag, {ids, count});
  }
  run.out.append({ids, count});
}

/// Appends a part of a piece between two exact cuts: it is merged, even if a token has exactly its
/// bytes.
void append_part(PieceRun& run, std::string_view part) {
  const Vocab& vocab = run.model.vocab;
  if (part.size() == 1) {
    const int32_t id = vocab.byte_id(static_cast<uint8_t>(part[0]));
    if (id != kNoId) return run.out.push_back(id);
  }
  if (part.size() <= PieceKey::kMaxBytes) {
    PieceKey key = PieceKey::of(part, run.text.data() + run.text.size());
    if (!run.model.parts_are_pieces()) key = key.as_segment();
    const HotEntry* entry =
        find_entry(run.scratch.hot.entries(run.model.hot), HotTable::place_of(hot_hash(key)), key);
    if (entry == nullptr) return append_short(run, part, key, false);
    return append_words(run, entry->words);
  }
  if (const std::span<const int32_t> ids = run.scratch.cache.find(part, kPart); !ids.empty()) {
    return run.out.append(ids);
  }
  if (part.size() > 2 * kWindow &&
      merge_windows(vocab, part, kWindow, run.scratch.merge, run.out)) {
    return;
  }
  std::vector<int32_t>& ids = run.scratch.merged;
  ids.resize(part.size());
  ids.resize(merge_piece(vocab, part, run.scratch.merge, ids.data()));
  run.scratch.cache.insert(part, kPart, ids);
  run.out.append(ids);
}

/// Appends a long piece, cut wherever that may be done.
void append_parts(PieceRun& run, std::string_view piece) {
  size_t begin = 0;
  for (size_t at = 1; at < piece.size(); ++at) {
    const char c = piece[at];
    // Inside a character there are few cuts, and the test is expensive.
    if ((static_cast<uint8_t>(c) & 0xC0) == 0x80) continue;
    if (!run.model.cut.can_cut(piece, at)) continue;
    append_part(run, piece.substr(begin, at - begin));
    begin = at;
    // In a run of a byte that never merges with itself every byte but the last is a part.
    if (run.model.cut.neighbours().joins(static_cast<uint8_t>(c), static_cast<uint8_t>(c))) {
      continue;
    }
    while (at + 1 < piece.size() && piece[at + 1] == c) ++at;
    run.out.append_copies(run.model.vocab.byte_id(static_cast<uint8_t>(c)), at - begin);
    begin = at;
  }
  append_part(run, piece.substr(begin));
}

/// Appends a piece of more than 15 bytes.
void append_long(PieceRun& run, std::string_view piece) {
  if (const std::span<const int32_t> ids = run.scratch.cache.find(piece, kWhole); !ids.empty()) {
    return run.out.append(ids);
  }
  const size_t size_before = run.out.size();
  const Vocab& vocab = run.model.vocab;
  const int32_t id = vocab.whole_piece_first() ? vocab.find(piece) : kNoId;
  if (id != kNoId) {
    run.out.push_back(id);
  } else {
    append_parts(run, piece);
  }
  int32_t ids[PieceCache::kMaxIds];
  const size_t count = run.out.size() - size_before;
  if (count > PieceCache::kMaxIds) return;
  for (size_t i = 0; i < count; ++i) ids[i] = run.out[size_before + i];
  run.scratch.cache.insert(piece, kWhole, {ids, count});
}

/// Encodes pieces from..to of the block.
template <bool kNarrow, typename Id>
void encode_plainly(PieceRun& run, size_t from, size_t to) {
  const char* readable_end = run.text.data() + run.text.size();
  PieceKey keys[kLookAhead];
  size_t at[kLookAhead];
  while (from < to) {
    const size_t count = std::min(kLookAhead, to - from);
    const uint32_t* bounds = &run.bounds[from];
    const HotEntry* entries = run.scratch.hot.entries(run.model.hot);
    for (size_t i = 0; i < count; ++i) {
      const size_t size = bounds[i + 1] - bounds[i];
      // A long piece gets a key that no entry has.
      keys[i] = size <= PieceKey::kMaxBytes
                    ? PieceKey::of(run.text.substr(bounds[i], size), readable_end)
                    : PieceKey{0, UINT64_MAX};
      at[i] = HotTable::place_of(hot_hash(keys[i]));
      __builtin_prefetch(&entries[at[i]]);
    }
    Id* ids = run.out.reserve_more<Id>(PieceRun::kWords);
    for (size_t i = 0; i < count; ++i) {
      const HotEntry* entry = find_entry(entries, at[i], keys[i]);
      if (entry != nullptr) [[likely]] {
        ids += write_ids<kNarrow>(entry->words, ids);
      } else {
        ids = run.encode_missed(bounds[i], bounds[i + 1], ids);
        entries = run.scratch.hot.entries(run.model.hot);
      }
    }
    run.out.advance_to(ids);
    from += count;
  }
}

/// The same for a block, text by text.
template <bool kNarrow, typename Id>
void add_plainly(PieceRun& run, size_t count, std::span<const uint32_t> marks) {
  size_t from = 0;
  for (const uint32_t mark : marks) {
    encode_plainly<kNarrow, Id>(run, from, size_t{mark} * 4);
    from = size_t{mark} * 4;
    run.out.advance_to(run.lengths->end_text(run.out, run.out.reserve_more<Id>(1)));
  }
  encode_plainly<kNarrow, Id>(run, from, count);
}

void add_plainly(PieceRun& run, size_t count, std::span<const uint32_t> marks) {
  if (run.out.width() == IdWidth::two) return add_plainly<true, uint16_t>(run, count, marks);
  if (run.model.hot.narrow()) return add_plainly<true, int32_t>(run, count, marks);
  add_plainly<false, int32_t>(run, count, marks);
}

}  // namespace

PieceRun::PieceRun(const PieceModel& piece_model, std::string_view whole_text, size_t begin,
                   PieceScratch& piece_scratch, TokenBuffer& ids, TextLengths* text_lengths)
    : model(piece_model),
      text(whole_text),
      scratch(piece_scratch),
      out(ids),
      lengths(text_lengths),
      tail(whole_text) {
  assert(out.width() == IdWidth::four || model.hot.narrow());
  bounds[0] = static_cast<uint32_t>(begin);
}

void PieceRun::add(size_t count, std::span<const uint32_t> new_marks) {
  assert(count <= kBlock);
  const uint32_t end = bounds[count];
  if (model.level < SimdLevel::avx2) {
    add_plainly(*this, count, new_marks);
  } else {
    // A group that is not full is filled with empty pieces.
    for (size_t i = 1; i < 4; ++i) bounds[count + i] = end;
    num_marks = static_cast<size_t>(
        std::copy(marks.begin() + first_mark, marks.begin() + num_marks, marks.begin()) -
        marks.begin());
    first_mark = 0;
    for (const uint32_t mark : new_marks) marks[num_marks++] = static_cast<uint32_t>(made + mark);
    const size_t num_groups = (count + 3) / 4;
    if (model.level >= SimdLevel::avx512bw) {
      add_groups_avx512(*this, num_groups);
    } else {
      add_groups_avx2(*this, num_groups);
    }
  }
  bounds[0] = end;
}

void PieceRun::finish() {
  if (model.level >= SimdLevel::avx512bw) return finish_groups_avx512(*this);
  if (model.level >= SimdLevel::avx2) finish_groups_avx2(*this);
}

template <typename Id>
Id* PieceRun::encode_missed(size_t from, size_t to, Id* ids) {
  out.advance_to(ids);
  const std::string_view piece = text.substr(from, to - from);
  if (piece.size() <= PieceKey::kMaxBytes) {
    // Where merging reaches every token it gives what a whole-piece look-up would.
    append_short(*this, piece, PieceKey::of(piece, text.data() + text.size()),
                 model.vocab.whole_piece_first() && model.hot.has_unreachable_tokens());
  } else {
    append_long(*this, piece);
  }
  return out.reserve_more<Id>(kWords);
}

template uint16_t* PieceRun::encode_missed(size_t, size_t, uint16_t*);
template int32_t* PieceRun::encode_missed(size_t, size_t, int32_t*);

void encode_pieces(const PieceModel& model, std::string_view text, size_t begin,
                   std::span<const uint32_t> ends, PieceScratch& scratch, TokenBuffer& out) {
  PieceRun run(model, text, begin, scratch, out);
  while (!ends.empty()) {
    const size_t count = std::min(ends.size(), PieceRun::kBlock);
    std::copy(ends.begin(), ends.begin() + static_cast<ptrdiff_t>(count), run.room().begin());
    run.add(count);
    ends = ends.subspan(count);
  }
  run.finish();
}

void encode_piece_plain(const Vocab& vocab, std::string_view piece, std::vector<int32_t>& out) {
  if (vocab.whole_piece_first()) {
    if (const int32_t id = vocab.find(piece); id != kNoId) {
      out.push_back(id);
      return;
    }
  }
  merge_piece_plain(vocab, piece, out);
}

}  // namespace tok
