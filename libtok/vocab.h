// Vocabularies: which byte strings are tokens, under which ids, and which neighbours merge first.
// Checks a vocabulary before anything is encoded with it.
// Not here: reading files' bytes into a VocabSource (loaders.h), applying merges (merge.h), added
// and special tokens (added_tokens.h).
// Rank and id are separate everywhere: in OPT's and RoBERTa's vocabularies they differ.
// Includes: parallel_for.h. Source: Hugging Face tokenizers 0.23 (models/bpe), tiktoken 0.14.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libtok/parallel_for.h"

namespace tok {

/// Tokenizer data that cannot be used: ill-formed, contradictory, or of a kind that this library
/// cannot follow exactly. what() is "place: what: why".
class ParseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ids are smaller than this; tables use the other bits.
inline constexpr int32_t kIdLimit = 1 << 28;

/// What find() and byte_id() return for bytes that are not a token.
inline constexpr int32_t kNoId = -1;

/// The result of merging two neighbours: smaller ranks are merged first, among equals the leftmost.
struct Merge {
  uint32_t rank;
  int32_t id;
  bool exists() const noexcept { return id >= 0; }
};

/// Where merge ranks come from.
enum class RankRule : uint8_t {
  by_list,  ///< Hugging Face: exactly the listed pairs, ranked by place in the list
  by_id,    ///< tiktoken: any neighbours whose bytes together are a token, ranked by its id
  by_rank,  ///< SentencePiece: the same, ranked by the token's score (VocabSource::ranks)
};

/// A vocabulary from a loader, before any check.
struct VocabSource {
  struct Token {
    std::string bytes;
    int32_t id;
    /// The entry is plain text (a special token), not bytes in the byte-level alphabet: it can be
    /// decoded, but no merge and no look-up gives it.
    bool text_only = false;
  };
  std::vector<Token> tokens;
  /// The two halves of each merge, in bytes; a later duplicate wins. Empty under by_id.
  std::vector<std::pair<std::string, std::string>> merges;
  /// Of a merges.txt: the numbers of its lines that are no merges, ascending, so that a complaint
  /// names a merge's line. Null: the merges come from elsewhere.
  std::optional<std::vector<int64_t>> lines_without_merge;
  RankRule rank_rule = RankRule::by_list;
  /// Look a whole piece up before merging (tiktoken, Hugging Face's ignore_merges).
  bool whole_piece_first = false;
  /// Id for bytes that have no token; kNoId drops them, as Hugging Face does without unk_token.
  int32_t unk_id = kNoId;
  /// One unk_id for neighbouring unknown bytes of a piece.
  bool fuse_unk = false;
  /// A text's first symbols are its characters, not its bytes: SentencePiece, and Hugging Face
  /// without a byte-level step. Tokens are then text, and unk_id stands for a whole character.
  bool by_characters = false;
  /// Under by_characters: ids that stand for the bytes of a character without a token, all 256;
  /// empty: such a character becomes unk_id. Merges do not reach them.
  std::vector<int32_t> byte_fallback;
  /// Under by_rank: rank of each id; the smallest merges first.
  std::vector<uint32_t> ranks;

  /// Puts the tokens into the order of their ids.
  void sort_tokens();
};

/// Merges by pair of ids: an open-addressing table, read-only once built.
class MergeTable {
 public:
  /// State: empty, with room for `num_merges`.
  explicit MergeTable(size_t num_merges = 0);

  /// Sets the merge of (left, right). Returns false when it replaced an earlier one.
  bool set(int32_t left, int32_t right, Merge merge);

  /// The merge of two neighbours; exists() is false when they do not merge.
  Merge find(int32_t left, int32_t right) const noexcept {
    const uint64_t key = key_of(left, right);
    const uint64_t hash = hash_of(key);
    const uint8_t tag = tag_of(hash);
    for (size_t at = hash >> shift_;; ++at) {
      const uint8_t here = tags_[at & mask_];
      if (here == tag && slots_[at & mask_].key == key) return slots_[at & mask_].merge;
      if (here == 0) return {UINT32_MAX, kNoId};
    }
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) noexcept {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static uint64_t hash_of(uint64_t key) noexcept { return key * 0x9E3779B97F4A7C15u; }
  static uint8_t tag_of(uint64_t hash) noexcept {
    return static_cast<uint8_t>(0x80 | (hash >> 24 & 0x7F));
  }

  std::vector<Slot> slots_;
  /// A byte for each slot, 0 for an empty one: most look-ups find nothing, and these bytes stay in
  /// near caches, unlike the slots.
  std::vector<uint8_t> tags_;
  size_t mask_ = 0;
  int shift_ = 0;
};

/// Byte strings and ids, both ways, and merge ranks. Immutable; any number of threads may read.
class Vocab {
 public:
  /// Checks and indexes a vocabulary; `parallel_for` looks merges up.
  /// Errors: ParseError for an id out of range or used twice, a token listed twice or empty, a
  /// merge whose halves or result are not tokens, under by_id a byte without a token, and a merge
  /// of an id that stands for a byte.
  explicit Vocab(const VocabSource& source, const ParallelFor& parallel_for = serial_for);

  /// Number of tokens: Hugging Face's vocab_size (added tokens not counted).
  int64_t size() const noexcept { return num_tokens_; }

  /// One more than the largest id.
  int32_t id_limit() const noexcept { return static_cast<int32_t>(offsets_.size()) - 1; }

  /// Bytes of a token; empty for an id that has none. Range: any id.
  std::string_view bytes(int32_t id) const noexcept;

  /// Whether an id stands for a text-only entry.
  bool text_only(int32_t id) const noexcept;

  /// Id of the token with exactly these bytes; kNoId when there is none. Text-only entries are not
  /// found.
  int32_t find(std::string_view bytes) const noexcept;

  /// Id of the text-only entry with these bytes; kNoId when there is none.
  int32_t find_text(std::string_view text) const noexcept;

  /// Id of a byte by itself; kNoId when the vocabulary has none. Of characters: the id that stands
  /// for the byte, which of ASCII may be a token.
  int32_t byte_id(uint8_t byte) const noexcept { return byte_ids_[byte]; }

  /// The merge of two neighbouring tokens.
  Merge merge(int32_t left, int32_t right) const noexcept { return merges_.find(left, right); }

  /// The merge of two neighbouring bytes' own tokens: the same as merge(), from a table.
  Merge merge_of_bytes(uint8_t left, uint8_t right) const noexcept {
    return byte_merges_[static_cast<size_t>(left) << 8 | right];
  }

  RankRule rank_rule() const noexcept { return rank_rule_; }
  bool whole_piece_first() const noexcept { return whole_piece_first_; }
  int32_t unk_id() const noexcept { return unk_id_; }
  bool fuse_unk() const noexcept { return fuse_unk_; }
  bool by_characters() const noexcept { return by_characters_; }

  /// Id that stands for a byte of a character without a token; kNoId where none does.
  int32_t fallback_id(uint8_t byte) const noexcept { return fallback_ids_[byte]; }

  /// The byte that an id stands for; -1 for ids that stand for their tokens' bytes.
  int byte_of(int32_t id) const noexcept {
    const auto found = fallback_bytes_.find(id);
    return found == fallback_bytes_.end() ? -1 : found->second;
  }

  /// Bytes of text that an id took. Range: an id of this vocabulary; not unk_id.
  size_t size_in_text(int32_t id) const noexcept {
    return !fallback_bytes_.empty() && byte_of(id) >= 0 ? 1 : bytes(id).size();
  }

  /// Bytes that have no token.
  int missing_bytes() const noexcept { return missing_bytes_; }

  /// Merges that a later line of the list replaced.
  int64_t duplicate_merges() const noexcept { return duplicate_merges_; }

  /// Every id that some merge produces, ascending.
  const std::vector<int32_t>& merge_results() const noexcept { return merge_results_; }

  /// Whether ids ascend with merge ranks (GPT-2, NeoX; not OPT).
  bool id_follows_rank() const noexcept { return id_follows_rank_; }

 private:
  void index_tokens(const VocabSource& source);
  void index_by_bytes();
  void index_bytes(const VocabSource& source);
  /// A merge by its ids.
  struct Joined {
    int32_t left, right, id;
  };
  std::vector<Joined> look_up(const VocabSource& source, const ParallelFor& parallel_for) const;
  Joined look_up(const VocabSource& source, size_t rank, int32_t guess, std::string& room) const;
  void set_listed_merges(const VocabSource& source, const ParallelFor& parallel_for);
  void set_all_merges(const VocabSource& source, const ParallelFor& parallel_for);
  void set_byte_merges();

  std::string arena_;
  std::vector<uint32_t> offsets_;
  std::vector<uint8_t> kinds_;
  std::vector<int32_t> by_bytes_;
  std::array<int32_t, 256> byte_ids_{};
  std::array<int32_t, 256> fallback_ids_{};
  std::unordered_map<int32_t, uint8_t> fallback_bytes_;
  MergeTable merges_;
  std::vector<Merge> byte_merges_;
  std::vector<int32_t> merge_results_;
  int64_t num_tokens_ = 0;
  int64_t duplicate_merges_ = 0;
  int missing_bytes_ = 0;
  RankRule rank_rule_;
  bool whole_piece_first_;
  int32_t unk_id_;
  bool fuse_unk_;
  bool by_characters_;
  bool id_follows_rank_ = true;
};

}  // namespace tok
