// Tokenizer: text to token ids and back, with the ids that Hugging Face tokenizers and tiktoken
// give. This is the public interface; the stages are in added_tokens.h, normalize.h, pretokenize.h,
// encode.h. Not here: files, threads, JSON lines (the tools). Includes: the other headers of this
// room. Text is valid UTF-8 everywhere; unicode.h has find_invalid_utf8() and
// replace_invalid_utf8() for text that may not be. Source: Hugging Face tokenizers 0.23, tiktoken
// 0.14.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libtok/added_tokens.h"
#include "libtok/encode.h"
#include "libtok/loaders.h"
#include "libtok/text_batch.h"
#include "libtok/token_buffer.h"

namespace tok {

/// What happens to a special token that occurs literally in the text.
enum class SpecialTokens : uint8_t {
  /// It is ordinary text; encode() counts it. Equals tiktoken's encode_ordinary, Megatron's
  /// GPT2BPETokenizer of 2023, and Hugging Face with split_special_tokens=True.
  text,
  /// It becomes its id. Equals Hugging Face's plain encode, and so Megatron's Hugging Face
  /// tokenizers, and tiktoken's encode with allowed_special="all".
  parse,
};

/// How text becomes ids.
struct EncodeOptions {
  SpecialTokens special_tokens_in_text = SpecialTokens::text;
  /// Put the special tokens of the post-processor's template around the text, as Hugging Face's
  /// encode does unless told otherwise. GPT-2's and NeoX's templates have none; Llama-3's has one.
  bool add_special_tokens = false;
};

/// How ids become text.
struct DecodeOptions {
  bool skip_special_tokens = false;
};

/// Working memory of one worker: a bounded piece cache and buffers. It belongs to one thread at a
/// time and to one Tokenizer; its contents never change results.
struct Scratch {
  /// Entries of the two tables of PieceScratch; 0 switches one off.
  explicit Scratch(size_t num_short = PieceScratch::kDefaultShort,
                   size_t num_long = PieceCache::kDefaultEntries)
      : pieces(num_short, num_long) {}

  PieceScratch pieces;
  std::vector<AddedMatch> raw_matches;
  std::vector<AddedMatch> normalized_matches;
  std::string normalized;
  std::string normalized_before;
  std::string prefixed;
  std::string unmarked;
  std::string marked;
  TokenBuffer counted;
  TextLengths lengths;
  const void* owner = nullptr;  ///< the Tokenizer whose pieces the cache holds
};

/// A loaded tokenizer. Immutable; any number of threads may call it, each with its own Scratch.
class Tokenizer {
 public:
  /// Errors: ParseError naming anything that cannot be followed exactly. `level`: instructions to
  /// use, for tests; results never differ. `parallel_for` shares half of the loading time among
  /// threads.
  explicit Tokenizer(TokenizerSource source, SimdLevel level = chosen_simd_level(),
                     const ParallelFor& parallel_for = serial_for);

  static Tokenizer from_gpt2(std::string_view vocab_json, std::string_view merges_txt,
                             const Gpt2Options& options = {},
                             const ParallelFor& parallel_for = serial_for);
  static Tokenizer from_tokenizer_json(std::string_view json,
                                       const ParallelFor& parallel_for = serial_for);
  static Tokenizer from_sentencepiece(std::string_view model,
                                      const SentencePieceOptions& options = {},
                                      const ParallelFor& parallel_for = serial_for);
  static Tokenizer from_file(std::string_view bytes, const ParallelFor& parallel_for = serial_for);
  static Tokenizer from_rank_list(std::string_view json, const RankListOptions& options = {},
                                  const ParallelFor& parallel_for = serial_for);
  static Tokenizer from_folder(const ReadFile& read, const ParallelFor& parallel_for = serial_for);
  static Tokenizer from_tiktoken(std::string_view ranks, std::string_view encoding,
                                 const ParallelFor& parallel_for = serial_for);

  /// Appends the ids of a text, one segment of the corpus (a document).
  /// Returns the number of special tokens that occur literally in it, parsed or not.
  /// Cost: O(n log n) at worst; no allocation in the steady state but the growth of `out`.
  /// State: changes `scratch` and `out` only. Range: valid UTF-8.
  /// Errors: std::length_error for a piece of 2 GiB or more.
  int64_t encode(std::string_view text, Scratch& scratch, TokenBuffer& out,
                 const EncodeOptions& options = {}) const;

  /// Appends the ids of a batch of texts, one after another, each as encode() gives them, and
  /// `end_id` after each that has any (kNoId: nothing). Returns the special tokens in them.
  /// State: `counts` is a view into `scratch` of how many ids each text has, including end_id.
  /// Errors: as encode().
  int64_t encode(const TextBatch& batch, Scratch& scratch, TokenBuffer& out,
                 std::span<const int32_t>& counts, const EncodeOptions& options = {},
                 int32_t end_id = kNoId) const;

  /// Appends the ids of a text by the reference implementation, without cache or cut, for tests:
  /// quadratic in a piece.
  int64_t encode_plain(std::string_view text, std::vector<int32_t>& out,
                       const EncodeOptions& options = {}) const;

  /// Ids of one text, for callers that do not need speed.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Number of ids that encode() would give.
  int64_t count(std::string_view text, Scratch& scratch, const EncodeOptions& options = {}) const;

  /// Appends the exact bytes of each id; an added token gives its content. Bytes of ids cut out of
  /// a text need not be valid UTF-8. An id that does not exist gives nothing. The ids are a text's
  /// first ones: source().decode_rules say what its beginning loses.
  void decode(std::span<const int32_t> ids, std::string& out, DecodeOptions options = {}) const;
  std::string decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  /// Bytes of one token in the midst of a text: an added token's content, or the vocabulary's, a
  /// blank for U+2581 where texts have it so. Empty for no such id. Views into this.
  std::string_view token_bytes(int32_t id) const noexcept;

  /// Tokens of the model's vocabulary: Hugging Face's tokenizer.vocab_size.
  int64_t base_vocab_size() const noexcept { return vocab_.size(); }

  /// All tokens, added ones too: len(tokenizer) in Hugging Face, vocab_size in Megatron.
  int64_t vocab_size() const noexcept { return vocab_size_; }

  /// One more than the largest id; larger than vocab_size() if ids have gaps. tiktoken calls
  /// this n_vocab.
  int32_t id_limit() const noexcept { return id_limit_; }

  /// Id of an added token with this content, or of a vocabulary token with these bytes.
  std::optional<int32_t> token_id(std::string_view content) const;

  /// Id that ends a document: the folder's eos token, else the first of kEodNames that exists.
  std::optional<int32_t> eod_id() const;

  /// Whether an id is a special token.
  bool is_special(int32_t id) const;

  const std::vector<AddedToken>& added_tokens() const noexcept { return source_.added_tokens; }

  /// The contents of the files, except for the vocabulary and its merges, which are not kept.
  const TokenizerSource& source() const noexcept { return source_; }
  const Vocab& vocab() const noexcept { return vocab_; }
  const PreTokenizer& pretokenizer() const noexcept { return source_.pretokenizer; }

  /// SHA-256 of everything on which ids depend: the same for one tokenizer in two file formats.
  const std::string& identity() const noexcept { return identity_; }

  /// A report: sizes, cuts, unreachable tokens, ids that are not ranks, bytes without a token,
  /// members of the file that were ignored. Lines ending in a line feed. Cost: encodes the whole
  /// vocabulary.
  std::string audit() const;

 private:
  template <typename OnSegment, typename OnId>
  int64_t walk(std::string_view text, Scratch& scratch, SpecialTokens special, OnSegment on_segment,
               OnId on_id) const;
  std::string_view normalized(std::string_view segment, Scratch& scratch) const;
  std::string_view pretokenizable(std::string_view segment, bool begins_text,
                                  Scratch& scratch) const;
  void encode_segment(std::string_view segment, bool begins_text, Scratch& scratch,
                      TokenBuffer& out) const;
  void encode_row(const TextBatch& batch, Scratch& scratch, TokenBuffer& out) const;
  bool is_plain(std::string_view text, const EncodeOptions& options) const;
  void encode_huge_segment(std::string_view segment, Scratch& scratch, TokenBuffer& out) const;
  void set_added_tokens();
  std::string text_of_added(const AddedToken& token) const;
  std::string normalized_content(const AddedToken& token, Scratch& scratch) const;
  bool strip_leading(std::string& text, int32_t id) const;
  void check_templates() const;
  void set_blanks();

  TokenizerSource source_;  ///< without the vocabulary, once that is indexed
  std::string identity_;
  Vocab vocab_;
  ExactCut cut_;
  HotTable hot_;
  SimdLevel level_;
  /// No piece is a blank, which then is the bytes of the U+2581 that it stands for.
  bool marks_blanks_ = false;
  AddedTokenFinder raw_finder_;
  AddedTokenFinder normalized_finder_;
  std::unordered_map<int32_t, size_t> added_by_id_;
  std::vector<std::string> added_texts_;  ///< what each gives when it is decoded
  int64_t vocab_size_ = 0;
  int32_t id_limit_ = 0;
};

}  // namespace tok
