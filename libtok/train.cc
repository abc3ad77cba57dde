// The trainer. The bookkeeping follows the reference where it affects results: a queue entry has
// the words in which its pair appeared, counts of a merged pair are not updated, and a second pair
// may make a token that exists already.
// SPDX-License-Identifier: MIT
#include "libtok/train.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <queue>
#include <stdexcept>

#include "libtok/byte_level.h"
#include "libtok/hash.h"

namespace tok {
namespace {

/// The longest pieces that their hash identifies among those of their size (hash_word).
constexpr size_t kHashedWhole = 8;

/// hash_bytes, if sixteen bytes can be read from the beginning of the piece.
uint64_t hash_readable(const char* at, size_t size) noexcept {
  if (size > kHashedWhole || size == 0) return hash_bytes({at, size});
  uint64_t word;
  std::memcpy(&word, at, 8);
  return hash_word(word & UINT64_MAX >> (64 - 8 * size), size);
}

uint64_t pair_key(int32_t left, int32_t right) noexcept {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

/// Index of each pair, by open addressing; grows with new pairs.
class PairIndex {
 public:
  PairIndex() : slots_(size_t{1} << 16, Slot{kEmpty, 0}) {}

  /// Index of a pair; the old `size()` for a new one.
  uint32_t find_or_add(uint64_t key) {
    if (size_ * 2 > slots_.size()) grow();
    Slot& slot = slot_of(key);
    if (slot.key == kEmpty) slot = {key, size_++};
    return slot.index;
  }
  uint32_t size() const noexcept { return size_; }

 private:
  struct Slot {
    uint64_t key;
    uint32_t index;
  };
  static constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();

  Slot& slot_of(uint64_t key) {
    uint64_t at = key * 0x9E3779B97F4A7C15u;
    for (at ^= at >> 32;; ++at) {
      Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.key == key || slot.key == kEmpty) return slot;
    }
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2, Slot{kEmpty, 0});
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slot_of(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  uint32_t size_ = 0;
};

/// A pair queued for merging, with its count when it was queued.
struct Candidate {
  int64_t count;
  uint64_t pair;
  uint32_t words;  ///< which list of words

  bool operator<(const Candidate& other) const noexcept {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Trainer {
 public:
  Trainer(const std::vector<std::pair<std::string_view, int64_t>>& pieces,
          const TrainOptions& options)
      : options_(options) {
    for (const std::string& special : options.special_tokens) id_of(special);
    bpe_.num_special = bpe_.tokens.size();
    set_alphabet(pieces);
    set_words(pieces);
    count_pairs();
  }

  TrainedBpe run() {
    while (static_cast<int64_t>(bpe_.tokens.size()) < options_.vocab_size && !queue_.empty()) {
      Candidate top = queue_.top();
      queue_.pop();
      const int64_t count = pair_counts_[pairs_.find_or_add(top.pair)];
      if (top.count != count) {
        top.count = count;
        queue_.push(top);
        continue;
      }
      if (top.count < 1 || options_.min_frequency > top.count) break;
      merge(top);
    }
    return std::move(bpe_);
  }

 private:
  struct Word {
    uint64_t first;  ///< in symbols_
    uint32_t size;
    int64_t count;
  };

  int32_t id_of(const std::string& token) {
    const auto [found, fresh] = ids_.try_emplace(token, static_cast<int32_t>(bpe_.tokens.size()));
    if (fresh) bpe_.tokens.push_back(token);
    return found->second;
  }

  /// Bytes become tokens in the order of their characters in the byte-level alphabet.
  void set_alphabet(const std::vector<std::pair<std::string_view, int64_t>>& pieces) {
    bool seen[256] = {};
    for (const auto& [piece, count] : pieces) {
      for (char c : piece) seen[static_cast<uint8_t>(c)] = true;
    }
    std::vector<std::pair<char32_t, uint8_t>> alphabet;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (!seen[byte] && !options_.full_alphabet) continue;
      alphabet.emplace_back(byte_level_character(static_cast<uint8_t>(byte)),
                            static_cast<uint8_t>(byte));
    }
    std::sort(alphabet.begin(), alphabet.end());
    for (const auto& [character, byte] : alphabet) {
      const char c = static_cast<char>(byte);
      byte_ids_[byte] = id_of(byte_level_of_bytes(std::string_view(&c, 1)));
    }
  }

  void set_words(const std::vector<std::pair<std::string_view, int64_t>>& pieces) {
    uint64_t num_symbols = 0;
    for (const auto& [piece, count] : pieces) num_symbols += piece.size();
    symbols_.reserve(num_symbols);
    words_.reserve(pieces.size());
    for (const auto& [piece, count] : pieces) {
      words_.push_back({symbols_.size(), static_cast<uint32_t>(piece.size()), count});
      for (char c : piece) symbols_.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    }
  }

  /// Adds to the count of a pair; if it is new in a word, the word is recorded for the next queue
  /// entry.
  void change(int32_t left, int32_t right, int64_t by, uint32_t word) {
    const uint64_t key = pair_key(left, right);
    const uint32_t index = pairs_.find_or_add(key);
    if (index == pair_counts_.size()) {
      pair_counts_.push_back(0);
      fresh_words_.push_back(kNone);
    }
    pair_counts_[index] += by;
    if (by <= 0) return;
    uint32_t& list = fresh_words_[index];
    if (list == kNone) {
      list = static_cast<uint32_t>(word_lists_.size());
      word_lists_.emplace_back();
      fresh_.push_back({key, index});
    }
    if (word_lists_[list].empty() || word_lists_[list].back() != word) {
      word_lists_[list].push_back(word);
    }
  }

  /// Queues the new pairs.
  void queue_fresh() {
    for (const auto& [key, index] : fresh_) {
      if (pair_counts_[index] > 0) {
        queue_.push({pair_counts_[index], key, fresh_words_[index]});
      }
      fresh_words_[index] = kNone;
    }
    fresh_.clear();
  }

  void count_pairs() {
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      for (uint32_t i = 0; i + 1 < word.size; ++i) {
        change(symbols_[word.first + i], symbols_[word.first + i + 1], word.count, w);
      }
    }
    queue_fresh();
  }

  void merge(const Candidate& top) {
    const int32_t left = static_cast<int32_t>(top.pair >> 32);
    const int32_t right = static_cast<int32_t>(top.pair & 0xFFFFFFFFu);
    const int32_t id =
        id_of(bpe_.tokens[static_cast<size_t>(left)] + bpe_.tokens[static_cast<size_t>(right)]);
    bpe_.merges.emplace_back(left, right);
    const std::vector<uint32_t> where = std::move(word_lists_[top.words]);
    for (uint32_t w : where) merge_in_word(w, left, right, id);
    queue_fresh();
    if (options_.on_progress && bpe_.tokens.size() % 256 == 0) {
      options_.on_progress(static_cast<int64_t>(bpe_.tokens.size()));
    }
  }

  void merge_in_word(uint32_t w, int32_t left, int32_t right, int32_t id) {
    Word& word = words_[w];
    int32_t* symbols = symbols_.data() + word.first;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < word.size; ++i) {
      if (symbols[i] != left || i + 1 == word.size || symbols[i + 1] != right) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        change(symbols[kept - 1], left, -word.count, w);
        change(symbols[kept - 1], id, word.count, w);
      }
      ++i;
      if (i + 1 < word.size) {
        change(right, symbols[i + 1], -word.count, w);
        change(id, symbols[i + 1], word.count, w);
      }
      symbols[kept++] = id;
    }
    word.size = kept;
  }

  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  const TrainOptions& options_;
  TrainedBpe bpe_;
  std::unordered_map<std::string, int32_t> ids_;
  int32_t byte_ids_[256] = {};
  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  PairIndex pairs_;
  std::vector<int64_t> pair_counts_;
  /// By pair: the list of words of the entry being made, or kNone.
  std::vector<uint32_t> fresh_words_;
  std::vector<std::pair<uint64_t, uint32_t>> fresh_;
  std::vector<std::vector<uint32_t>> word_lists_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

void PieceCounts::add(std::string_view piece, int64_t times) {
  if (!piece.empty()) add(piece, hash_bytes(piece), times);
}

void PieceCounts::add(std::string_view piece, uint64_t hash, int64_t times) {
  if (static_cast<size_t>(num_pieces_) * 2 >= slots_.size()) grow();
  total_ += times;
  for (uint64_t at = hash;; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.size == 0) {
      slot = {hash, arena_.size(), times, static_cast<uint32_t>(piece.size())};
      arena_.append(piece);
      ++num_pieces_;
      return;
    }
    if (slot.hash == hash && slot.size == piece.size() &&
        (piece.size() <= kHashedWhole ||
         std::memcmp(arena_.data() + slot.offset, piece.data(), piece.size()) == 0)) {
      slot.count += times;
      return;
    }
  }
}

void PieceCounts::add_neighbours(std::string_view text, size_t begin,
                                 std::span<const uint32_t> ends) {
  constexpr size_t kAhead = 64;  // pieces whose slots are being prefetched
  uint64_t hashes[kAhead];
  while (!ends.empty()) {
    const size_t count = std::min(kAhead, ends.size());
    size_t from = begin;
    for (size_t i = 0; i < count; ++i) {
      const size_t size = ends[i] - from;
      hashes[i] = from + 16 <= text.size() ? hash_readable(text.data() + from, size)
                                           : hash_bytes(text.substr(from, size));
      __builtin_prefetch(&slots_[hashes[i] & (slots_.size() - 1)]);
      from = ends[i];
    }
    for (size_t i = 0; i < count; ++i) {
      add(text.substr(begin, ends[i] - begin), hashes[i], 1);
      begin = ends[i];
    }
    ends = ends.subspan(count);
  }
}

void PieceCounts::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.size == 0) continue;
    uint64_t at = slot.hash;
    while (slots_[at & (slots_.size() - 1)].size != 0) ++at;
    slots_[at & (slots_.size() - 1)] = slot;
  }
}

void PieceCounts::add_all(const PieceCounts& other) {
  for (const Slot& slot : other.slots_) {
    if (slot.size == 0) continue;
    add(std::string_view(other.arena_).substr(slot.offset, slot.size), slot.count);
  }
}

std::vector<std::pair<std::string_view, int64_t>> PieceCounts::sorted() const {
  std::vector<std::pair<std::string_view, int64_t>> pieces;
  pieces.reserve(static_cast<size_t>(num_pieces_));
  for (const Slot& slot : slots_) {
    if (slot.size == 0) continue;
    pieces.emplace_back(std::string_view(arena_).substr(slot.offset, slot.size), slot.count);
  }
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

size_t training_memory_bytes(int64_t num_pieces, int64_t piece_bytes) noexcept {
  // A piece: its view, its word, its slot in the table of counts. A byte: itself, its symbol, its
  // place in the list of a pair, and twice more as merges make new pairs, in vectors that double.
  constexpr size_t kPiece = 24 + 24 + 2 * 32;
  constexpr size_t kByte = 1 + 4 + 3 * 8;
  return static_cast<size_t>(num_pieces) * kPiece + static_cast<size_t>(piece_bytes) * kByte;
}

TrainedBpe train_bpe(const std::vector<std::pair<std::string_view, int64_t>>& pieces,
                     const TrainOptions& options) {
  if (options.vocab_size < 1 || options.vocab_size > std::numeric_limits<int32_t>::max()) {
    throw std::invalid_argument("vocabulary size " + std::to_string(options.vocab_size) +
                                ": permitted are 1 to 2147483647");
  }
  return Trainer(pieces, options).run();
}

std::string vocab_json(const TrainedBpe& bpe) {
  std::string out = "{";
  for (size_t id = 0; id < bpe.tokens.size(); ++id) {
    if (id > 0) out += ',';
    out += nlohmann::json(bpe.tokens[id]).dump() + ":" + std::to_string(id);
  }
  return out + "}";
}

std::string merges_txt(const TrainedBpe& bpe) {
  std::string out = "#version: 0.2\n";
  for (const auto& [left, right] : bpe.merges) {
    out += bpe.tokens[static_cast<size_t>(left)] + " " + bpe.tokens[static_cast<size_t>(right)];
    out += '\n';
  }
  return out;
}

std::string tokenizer_json(const TrainedBpe& bpe, bool add_prefix_space) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  const auto byte_level = [](bool prefix, bool trim) {
    return std::string(R"({"type": "ByteLevel", "add_prefix_space": )") +
           (prefix ? "true" : "false") + R"(, "trim_offsets": )" + (trim ? "true" : "false") +
           R"(, "use_regex": true})";
  };
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  out += "  \"added_tokens\": [";
  for (size_t id = 0; id < bpe.num_special; ++id) {
    out += (id > 0 ? ",\n    " : "\n    ") + ("{\"id\": " + std::to_string(id)) +
           ", \"content\": " + quoted(bpe.tokens[id]) +
           R"(, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, )" +
           R"("special": true})";
  }
  out += bpe.num_special > 0 ? "\n  ],\n" : "],\n";
  out += "  \"normalizer\": null,\n  \"pre_tokenizer\": " + byte_level(add_prefix_space, true) +
         ",\n  \"post_processor\": " + byte_level(true, false) +
         ",\n  \"decoder\": " + byte_level(true, true) + ",\n";
  out += R"(  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {)";
  for (size_t id = 0; id < bpe.tokens.size(); ++id) {
    out += (id > 0 ? ",\n      " : "\n      ") + quoted(bpe.tokens[id]) + ": " + std::to_string(id);
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < bpe.merges.size(); ++i) {
    const auto& [left, right] = bpe.merges[i];
    out += (i > 0 ? ",\n      [" : "\n      [") + quoted(bpe.tokens[static_cast<size_t>(left)]) +
           ", " + quoted(bpe.tokens[static_cast<size_t>(right)]) + "]";
  }
  return out + (bpe.merges.empty() ? "]\n  }\n}\n" : "\n    ]\n  }\n}\n");
}

}  // namespace tok
