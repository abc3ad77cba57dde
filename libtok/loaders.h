// From the bytes of published tokenizer files to a TokenizerSource: everything a Tokenizer needs,
// in one plain struct. What cannot be followed exactly is refused by name, here.
// Not here: reading files (the caller's), checking vocabularies (vocab.h), encoding (tokenizer.h).
// Includes: vocab.h, pretokenize.h; nlohmann-json only in the .cc files.
// Source: Hugging Face tokenizers 0.23 (tokenizer.json), transformers (vocab.json, merges.txt),
// tiktoken 0.14 (.tiktoken).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libtok/parallel_for.h"
#include "libtok/pretokenize.h"
#include "libtok/sentencepiece.h"
#include "libtok/vocab.h"

namespace tok {

/// A token that is found in the text before the text is cut into pieces.
struct AddedToken {
  std::string content;
  int32_t id = kNoId;
  bool special = false;      ///< decode can leave it out; in corpus text it is text by default
  bool single_word = false;  ///< only where no \w character touches it
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space after it
  bool normalized = false;   ///< looked for in the normalised text

  bool operator==(const AddedToken&) const = default;
};

/// Unicode normalisation forms, as Hugging Face tokenizers applies them (normalize.h).
enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };

/// What decode() takes away from the beginning of a text.
enum class LeadingBlank : uint8_t {
  keep,
  strip_one,          ///< one blank: Hugging Face's Strip behind Fuse
  strip_first_token,  ///< all blanks of the first token: its Metaspace
  strip_prefix,       ///< one blank of a piece: SentencePiece with add_dummy_prefix
  strip_prefixes,     ///< one of each piece up to the first that leaves text: with
                      ///< remove_extra_whitespaces
};

/// How ids become text, beyond their tokens one behind the other.
struct DecodeRules {
  LeadingBlank leading = LeadingBlank::keep;
  bool names_bytes = false;    ///< an id of a byte gives its token, "<0x0A>", not the byte
  bool hides_special = false;  ///< special tokens give nothing: SentencePiece's control symbols
  std::vector<int32_t> hidden_ids = {};  ///< give nothing, and are no added tokens
  int32_t unk_id = kNoId;                ///< gives unk_text instead of its token
  std::string unk_text = {};
};

/// All of a tokenizer, as data.
struct TokenizerSource {
  VocabSource vocab;
  PreTokenizer pretokenizer;
  bool add_prefix_space = false;         ///< a space before each segment that begins with none
  bool prefix_first_only = false;        ///< and only before a segment that begins the text
  std::vector<NormalForm> normal_forms;  ///< applied in this order
  /// Behind the normal forms, a blank before each segment, whatever it begins with: Prepend.
  bool prepend_blank = false;
  /// Behind them blanks become U+2581, for which the blank stands here: Replace.
  bool replace_blanks = false;
  /// The same only once the added tokens have been found: Metaspace.
  bool metaspace = false;
  /// A SentencePiece model's way, in the place of all of these.
  std::optional<SentencePieceRules> sentencepiece;
  std::vector<AddedToken> added_tokens;  ///< in the order in which equal matches are tried
  std::vector<int32_t> prefix_ids;       ///< before a document, when special tokens are asked for
  std::vector<int32_t> suffix_ids;       ///< after it
  DecodeRules decode_rules;
  int32_t bos_id = kNoId;  ///< what the folder names so; kNoId where it names none
  int32_t eos_id = kNoId;
  int32_t pad_id = kNoId;
  bool split_special_tokens = false;  ///< the folder asks that special tokens in text stay text
  std::string version_note;        ///< where transformers 5 gives other ids, and 4.46 is followed
  std::string template_note;       ///< where 4.46 puts other special tokens around a text
  std::vector<std::string> notes;  ///< for Tokenizer::audit()

  /// Whether tokens have blanks for U+2581.
  bool has_blanks_for_marks() const noexcept {
    return replace_blanks || metaspace || sentencepiece.has_value();
  }
};

/// What vocab.json and merges.txt do not say.
struct Gpt2Options {
  bool add_prefix_space = false;
  /// Special tokens; those that are not in the vocabulary get the next ids, as in transformers.
  /// Empty: those of `<|endoftext|> <s> <pad> </s> <unk> <mask>` that the vocabulary has.
  std::vector<std::string> special_tokens;
};

/// Reads GPT-2's pair of files, also in the form of OPT and RoBERTa, whose ids are not ranks.
/// Errors: ParseError with the line of merges.txt or the key of vocab.json.
TokenizerSource read_gpt2(std::string_view vocab_json, std::string_view merges_txt,
                          const Gpt2Options& options = {},
                          const ParallelFor& parallel_for = serial_for);
/// A complaint of read_gpt2, of another file's reader, or of the Tokenizer made of it, with the
/// path of the file that it is about in place of "vocab.json", "tokenizer.json" or "merges.txt".
/// What names none of them is about the vocabulary.
std::string with_paths(std::string_view complaint, std::string_view vocab_path,
                       std::string_view merges_path);

/// Reads a tokenizer.json: model BPE with a byte-level pre-tokenizer, or of characters as
/// SentencePiece's models become one.
/// Errors: ParseError naming the member and value that is ill-formed or not supported.
TokenizerSource read_tokenizer_json(std::string_view json);

/// What Megatron's SentencePieceTokenizer adds to a model.
struct SentencePieceOptions {
  /// `<CLS> <SEP> <EOD> <MASK>`, and `<PAD> <BOS> <EOS>` where the model has no such control
  /// symbols, with the next ids; `<EOD>` is then the eos. Other control symbols are no special
  /// tokens any more.
  bool megatron_tokens = false;
};

/// Reads a SentencePiece model of type BPE. The ids are those of its Encode(); prefix_ids has the
/// BOS, where the model has one.
/// Errors: ParseError with the field, or the type of a model that is no BPE.
TokenizerSource read_sentencepiece(std::string_view model,
                                   const SentencePieceOptions& options = {});

/// The pieces of a SentencePiece model of any type, by id. Errors: ParseError.
std::vector<std::string> read_sentencepiece_pieces(std::string_view model);

/// Whether bytes begin as a SentencePiece model does.
bool is_sentencepiece(std::string_view bytes) noexcept;

/// What the lists of Mistral's Tekken and of Megatron's TikTokenizer do not say, or say otherwise.
struct RankListOptions {
  Family family = Family::tekken;     ///< TikTokenizer's pattern: v1 is Family::nemotron
  int64_t num_special_tokens = 1000;  ///< ids below this are special tokens'
  int64_t vocab_size = 1 << 17;       ///< with them; tokens of the list beyond it are left out
  std::vector<std::string> special_tokens = {"<unk>", "<s>", "</s>"};  ///< with ids from 0
};

/// Whether a JSON text is one of those two.
bool is_rank_list(std::string_view json) noexcept;

/// Reads Mistral's tekken.json, which says all that `options` could, or the list of tokens that
/// Megatron's TikTokenizer reads.
/// Errors: ParseError with the number of the token, or the member.
TokenizerSource read_rank_list(std::string_view json, const RankListOptions& options = {});

/// Reads whichever of tokenizer.json, SentencePiece's model and the lists by rank a file is.
TokenizerSource read_tokenizer_file(std::string_view bytes, const RankListOptions& options = {});

/// The text of one file of a folder, by its name there; nothing where there is none.
using ReadFile = std::function<std::optional<std::string>(std::string_view name)>;

/// Special tokens by their roles in a folder; nothing where a role has none.
struct NamedTokens {
  std::optional<std::string> bos, eos, pad;
};

/// Reads a folder as transformers' AutoTokenizer does: tokenizer.json, or vocab.json with
/// merges.txt, or tokenizer.model, or tekken.json, and over it what tokenizer_config.json,
/// special_tokens_map.json and added_tokens.json say. config.json says the class where
/// tokenizer_config.json does not. Where versions differ, transformers 5 is followed, but for what
/// it drops of a tokenizer.json, and for a tokenizer.model of LlamaTokenizer, where 4.46 is;
/// docs/man/bpe-tokenize.1.md lists the places.
/// Errors: ParseError naming file, member, value and why.
TokenizerSource read_folder(const ReadFile& read, const ParallelFor& parallel_for = serial_for);

/// The same folder's bos, eos and pad tokens, also where its tokenizer is of another kind than
/// those that are read here.
/// Errors: ParseError for a file that is not JSON.
NamedTokens read_named_tokens(const ReadFile& read);

/// What a folder says of its ids.
struct FolderIds {
  int32_t bos = kNoId, eos = kNoId, pad = kNoId;  ///< kNoId: not named, or without an id in a file
  bool names_eos = false;
  int32_t eod = kNoId;   ///< eos where it is named, else the first of kEodNames that has an id
  std::string eod_name;  ///< its content
  int64_t limit = 0;     ///< the highest id plus one; 0 where no file has ids that are read here
};

/// Reads them of any tokenizer.json, and of vocab.json and the lists of added tokens.
/// Errors: ParseError for a file that is not JSON.
FolderIds read_folder_ids(const ReadFile& read);

/// Names under which the field's tokenizers keep the token that ends a document, the first that a
/// vocabulary has being it where nothing else is said.
inline constexpr std::string_view kEodNames[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                                 "<eos>"};

/// Reads a .tiktoken file (base64 token, space, rank: one a line) with the pattern and special
/// tokens of `encoding`: r50k_base, gpt2, p50k_base, p50k_edit, cl100k_base, o200k_base.
/// Errors: ParseError with the line, or the name of an unknown encoding.
TokenizerSource read_tiktoken(std::string_view ranks, std::string_view encoding);

}  // namespace tok
