// The plain merge and the bounded one, and the exact cut.
// SPDX-License-Identifier: MIT
#include "libtok/merge.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace tok {
namespace {

/// Pieces up to this many symbols are merged by linear search, which beats a heap there.
constexpr size_t kLinearSymbols = 32;

constexpr uint32_t kNone = UINT32_MAX;

/// Writes the first symbols of a piece, one a byte: bytes without a token are dropped or become
/// unk_id, which fuses with an unk_id just before it where the vocabulary says so.
template <typename Write>
void first_symbols(const Vocab& vocab, std::string_view piece, Write write) {
  bool after_unk = false;
  for (char c : piece) {
    int32_t id = vocab.byte_id(static_cast<uint8_t>(c));
    if (id != kNoId) {
      after_unk = false;
    } else {
      // A dropped byte is no symbol, but without unk_id there is nothing to fuse either.
      if (vocab.unk_id() == kNoId || (after_unk && vocab.fuse_unk())) continue;
      id = vocab.unk_id();
      after_unk = true;
    }
    write(id);
  }
}

/// Merges up to kLinearSymbols symbols. Nothing is moved: a symbol that was absorbed leaves a gap,
/// and `alive` says which are left. A pair that merges waits at its left symbol under its rank and
/// its place, so that the smallest number is the next merge.
size_t merge_linear(const Vocab& vocab, std::string_view piece, int32_t* ids, size_t count) {
  uint64_t waiting[kLinearSymbols];
  int32_t merged[kLinearSymbols];
  constexpr uint64_t kNever = UINT64_MAX;
  const auto set = [&](size_t at, Merge merge) {
    merged[at] = merge.id;
    waiting[at] = merge.exists() ? static_cast<uint64_t>(merge.rank) << 32 | at : kNever;
  };
  if (count == piece.size() && vocab.missing_bytes() == 0) {
    for (size_t i = 0; i + 1 < count; ++i) {
      set(i,
          vocab.merge_of_bytes(static_cast<uint8_t>(piece[i]), static_cast<uint8_t>(piece[i + 1])));
    }
  } else {
    for (size_t i = 0; i + 1 < count; ++i) set(i, vocab.merge(ids[i], ids[i + 1]));
  }
  uint64_t alive = (uint64_t{1} << count) - 1;
  while (true) {
    uint64_t best = kNever;
    for (size_t i = 0; i + 1 < count; ++i) best = std::min(best, waiting[i]);
    if (best == kNever) break;
    const size_t at = static_cast<uint32_t>(best);
    const uint64_t after = alive & (~uint64_t{1} << at);
    const uint64_t absorbed = after & (0 - after);
    alive &= ~absorbed;
    ids[at] = merged[at];
    waiting[at] = waiting[static_cast<size_t>(std::countr_zero(absorbed))] = kNever;
    if (const uint64_t right = after & ~absorbed; right != 0) {
      set(at, vocab.merge(ids[at], ids[std::countr_zero(right)]));
    }
    if (const uint64_t left = alive & ((uint64_t{1} << at) - 1); left != 0) {
      const size_t before = 63 - static_cast<size_t>(std::countl_zero(left));
      set(before, vocab.merge(ids[before], ids[at]));
    }
  }
  size_t written = 0;
  for (; alive != 0; alive &= alive - 1) ids[written++] = ids[std::countr_zero(alive)];
  return written;
}

uint64_t heap_entry(uint32_t rank, size_t at) noexcept {
  return static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(at);
}

size_t merge_heap(const Vocab& vocab, MergeScratch& scratch, int32_t* ids, size_t count) {
  std::vector<MergeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap = scratch.heap;
  symbols.resize(count);
  heap.clear();
  for (size_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    symbols[i] = {ids[i], last ? kNone : static_cast<uint32_t>(i + 1),
                  i == 0 ? kNone : static_cast<uint32_t>(i - 1),
                  last ? Merge{kNone, kNoId} : vocab.merge(ids[i], ids[i + 1])};
    if (symbols[i].merge.exists()) heap.push_back(heap_entry(symbols[i].merge.rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto set_merge = [&](uint32_t at) {
    MergeScratch::Symbol& symbol = symbols[at];
    symbol.merge = symbol.next == kNone ? Merge{kNone, kNoId}
                                        : vocab.merge(symbol.id, symbols[symbol.next].id);
    if (!symbol.merge.exists()) return;
    heap.push_back(heap_entry(symbol.merge.rank, at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const uint32_t at = static_cast<uint32_t>(top);
    MergeScratch::Symbol& symbol = symbols[at];
    // A pair at a position only grows, and each pair has one rank: an equal rank is the same pair.
    if (!symbol.merge.exists() || symbol.merge.rank != top >> 32) continue;
    const uint32_t absorbed = symbol.next;
    symbol.id = symbol.merge.id;
    symbol.next = symbols[absorbed].next;
    if (symbol.next != kNone) symbols[symbol.next].previous = at;
    symbols[absorbed].merge = {kNone, kNoId};
    set_merge(at);
    if (symbol.previous != kNone) set_merge(symbol.previous);
  }
  size_t written = 0;
  for (uint32_t at = 0; at != kNone; at = symbols[at].next) ids[written++] = symbols[at].id;
  return written;
}

/// Hash of the bytes around a position. `left` and `right` are 1..3 bytes, nearest byte lowest.
uint64_t context_hash(uint32_t left, size_t left_size, uint32_t right, size_t right_size) noexcept {
  uint64_t key = static_cast<uint64_t>(left) << 32 | right;
  key |= static_cast<uint64_t>(left_size) << 60 | static_cast<uint64_t>(right_size) << 28;
  key *= 0x9E3779B97F4A7C15u;
  key ^= key >> 29;
  key *= 0xBF58476D1CE4E5B9u;
  return key ^ (key >> 32);
}

/// The three bits of a context in its word of the filter.
uint64_t context_bits(uint64_t hash) noexcept {
  return uint64_t{1} << (hash >> 58) | uint64_t{1} << (hash >> 52 & 63) |
         uint64_t{1} << (hash >> 46 & 63);
}

}  // namespace

void merge_piece_plain(const Vocab& vocab, std::string_view piece, std::vector<int32_t>& ids) {
  std::vector<int32_t> symbols;
  first_symbols(vocab, piece, [&](int32_t id) { symbols.push_back(id); });
  while (true) {
    size_t best = 0;
    Merge best_merge{kNone, kNoId};
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = vocab.merge(symbols[i], symbols[i + 1]);
      if (!merge.exists() || (best_merge.exists() && merge.rank >= best_merge.rank)) continue;
      best = i;
      best_merge = merge;
    }
    if (!best_merge.exists()) break;
    symbols[best] = best_merge.id;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

size_t merge_piece(const Vocab& vocab, std::string_view piece, MergeScratch& scratch,
                   int32_t* ids) {
  size_t count = 0;
  first_symbols(vocab, piece, [&](int32_t id) { ids[count++] = id; });
  if (count <= kLinearSymbols) return merge_linear(vocab, piece, ids, count);
  return merge_heap(vocab, scratch, ids, count);
}

ExactCut::ExactCut(const Vocab& vocab) {
  size_t num_contexts = 0;
  for (int32_t id : vocab.merge_results()) num_contexts += vocab.bytes(id).size() - 1;
  // 16 bits a context and 3 set: about one query in 200 is answered yes by chance.
  contexts_.assign(std::bit_ceil(std::max<size_t>(16, num_contexts / 4)), 0);
  contexts_mask_ = contexts_.size() - 1;
  for (int32_t id : vocab.merge_results()) {
    const std::string_view token = vocab.bytes(id);
    for (size_t at = 1; at < token.size(); ++at) {
      neighbours_.set(static_cast<uint8_t>(token[at - 1]), static_cast<uint8_t>(token[at]));
      add_context(token.substr(0, at), token.substr(at));
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    missing_[byte] = vocab.byte_id(static_cast<uint8_t>(byte)) == kNoId;
    if (!missing_[byte]) continue;
    for (unsigned other = 0; other < 256; ++other) {
      neighbours_.set(static_cast<uint8_t>(byte), static_cast<uint8_t>(other));
      neighbours_.set(static_cast<uint8_t>(other), static_cast<uint8_t>(byte));
    }
  }
}

void ExactCut::add_context(std::string_view left, std::string_view right) {
  const size_t left_size = std::min(kContext, left.size());
  const size_t right_size = std::min(kContext, right.size());
  uint32_t left_bytes = 0;
  uint32_t right_bytes = 0;
  for (size_t i = 0; i < left_size; ++i) {
    left_bytes |= static_cast<uint32_t>(static_cast<unsigned char>(left[left.size() - 1 - i]))
                  << (8 * i);
  }
  for (size_t i = 0; i < right_size; ++i) {
    right_bytes |= static_cast<uint32_t>(static_cast<unsigned char>(right[i])) << (8 * i);
  }
  const uint64_t hash = context_hash(left_bytes, left_size, right_bytes, right_size);
  contexts_[hash & contexts_mask_] |= context_bits(hash);
}

bool ExactCut::may_span(std::string_view piece, size_t at) const noexcept {
  const size_t most_left = std::min(kContext, at);
  const size_t most_right = std::min(kContext, piece.size() - at);
  uint32_t left = 0;
  for (size_t i = 0; i < most_left; ++i) {
    const unsigned char left_byte = static_cast<unsigned char>(piece[at - 1 - i]);
    if (missing_[left_byte]) return true;
    left |= static_cast<uint32_t>(left_byte) << (8 * i);
    uint32_t right = 0;
    for (size_t j = 0; j < most_right; ++j) {
      const unsigned char right_byte = static_cast<unsigned char>(piece[at + j]);
      if (missing_[right_byte]) return true;
      right |= static_cast<uint32_t>(right_byte) << (8 * j);
      const uint64_t hash = context_hash(left, i + 1, right, j + 1);
      const uint64_t bits = context_bits(hash);
      if ((contexts_[hash & contexts_mask_] & bits) == bits) return true;
    }
  }
  return false;
}

}  // namespace tok
