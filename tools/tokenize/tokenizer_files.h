// SPDX-License-Identifier: MIT
// Room: tools/tokenize, the parts of bpe-tokenize. Megatron's tokenizer flags, and what Megatron's
// wrappers add to the tokenizer that they name: what ends a document, whether special tokens in a
// text are parsed, whether template tokens (a BOS) are put around texts. Not here: which files make
// which tokenizer (tools/tokenizer). May include libtok, tools/tokenizer, tools/cli, tools/stream,
// nlohmann-json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libtok/tokenizer.h"
#include "tools/cli/flags.h"
#include "tools/tokenizer/open_tokenizer.h"

namespace tokenize {

/// The requested tokenizer, and its files.
struct TokenizerOptions {
  std::string type = {};
  std::string model = {};
  std::string vocab_file = {};
  std::string merge_file = {};
  std::optional<int64_t> vocab_size = {};
  std::string encoding = {};
  std::string eod_token = {};
  std::string special_tokens_in_text = "auto";
  std::vector<std::string> special_tokens = {};
  bool keep_extra_whitespaces = false;
  bool legacy = false;
  std::string tiktoken_pattern = {};
  std::optional<int64_t> tiktoken_num_special_tokens = {};
  std::vector<std::string> tiktoken_special_tokens = {};
  bool include_special_tokens = true;
  bool special_tokens_asked = false;
  std::optional<int64_t> null_eod_id = {};
  int64_t divisible_by = 128;
  int64_t tensor_parallel = 1;
  bool pad_vocab = true;
};

/// The rows of TokenizerOptions.
cli::Group<TokenizerOptions> tokenizer_group();

/// A tokenizer as a program uses it. Immutable; any number of threads, each with its own Scratch.
class LoadedTokenizer {
 public:
  /// Appends the ids of `text`; returns how many special tokens occur literally in it.
  /// Range: a text without complaint().
  int64_t encode(std::string_view text, tok::Scratch& scratch, tok::TokenBuffer& out) const;

  /// Appends the ids of a batch of texts, with `end_id` after each; like tok::Tokenizer::encode.
  /// Range: not for the null tokenizer.
  int64_t encode(const tok::TextBatch& batch, tok::Scratch& scratch, tok::TokenBuffer& out,
                 std::span<const int32_t>& counts, int32_t end_id) const {
    return tokenizer()->encode(batch, scratch, out, counts, encode_options_, end_id);
  }
  /// Why `text` cannot be encoded; empty if it can. Only for the null tokenizer, which reads
  /// numbers separated by single spaces.
  std::string complaint(std::string_view text) const;

  /// Megatron's vocab_size, including added tokens.
  int64_t vocab_size() const { return vocab_size_; }
  /// Ids are below this.
  int64_t id_limit() const { return id_limit_; }
  std::optional<int32_t> eod() const { return opened_.eod; }
  /// Whether special tokens in a text become their ids.
  bool parses_special_tokens() const {
    return encode_options_.special_tokens_in_text == tok::SpecialTokens::parse;
  }
  /// A warning if eod() is not the eos token of the tokenizer's folder, at which an exported model
  /// stops; else empty.
  const std::string& eod_note() const { return eod_note_; }
  /// Warnings: flags without effect, versions of transformers and of Megatron that give other ids.
  const std::vector<std::string>& notes() const { return notes_; }
  /// "GPT2BPETokenizer vocab.json merges.txt", for people.
  const std::string& description() const { return description_; }
  /// Equal for tokenizers that give equal ids.
  const std::string& identity() const { return opened_.identity; }
  /// Null for the null tokenizer.
  const tok::Tokenizer* tokenizer() const {
    return opened_.tokenizer ? &*opened_.tokenizer : nullptr;
  }

 private:
  friend LoadedTokenizer load_tokenizer(const TokenizerOptions& options,
                                        const tok::ParallelFor& parallel_for);
  tokenizer::Opened opened_;
  tok::EncodeOptions encode_options_;
  int64_t vocab_size_ = 0;
  int64_t id_limit_ = 0;
  std::string description_;
  std::string eod_note_;
  std::vector<std::string> notes_;
};

/// Errors: as tokenizer::check(); UsageError for a type that is no BPE. Opens nothing.
void check_tokenizer_options(const TokenizerOptions& options);

/// Reads the files, after check_tokenizer_options(). Errors: as tokenizer::open(); UsageError for
/// what is needed or asked only to encode; std::runtime_error if the --eod-token is not a token.
LoadedTokenizer load_tokenizer(const TokenizerOptions& options,
                               const tok::ParallelFor& parallel_for = tok::serial_for);

/// Megatron's line ` > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)`.
std::string padded_vocab_line(int64_t vocab_size, const TokenizerOptions& options);

}  // namespace tokenize
