// SPDX-License-Identifier: MIT
// Learning a byte-level BPE vocabulary from counted pieces, with the merges of Hugging Face's
// BpeTrainer for the same settings, and writing it in the published formats.
// Not here: reading corpora, threads, temporary files (tools/bpe-train.cc).
// Includes: C++ library only; nlohmann-json in the .cc file. Counts are 64 bits wide everywhere.
// Source: Hugging Face tokenizers 0.23, models/bpe/trainer.rs; Sennrich et al. 2016.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tok {

/// How often each piece occurs. Belongs to one thread; any number of them can be summed, and the
/// sum does not depend on the order.
class PieceCounts {
 public:
  PieceCounts() : slots_(size_t{1} << 12) {}

  /// Counts a piece `times` more. Empty pieces are not counted.
  void add(std::string_view piece, int64_t times = 1);

  /// Counts consecutive pieces once more each: piece i is text[ends[i-1] .. ends[i]), the first
  /// begins at `begin`. Range: ends ascending, none is empty.
  void add_neighbours(std::string_view text, size_t begin, std::span<const uint32_t> ends);

  /// Adds all counts of another.
  void add_all(const PieceCounts& other);

  /// Removes everything and frees the memory.
  void clear() { *this = PieceCounts(); }

  /// Distinct pieces.
  int64_t size() const noexcept { return num_pieces_; }

  /// Occurrences of all pieces together.
  int64_t total() const noexcept { return total_; }

  /// Memory held, in bytes.
  size_t memory_bytes() const noexcept { return slots_.size() * sizeof(Slot) + arena_.capacity(); }

  /// Distinct pieces with their counts, ascending by bytes. The views are valid as long as this
  /// exists and nothing is added.
  std::vector<std::pair<std::string_view, int64_t>> sorted() const;

 private:
  struct Slot {
    uint64_t hash = 0;
    uint64_t offset = 0;
    int64_t count = 0;
    uint32_t size = 0;
  };
  void grow();
  void add(std::string_view piece, uint64_t hash, int64_t times);

  std::vector<Slot> slots_;
  std::string arena_;
  int64_t num_pieces_ = 0;
  int64_t total_ = 0;
};

/// Settings of the trainer, named and defaulted as Hugging Face's BpeTrainer has them.
struct TrainOptions {
  /// Total number of tokens: special tokens, the alphabet, and the results of merges.
  int64_t vocab_size = 30000;
  /// A pair that occurs less often is not merged.
  int64_t min_frequency = 0;
  /// First ids, in this order; a repeated one counts once.
  std::vector<std::string> special_tokens = {};
  /// All 256 bytes are tokens, seen or not (Hugging Face's initial_alphabet=ByteLevel.alphabet());
  /// otherwise only those that occur.
  bool full_alphabet = true;
  /// Called from time to time with the number of tokens so far; may throw to stop.
  std::function<void(int64_t num_tokens)> on_progress = {};
};

/// A learned vocabulary.
struct TrainedBpe {
  /// By id: texts in the byte-level alphabet; special tokens unchanged.
  std::vector<std::string> tokens;
  /// Ids of both halves of each merge, in order. A token can come from several merges.
  std::vector<std::pair<int32_t, int32_t>> merges;
  /// How many of the first tokens are special.
  size_t num_special = 0;
};

/// An upper estimate of the memory that train_bpe takes for `num_pieces` pieces with `piece_bytes`
/// bytes in total.
size_t training_memory_bytes(int64_t num_pieces, int64_t piece_bytes) noexcept;

/// Learns merges: repeatedly merges the most frequent pair of neighbours, among equals the one with
/// the smallest ids, until the vocabulary is full or no pair is frequent enough. The result depends
/// only on the counts.
/// Range: fewer than 2^31 tokens; pieces of fewer than 2^31 bytes.
/// Errors: std::invalid_argument when special tokens and alphabet alone exceed vocab_size and
/// nothing could be learned from it; what on_progress throws.
TrainedBpe train_bpe(const std::vector<std::pair<std::string_view, int64_t>>& pieces,
                     const TrainOptions& options);

/// vocab.json of a vocabulary, as Hugging Face writes it: one line, ascending by id.
std::string vocab_json(const TrainedBpe& bpe);

/// merges.txt of a vocabulary, with its #version line.
std::string merges_txt(const TrainedBpe& bpe);

/// tokenizer.json of a vocabulary with GPT-2's ByteLevel pre-tokenizer and decoder.
std::string tokenizer_json(const TrainedBpe& bpe, bool add_prefix_space);

}  // namespace tok
