// The hot loop. Keys of a block of pieces are made first, so that their cache lines are on the way
// while earlier pieces are looked up.
// SPDX-License-Identifier: MIT
#include "libtok/encode.h"

#include <algorithm>

namespace tok {
namespace {

/// Pieces whose keys are made ahead.
constexpr size_t kBlock = 64;

/// Tags of look-ups: a whole piece, or a segment of one under a vocabulary that looks whole pieces
/// up first.
constexpr uint8_t kWhole = 0;
constexpr uint8_t kSegment = 1;

/// Appends what merging gives for a segment that no look-up answers for; remembers it.
void append_merged(const Vocab& vocab, std::string_view piece, uint8_t tag, PieceScratch& scratch,
                   TokenBuffer& out, const char* readable_end) {
  if (piece.size() == 1) {
    const int32_t id = vocab.byte_id(static_cast<uint8_t>(piece[0]));
    if (id != kNoId) return out.push_back(id);
  }
  PieceKey key{};
  uint64_t hash = 0;
  const bool is_short = piece.size() <= PieceKey::kMaxBytes;
  if (is_short) {
    key = PieceKey::of(piece, readable_end);
    if (tag == kSegment) key = key.as_segment();
    hash = key.hash();
    if (const PieceCache::Short* entry = scratch.cache.find(key, hash)) {
      return out.append(entry->ids());
    }
  }
  if (const std::span<const int32_t> ids = scratch.cache.find_long(piece, tag); !ids.empty()) {
    return out.append(ids);
  }
  int32_t* ids = out.reserve_more(piece.size());
  const size_t count = merge_piece(vocab, piece, scratch.merge, ids);
  if (is_short && count <= PieceCache::kShortIds) {
    scratch.cache.insert(key, hash, {ids, count});
  } else {
    scratch.cache.insert_long(piece, tag, {ids, count});
  }
  out.advance(count);
}

/// Appends the ids of a piece that the table of short pieces does not hold.
void append_missed(const Vocab& vocab, const ExactCut& cut, std::string_view piece,
                   const char* readable_end, PieceScratch& scratch, TokenBuffer& out) {
  if (const std::span<const int32_t> ids = scratch.cache.find_long(piece, kWhole); !ids.empty()) {
    return out.append(ids);
  }
  const size_t size_before = out.size();
  uint8_t tag = kWhole;
  bool known = false;
  if (vocab.whole_piece_first()) {
    tag = kSegment;
    if (const int32_t id = vocab.find(piece); id != kNoId) {
      out.push_back(id);
      known = true;
    }
  }
  if (!known) {
    size_t begin = 0;
    for (size_t at = 1; at < piece.size(); ++at) {
      if (!cut.can_cut(piece, at)) continue;
      append_merged(vocab, piece.substr(begin, at - begin), tag, scratch, out, readable_end);
      begin = at;
    }
    append_merged(vocab, piece.substr(begin), tag, scratch, out, readable_end);
  }
  const std::span<const int32_t> ids = out.tokens().subspan(size_before);
  if (piece.size() <= PieceKey::kMaxBytes && ids.size() <= PieceCache::kShortIds) {
    const PieceKey key = PieceKey::of(piece, readable_end);
    scratch.cache.insert(key, key.hash(), ids);
  } else {
    scratch.cache.insert_long(piece, kWhole, ids);
  }
}

}  // namespace

void encode_pieces(const Vocab& vocab, const ExactCut& cut, std::string_view text, size_t begin,
                   std::span<const uint32_t> ends, PieceScratch& scratch, TokenBuffer& out) {
  const char* readable_end = text.data() + text.size();
  PieceKey keys[kBlock];
  uint64_t hashes[kBlock];
  while (!ends.empty()) {
    const size_t count = std::min(kBlock, ends.size());
    size_t start = begin;
    for (size_t i = 0; i < count; ++i) {
      const size_t size = ends[i] - start;
      // A long piece gets the key of nothing, which no entry has.
      keys[i] = size <= PieceKey::kMaxBytes ? PieceKey::of(text.substr(start, size), readable_end)
                                            : PieceKey{0, UINT64_MAX};
      hashes[i] = keys[i].hash();
      scratch.cache.prefetch(hashes[i]);
      start = ends[i];
    }
    // Every piece found writes kShortIds + 1 words and keeps as many as it has ids.
    int32_t* ids = out.reserve_more(count * (PieceCache::kShortIds + 1));
    for (size_t i = 0; i < count; ++i) {
      const PieceCache::Short* entry = scratch.cache.find(keys[i], hashes[i]);
      if (entry != nullptr) [[likely]] {
        std::memcpy(ids, entry->words, sizeof(entry->words));
        ids += entry->count();
        begin = ends[i];
        continue;
      }
      out.advance(static_cast<size_t>(ids - out.data()) - out.size());
      append_missed(vocab, cut, text.substr(begin, ends[i] - begin), readable_end, scratch, out);
      ids = out.reserve_more((count - i) * (PieceCache::kShortIds + 1));
      begin = ends[i];
    }
    out.advance(static_cast<size_t>(ids - out.data()) - out.size());
    ends = ends.subspan(count);
  }
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
