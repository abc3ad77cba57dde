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

/// With more contexts between wide characters than this their sides have so many bits that
/// unrelated ones often share one.
constexpr size_t kFewContexts = 1024;

constexpr uint32_t kNone = UINT32_MAX;

/// Writes the first symbols of a piece, one for each byte: bytes without a token are dropped or
/// become unk_id, which fuses with an unk_id just before it where the vocabulary says so.
template <typename Write>
void first_symbols(const Vocab& vocab, std::string_view piece, Write write) {
  bool after_unk = false;
  for (char c : piece) {
    int32_t id = vocab.byte_id(static_cast<uint8_t>(c));
    if (id != kNoId) {
      after_unk = false;
    } else {
      // A dropped byte is not a symbol; without unk_id there is nothing to fuse.
      if (vocab.unk_id() == kNoId || (after_unk && vocab.fuse_unk())) continue;
      id = vocab.unk_id();
      after_unk = true;
    }
    write(id);
  }
}

/// Merges up to kLinearSymbols symbols. Nothing is moved: an absorbed symbol leaves a gap, and
/// `alive` says which are left. The merge of a pair is stored at its left symbol as a number from
/// its rank and its place, so that the smallest number is the next merge.
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

/// The `size` bytes before or from `text`, the nearest to the position lowest.
ContextSide left_side(const char* end, size_t size) noexcept {
  uint32_t bytes = 0;
  for (size_t i = 0; i < size; ++i) {
    bytes |= static_cast<uint32_t>(static_cast<unsigned char>(end[-1 - static_cast<ptrdiff_t>(i)]))
             << (8 * i);
  }
  return {bytes, size};
}
ContextSide right_side(const char* begin, size_t size) noexcept {
  uint32_t bytes = 0;
  for (size_t i = 0; i < size; ++i) {
    bytes |= static_cast<uint32_t>(static_cast<unsigned char>(begin[i])) << (8 * i);
  }
  return {bytes, size};
}

/// Whether one character of three bytes may end with the first byte and another begin with the
/// second.
bool between_wide(char before, char behind) noexcept {
  return (before & 0xC0) == 0x80 && (behind & 0xF0) == 0xE0;
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

bool merge_windows(const Vocab& vocab, std::string_view piece, size_t window, MergeScratch& scratch,
                   TokenBuffer& out) {
  if (vocab.missing_bytes() > 0) return false;
  const size_t size_before = out.size();
  const auto merge_at = [&](size_t begin, std::vector<int32_t>& ids) {
    const std::string_view part = piece.substr(begin, window);
    ids.resize(part.size());
    ids.resize(merge_piece(vocab, part, scratch, ids.data()));
    return begin + part.size();
  };
  std::vector<int32_t>& ids = scratch.window;
  std::vector<int32_t>& next = scratch.next_window;
  size_t at = 0;  // where ids begin
  size_t end = merge_at(0, ids);
  while (end < piece.size()) {
    size_t taken = 0;
    for (; taken < ids.size() && at + window / 4 < end; ++taken)
      at += vocab.bytes(ids[taken]).size();
    const size_t next_end = merge_at(at, next);
    size_t from = 0;
    for (size_t next_at = at; taken < ids.size() && from < next.size();) {
      if (at == next_at && ids[taken] == next[from]) break;
      if (at <= next_at) {
        at += vocab.bytes(ids[taken++]).size();
      } else {
        next_at += vocab.bytes(next[from++]).size();
      }
    }
    if (taken == ids.size() || from == next.size() || next_end == end) {
      out.truncate(size_before);
      return false;
    }
    out.append(std::span(ids).first(taken));
    next.erase(next.begin(), next.begin() + static_cast<ptrdiff_t>(from));
    ids.swap(next);
    end = next_end;
  }
  out.append(ids);
  return true;
}

ExactCut::ExactCut(const Vocab& vocab, int few_wide) {
  std::unordered_set<uint64_t> marked;
  size_t num_contexts = 0;
  size_t num_wide = 0;
  for (int32_t id : vocab.merge_results()) {
    const std::string_view token = vocab.bytes(id);
    num_contexts += token.size() - 1;
    for (size_t at = 1; at < token.size(); ++at) num_wide += between_wide(token[at - 1], token[at]);
  }
  neighbours_.contexts = ContextFilter(num_contexts);
  neighbours_.wide_contexts = ContextFilter(num_wide);
  neighbours_.asks_contexts = num_wide > kFewContexts;
  bool has_wide_bytes = true;
  for (unsigned byte = 0x80; byte < 0xF0; ++byte) {
    if ((byte & 0xE0) == 0xC0) continue;
    has_wide_bytes &= vocab.byte_id(static_cast<uint8_t>(byte)) != kNoId;
  }
  if (has_wide_bytes) {
    neighbours_.wide_sides.assign(65536, {0, 0});
  }
  for (int32_t id : vocab.merge_results()) {
    const std::string_view token = vocab.bytes(id);
    for (size_t at = 1; at < token.size(); ++at) {
      neighbours_.set(static_cast<uint8_t>(token[at - 1]), static_cast<uint8_t>(token[at]));
      add_context(token, at, marked);
    }
  }
  int joined_wide = 0;
  for (const uint16_t row : neighbours_.wide) joined_wide += std::popcount(row);
  if (joined_wide <= few_wide) {  // testing two bytes is enough, and faster
    neighbours_.wide_sides.clear();
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

void ExactCut::add_context(std::string_view token, size_t at,
                           std::unordered_set<uint64_t>& marked) {
  const ContextSide left = left_side(token.data() + at, std::min(ContextFilter::kBytes, at));
  const ContextSide right =
      right_side(token.data() + at, std::min(ContextFilter::kBytes, token.size() - at));
  neighbours_.contexts.add(left, right);
  if (neighbours_.wide_sides.empty() || !between_wide(token[at - 1], token[at])) return;
  neighbours_.wide_contexts.add(left, right);
  // The characters of three bytes that end with the left side, and those that begin with the right.
  const auto mark = [&](uint64_t WideSides::*side, uint32_t first, uint32_t step, uint32_t count,
                        uint64_t number) {
    // Short sides are few, have many characters, and recur often.
    const uint64_t key =
        (number << 1 | (side == &WideSides::left)) << 32 | uint64_t{first} << 13 | count;
    if (count > 1 && !marked.insert(key).second) return;
    for (uint32_t i = 0; i < count; ++i)
      neighbours_.wide_sides[first + i * step].*side |= uint64_t{1} << number;
  };
  const auto byte = [](const ContextSide& side, size_t i) { return side.bytes >> (8 * i) & 63; };
  const uint64_t number = (right.bytes ^ right.size << 24) * 0x9E3779B97F4A7C15u >> 58;
  uint32_t low = byte(left, 0);
  if (left.size >= 2) low |= byte(left, 1) << 6;
  if (left.size == 3) low |= (byte(left, 2) & 15) << 12;
  constexpr uint32_t kStep[] = {0, 1u << 6, 1u << 12, 1};
  constexpr uint32_t kOfLeft[] = {0, 1u << 10, 1u << 4, 1};
  mark(&WideSides::left, low, kStep[left.size], kOfLeft[left.size], number);
  uint32_t high = (byte(right, 0) & 15) << 12;
  if (right.size >= 2) high |= byte(right, 1) << 6;
  if (right.size == 3) high |= byte(right, 2);
  constexpr uint32_t kOfRight[] = {0, 1u << 12, 1u << 6, 1};
  mark(&WideSides::right, high, 1, kOfRight[right.size], number);
}

bool ExactCut::may_span(std::string_view piece, size_t at) const noexcept {
  const size_t most_left = std::min(ContextFilter::kBytes, at);
  const size_t most_right = std::min(ContextFilter::kBytes, piece.size() - at);
  ContextSide left{0, 0};
  for (size_t i = 0; i < most_left; ++i) {
    const unsigned char left_byte = static_cast<unsigned char>(piece[at - 1 - i]);
    if (missing_[left_byte]) return true;
    left = {left.bytes | static_cast<uint32_t>(left_byte) << (8 * i), i + 1};
    ContextSide right{0, 0};
    for (size_t j = 0; j < most_right; ++j) {
      const unsigned char right_byte = static_cast<unsigned char>(piece[at + j]);
      if (missing_[right_byte]) return true;
      right = {right.bytes | static_cast<uint32_t>(right_byte) << (8 * j), j + 1};
      if (neighbours_.contexts.has(left, right)) return true;
    }
  }
  return false;
}

}  // namespace tok
