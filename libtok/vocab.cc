// Vocab and MergeTable: building the indexes, and the checks of a vocabulary.
// SPDX-License-Identifier: MIT
#include "libtok/vocab.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "libtok/hash.h"

namespace tok {
namespace {

enum Kind : uint8_t { kAbsent = 0, kBytes = 1, kText = 2 };

/// Merges are looked up in this many parts.
constexpr size_t kParts = 16;

/// Bytes for a message: printable ASCII, the rest as \xNN.
std::string quoted(std::string_view bytes) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out = "\"";
  for (char c : bytes.substr(0, 64)) {
    const unsigned byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (bytes.size() > 64 ? "...\"" : "\"");
}

/// Where a merge stands, and its halves: "merges.txt:7: "a" "b": ".
std::string merge_place(const VocabSource& source, size_t rank) {
  const auto& [left, right] = source.merges[rank];
  const std::string halves = quoted(left) + " " + quoted(right);
  if (!source.lines_without_merge)
    return "merges: merge " + std::to_string(rank) + " (" + halves + "): ";
  int64_t line = static_cast<int64_t>(rank) + 1;
  for (const int64_t other : *source.lines_without_merge) line += other <= line;
  return "merges.txt:" + std::to_string(line) + ": " + halves + ": ";
}

}  // namespace

MergeTable::MergeTable(size_t num_merges) {
  const size_t size = std::bit_ceil(std::max<size_t>(16, num_merges * 2));
  slots_.resize(size);
  tags_.assign(size, 0);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

bool MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  const uint64_t hash = hash_of(key);
  for (size_t at = hash >> shift_;; ++at) {
    Slot& slot = slots_[at & mask_];
    uint8_t& tag = tags_[at & mask_];
    if (tag != 0 && slot.key != key) continue;
    const bool fresh = tag == 0;
    slot = {key, merge};
    tag = tag_of(hash);
    return fresh;
  }
}

void VocabSource::sort_tokens() {
  const auto before = [](const Token& a, const Token& b) { return a.id < b.id; };
  if (std::is_sorted(tokens.begin(), tokens.end(), before)) return;
  std::sort(tokens.begin(), tokens.end(), before);
}

Vocab::Vocab(const VocabSource& source, const ParallelFor& parallel_for)
    : rank_rule_(source.rank_rule),
      whole_piece_first_(source.whole_piece_first),
      unk_id_(source.unk_id),
      fuse_unk_(source.fuse_unk),
      by_characters_(source.by_characters) {
  index_tokens(source);
  index_by_bytes();
  index_bytes(source);
  if (unk_id_ != kNoId && bytes(unk_id_).empty()) {
    throw ParseError("unk_token: id " + std::to_string(unk_id_) + ": not in the vocabulary");
  }
  if (rank_rule_ == RankRule::by_list) {
    set_listed_merges(source, parallel_for);
  } else {
    set_all_merges(source, parallel_for);
  }
  set_byte_merges();
  if (!std::is_sorted(merge_results_.begin(), merge_results_.end())) {
    std::sort(merge_results_.begin(), merge_results_.end());
  }
  merge_results_.erase(std::unique(merge_results_.begin(), merge_results_.end()),
                       merge_results_.end());
}

void Vocab::index_tokens(const VocabSource& source) {
  num_tokens_ = static_cast<int64_t>(source.tokens.size());
  int32_t limit = 0;
  size_t total_bytes = 0;
  for (const VocabSource::Token& token : source.tokens) {
    if (token.id < 0 || token.id >= kIdLimit) {
      throw ParseError("vocabulary: token " + quoted(token.bytes) + ": id " +
                       std::to_string(token.id) + " is outside 0.." + std::to_string(kIdLimit - 1));
    }
    limit = std::max(limit, token.id + 1);
    total_bytes += token.bytes.size();
  }
  if (static_cast<size_t>(limit) > 64 * source.tokens.size() + (1 << 20)) {
    throw ParseError("vocabulary: largest id " + std::to_string(limit - 1) + ": only " +
                     std::to_string(source.tokens.size()) + " tokens");
  }
  if (total_bytes >= UINT32_MAX) throw ParseError("vocabulary: larger than 4 GiB");
  std::vector<const VocabSource::Token*> by_id;
  by_id.reserve(source.tokens.size());
  for (const VocabSource::Token& token : source.tokens) by_id.push_back(&token);
  const auto before = [](const auto* a, const auto* b) { return a->id < b->id; };
  if (!std::is_sorted(by_id.begin(), by_id.end(), before)) {
    std::stable_sort(by_id.begin(), by_id.end(), before);
  }
  offsets_.assign(static_cast<size_t>(limit) + 1, 0);
  kinds_.assign(static_cast<size_t>(limit), kAbsent);
  arena_.reserve(total_bytes);
  size_t next = 0;
  for (const VocabSource::Token* listed : by_id) {
    const VocabSource::Token& token = *listed;
    const size_t id = static_cast<size_t>(token.id);
    if (kinds_[id] != kAbsent) {
      throw ParseError("vocabulary: id " + std::to_string(token.id) + ": tokens " +
                       quoted(bytes(token.id)) + " and " + quoted(token.bytes) + " share it");
    }
    for (; next <= id; ++next) offsets_[next] = static_cast<uint32_t>(arena_.size());
    arena_ += token.bytes;
    offsets_[id + 1] = static_cast<uint32_t>(arena_.size());
    kinds_[id] = token.text_only ? kText : kBytes;
  }
}

void Vocab::index_by_bytes() {
  by_bytes_.assign(std::bit_ceil(std::max<size_t>(16, static_cast<size_t>(num_tokens_) * 2)),
                   kNoId);
  const size_t mask = by_bytes_.size() - 1;
  for (int32_t id = 0; id < id_limit(); ++id) {
    if (kinds_[static_cast<size_t>(id)] == kAbsent) continue;
    const std::string_view token = bytes(id);
    if (token.empty() && kinds_[static_cast<size_t>(id)] == kBytes) {
      throw ParseError("vocabulary: id " + std::to_string(id) + ": the token is empty");
    }
    for (size_t at = hash_bytes(token);; ++at) {
      int32_t& slot = by_bytes_[at & mask];
      if (slot == kNoId) {
        slot = id;
        break;
      }
      if (bytes(slot) == token && text_only(slot) == text_only(id)) {
        throw ParseError("vocabulary: token " + quoted(token) + ": listed with ids " +
                         std::to_string(slot) + " and " + std::to_string(id));
      }
    }
  }
}

void Vocab::index_bytes(const VocabSource& source) {
  fallback_ids_.fill(kNoId);
  for (size_t byte = 0; byte < source.byte_fallback.size(); ++byte) {
    fallback_ids_[byte] = source.byte_fallback[byte];
    fallback_bytes_[source.byte_fallback[byte]] = static_cast<uint8_t>(byte);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    int32_t id = by_characters_ && byte >= 0x80 ? kNoId : find(std::string_view(&c, 1));
    if (id == kNoId) id = fallback_ids_[static_cast<size_t>(byte)];
    byte_ids_[static_cast<size_t>(byte)] = id;
    if (id != kNoId) continue;
    ++missing_bytes_;
    if (source.rank_rule == RankRule::by_id) {
      throw ParseError("vocabulary: byte " + quoted(std::string_view(&c, 1)) +
                       ": has no token, and tiktoken needs all 256");
    }
  }
}

/// The merge of a rank; `guess` is tried first as the id of its result.
Vocab::Joined Vocab::look_up(const VocabSource& source, size_t rank, int32_t guess,
                             std::string& room) const {
  const auto& [left, right] = source.merges[rank];
  room.assign(left).append(right);
  const bool good = bytes(guess) == room && !text_only(guess);
  const Joined merge = {find(left), find(right), good ? guess : find(room)};
  const int32_t ids[3] = {merge.left, merge.right, merge.id};
  const std::string_view parts[3] = {left, right, room};
  for (int i = 0; i < 3; ++i) {
    if (ids[i] != kNoId) continue;
    throw ParseError(merge_place(source, rank) + quoted(parts[i]) + " is not in the vocabulary");
  }
  for (int i = 0; i < 2; ++i) {
    if (!by_characters_ || (byte_of(ids[i]) < 0 && ids[i] != unk_id_)) continue;
    throw ParseError(merge_place(source, rank) + quoted(parts[i]) +
                     " stands for characters without a token, which must not merge");
  }
  return merge;
}

/// All merges of the list, by rank.
std::vector<Vocab::Joined> Vocab::look_up(const VocabSource& source,
                                          const ParallelFor& parallel_for) const {
  std::vector<Joined> merges(source.merges.size());
  parallel_for(kParts, [&](size_t part) {
    std::string room;
    int32_t last_id = kNoId;
    const size_t end = merges.size() * (part + 1) / kParts;
    for (size_t rank = merges.size() * part / kParts; rank < end; ++rank) {
      // In most vocabularies each merge makes the next id.
      merges[rank] = look_up(source, rank, last_id + 1, room);
      last_id = merges[rank].id;
    }
  });
  return merges;
}

void Vocab::set_listed_merges(const VocabSource& source, const ParallelFor& parallel_for) {
  if (source.merges.size() >= UINT32_MAX) throw ParseError("merges: more than 2^32");
  merges_ = MergeTable(source.merges.size());
  uint32_t rank = 0;
  int32_t last_id = kNoId;
  for (const Joined& merge : look_up(source, parallel_for)) {
    if (!merges_.set(merge.left, merge.right, {rank++, merge.id})) ++duplicate_merges_;
    merge_results_.push_back(merge.id);
    if (merge.id < last_id) id_follows_rank_ = false;
    last_id = merge.id;
  }
}

void Vocab::set_all_merges(const VocabSource& source, const ParallelFor& parallel_for) {
  std::vector<Joined> found[kParts];
  parallel_for(kParts, [&](size_t part) {
    const auto first = [&](size_t i) {
      return static_cast<int32_t>(static_cast<size_t>(id_limit()) * i / kParts);
    };
    for (int32_t id = first(part); id < first(part + 1); ++id) {
      const std::string_view token = bytes(id);
      if (text_only(id)) continue;
      for (size_t cut = 1; cut < token.size(); ++cut) {
        const int32_t left = find(token.substr(0, cut));
        if (left == kNoId) continue;
        const int32_t right = find(token.substr(cut));
        if (right != kNoId) found[part].push_back({left, right, id});
      }
    }
  });
  size_t count = 0;
  for (const std::vector<Joined>& some : found) count += some.size();
  merges_ = MergeTable(count);
  for (const std::vector<Joined>& some : found) {
    for (const Joined& merge : some) {
      const size_t id = static_cast<size_t>(merge.id);
      const uint32_t rank =
          source.ranks.empty() ? static_cast<uint32_t>(merge.id) : source.ranks[id];
      merges_.set(merge.left, merge.right, {rank, merge.id});
      merge_results_.push_back(merge.id);
    }
  }
}

void Vocab::set_byte_merges() {
  byte_merges_.assign(size_t{256} * 256, Merge{UINT32_MAX, kNoId});
  for (size_t pair = 0; pair < byte_merges_.size(); ++pair) {
    const int32_t left = byte_ids_[pair >> 8];
    const int32_t right = byte_ids_[pair & 255];
    if (left != kNoId && right != kNoId) byte_merges_[pair] = merge(left, right);
  }
}

std::string_view Vocab::bytes(int32_t id) const noexcept {
  if (id < 0 || id >= id_limit()) return {};
  const size_t at = static_cast<size_t>(id);
  if (kinds_[at] == kAbsent) return {};
  return std::string_view(arena_).substr(offsets_[at], offsets_[at + 1] - offsets_[at]);
}

bool Vocab::text_only(int32_t id) const noexcept {
  return id >= 0 && id < id_limit() && kinds_[static_cast<size_t>(id)] == kText;
}

int32_t Vocab::find(std::string_view key) const noexcept {
  const size_t mask = by_bytes_.size() - 1;
  for (size_t at = hash_bytes(key);; ++at) {
    const int32_t id = by_bytes_[at & mask];
    if (id == kNoId) return kNoId;
    if (!text_only(id) && bytes(id) == key) return id;
  }
}

int32_t Vocab::find_text(std::string_view text) const noexcept {
  const size_t mask = by_bytes_.size() - 1;
  for (size_t at = hash_bytes(text);; ++at) {
    const int32_t id = by_bytes_[at & mask];
    if (id == kNoId) return kNoId;
    if (text_only(id) && bytes(id) == text) return id;
  }
}

}  // namespace tok
