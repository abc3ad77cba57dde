// SPDX-License-Identifier: MIT
// Room: tools/tokenize. The rows of the flags, and what the classes of Megatron (2023 and today's),
// Megatron-DeepSpeed, gpt-neox and BigScience do with a text besides encoding it.
#include "tools/tokenize/tokenizer_files.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <utility>

#include "tools/cli/fields.h"
#include "tools/cli/text.h"

namespace tokenize {
namespace {

tokenizer::Flags named_flags(const TokenizerOptions& o) {
  return {.type = o.type,
          .model = o.model,
          .vocab_file = o.vocab_file,
          .merge_file = o.merge_file,
          .vocab_size = o.vocab_size,
          .null_eod_id = o.null_eod_id,
          .special_tokens = o.special_tokens,
          .tiktoken_pattern = o.tiktoken_pattern,
          .tiktoken_num_special_tokens = o.tiktoken_num_special_tokens,
          .tiktoken_special_tokens = o.tiktoken_special_tokens,
          .encodes = true,
          .tiktoken_encoding = o.encoding};
}

/// The id that ends a document: --eod-token, else as the type's class finds it.
std::optional<int32_t> find_eod(const TokenizerOptions& options, const tokenizer::Opened& opened) {
  if (options.eod_token.empty()) return opened.eod;
  const std::optional<int32_t> id = opened.tokenizer->token_id(options.eod_token);
  if (!id) {
    throw std::runtime_error(
        cli::concat("--eod-token ", cli::quote(options.eod_token), ": no token of ", opened.files));
  }
  return id;
}

/// A warning if documents end with another token than the folder's eos_token; else empty.
std::string eod_note(const tokenizer::Opened& opened, std::optional<int32_t> eod) {
  if (opened.folder.empty() || !eod) return {};
  const tok::Tokenizer& tokenizer = *opened.tokenizer;
  const std::optional<std::string> eos =
      tok::read_named_tokens(tokenizer::folder_reader(opened.folder)).eos;
  const std::optional<int32_t> id = eos ? tokenizer.token_id(*eos) : std::nullopt;
  if (!id || *id == *eod) return {};
  return cli::concat("documents end with ", cli::quote(tokenizer.token_bytes(*eod)), " (", *eod,
                     "), but eos_token of ", opened.folder, " is ", cli::quote(*eos), " (", *id,
                     "), at which a model exported with it stops");
}

bool has_templates(const std::string& type) {
  return type == "HuggingFaceTokenizer" || type == "HFTokenizer" || type == "PretrainedFromHF" ||
         type == "Llama2Tokenizer";
}

/// Whether the wrapper of this type parses special tokens: those that call Hugging Face's encode,
/// and Megatron's wrapper of SentencePiece for its own.
bool parses_by_default(const std::string& type) {
  return (has_templates(type) && type != "Llama2Tokenizer") || type == "HFGPT2Tokenizer" ||
         type == "SentencePieceTokenizer";
}

/// A warning where megatron-core's releases differ in what the type adds to a text; else empty.
std::string release_note(const TokenizerOptions& options, const tok::EncodeOptions& encoding,
                         const tok::TokenizerSource& source) {
  constexpr const char* kToday =
      " as before megatron-core 0.16, whose class adds nothing and ends documents with the "
      "model's eos: that is --tokenizer-type GPTSentencePieceTokenizer";
  const bool around =
      encoding.add_special_tokens && !(source.prefix_ids.empty() && source.suffix_ids.empty());
  if (options.type == "HuggingFaceTokenizer" && around && !options.special_tokens_asked)
    return "HuggingFaceTokenizer puts special tokens around each text, as megatron-core does "
           "from 0.17 on, and 0.16 only with --tokenizer-hf-include-special-tokens";
  if (options.legacy) return {};
  if (options.type == "SentencePieceTokenizer")
    return cli::concat("SentencePieceTokenizer adds <CLS>, <SEP>, <EOD> and <MASK>,", kToday);
  if (options.type == "Llama2Tokenizer" && around)
    return cli::concat("Llama2Tokenizer puts a BOS before each text,", kToday);
  return {};
}

/// Reads the null tokenizer's number at `at` and moves `at` past it; -1 if there is none.
int32_t next_number(std::string_view text, int64_t limit, size_t& at) {
  const size_t end = std::min(text.find(' ', at), text.size());
  const char* last = text.data() + end;
  int32_t id = -1;
  const std::from_chars_result result = std::from_chars(text.data() + at, last, id);
  if (result.ec != std::errc() || result.ptr != last || id < 0 || id >= limit) return -1;
  at = end + 1;
  return id;
}

}  // namespace

cli::Group<TokenizerOptions> tokenizer_group() {
  using T = TokenizerOptions;
  return {
      "Tokenizer",
      {{.name = "tokenizer-type",
        .value = "TYPE",
        .help = "Megatron's name of the tokenizer. Optional: the files show what they are.",
        .field = {cli::Arity::one, cli::text(&T::type).set, cli::text(&T::type).show,
                  tokenizer::encoding_types()}},
       {.name = "vocab-file",
        .aliases = "vocab",
        .value = "FILE",
        .help = "vocab.json, which needs --merge-file; or tokenizer.json, a folder that holds one, "
                "or a .tiktoken file.",
        .field = cli::text(&T::vocab_file)},
       {.name = "merge-file",
        .aliases = "merges-file merges",
        .value = "FILE",
        .help = "merges.txt.",
        .field = cli::text(&T::merge_file)},
       {.name = "tokenizer-model",
        .aliases = "tokenizer-name-or-path",
        .value = "PATH",
        .help = "tokenizer.json, a folder that holds one, SentencePiece's .model, tekken.json, the "
                "list "
                "of a TikTokenizer, or a .tiktoken file. Nothing is downloaded.",
        .field = cli::text(&T::model)},
       {.name = "tiktoken-pattern",
        .value = "V",
        .help = "TikTokenizer's list of tokens in JSON: how texts are cut, v1 or v2.",
        .field = cli::text(&T::tiktoken_pattern)},
       {.name = "tiktoken-num-special-tokens",
        .value = "N",
        .help = "The same: ids below N are special tokens; else 1000.",
        .field = cli::integer(&T::tiktoken_num_special_tokens, 3, 1 << 16)},
       {.name = "tiktoken-special-tokens",
        .value = "TOKEN",
        .help = "The same: special tokens from id 0 on; else <unk>, <s>, </s>.",
        .field = cli::list(&T::tiktoken_special_tokens)},
       {.name = "tiktoken-encoding",
        .value = "NAME",
        .help = "Which of tiktoken's encodings a .tiktoken file is, as cl100k_base; else its name "
                "says so.",
        .field = cli::text(&T::encoding)},
       {.name = "special-tokens-in-text",
        .value = "HOW",
        .help = "What a special token that occurs literally in a text is: ordinary text, as "
                "in tiktoken's encode_ordinary and the GPT2BPETokenizer of 2023; or parsed into "
                "its id, as in Hugging Face's encode. auto goes by the type: Hugging Face's parse, "
                "others and none keep text.",
        .field = cli::choice(&T::special_tokens_in_text, {"auto", "text", "parse"})},
       {.name = "tokenizer-special-tokens",
        .value = "TOKEN",
        .help = "More special tokens for a vocab.json; those that it lacks get the next ids.",
        .field = cli::list(&T::special_tokens)},
       {.name = "tokenizer-hf-no-include-special-tokens",
        .help = "Leave out the tokens that a Hugging Face tokenizer's template puts around each "
                "text, such as a BOS.",
        .field = cli::off(&T::include_special_tokens)},
       {.name = "tokenizer-hf-include-special-tokens",
        .help = "megatron-core 0.16's flag for writing them. They are in any case; the flag leaves "
                "out the line that says so.",
        .field = cli::on(&T::special_tokens_asked)},
       {.name = "legacy-tokenizer",
        .help = "SentencePieceTokenizer and Llama2Tokenizer as before megatron-core 0.16. They are "
                "in any case; the flag leaves out the line that says so.",
        .field = cli::on(&T::legacy)},
       {.name = "no-tokenizer-sentencepiece-ignore-extra-whitespaces",
        .aliases = "disable-tokenizer-sentencepiece-ignore-extra-whitespaces",
        .help =
            "Refused with a SentencePiece model, which itself says what becomes of blanks; else "
            "without effect.",
        .field = cli::on(&T::keep_extra_whitespaces)},
       {.name = "eod-token",
        .value = "TOKEN",
        .help =
            "The token that ends documents; by default the eos_token that the folder's files name, "
            "else the first of <|endoftext|>, <|end_of_text|>, </s>, <eos>.",
        .field = cli::text(&T::eod_token)},
       {.name = "vocab-size",
        .value = "N",
        .help = "NullTokenizer: its number of tokens. TikTokenizer: how many of its list's tokens "
                "count, special ones with them; else 131072. Others have their own, and no other "
                "size is "
                "taken.",
        .field = cli::integer_or_none(&T::vocab_size, 1, int64_t{1} << 31)},
       {.name = "null-tokenizer-eod-id",
        .value = "N",
        .help = "NullTokenizer: the id that ends documents.",
        .field = cli::integer(&T::null_eod_id, 0, (int64_t{1} << 31) - 1)},
       {.name = "make-vocab-size-divisible-by",
        .value = "N",
        .help = "For the line about the padded vocabulary; the dataset does not depend on it.",
        .field = cli::integer(&T::divisible_by, 1, 1 << 30)},
       {.name = "tensor-model-parallel-size",
        .value = "N",
        .help = "For the same line.",
        .field = cli::integer(&T::tensor_parallel, 1, 1 << 20)},
       {.name = "no-pad-vocab-size",
        .aliases = "disable-pad-vocab-size",
        .help = "Leave that line out.",
        .field = cli::off(&T::pad_vocab)}}};
}

void check_tokenizer_options(const TokenizerOptions& options) {
  tokenizer::check(named_flags(options));
  const std::vector<std::string> types = tokenizer::encoding_types();
  if (!options.type.empty() && std::ranges::find(types, options.type) == types.end()) {
    throw cli::UsageError(cli::concat("--tokenizer-type ", options.type,
                                      ": not a BPE tokenizer, which is what this program reads"));
  }
}

int64_t LoadedTokenizer::encode(std::string_view text, tok::Scratch& scratch,
                                tok::TokenBuffer& out) const {
  if (tokenizer()) return tokenizer()->encode(text, scratch, out, encode_options_);
  for (size_t at = 0; at < text.size();) {
    out.push_back(next_number(text, vocab_size_, at));
    out.drain_if_full();
  }
  return 0;
}

std::string LoadedTokenizer::complaint(std::string_view text) const {
  if (tokenizer()) return {};
  for (size_t at = 0; at < text.size();) {
    if (next_number(text, vocab_size_, at) >= 0) continue;
    const std::string_view word = text.substr(at, text.find(' ', at) - at);
    return cli::concat(cli::quote(word), " is not a number from 0 to ", vocab_size_ - 1,
                       ", as the NullTokenizer reads");
  }
  return {};
}

LoadedTokenizer load_tokenizer(const TokenizerOptions& options,
                               const tok::ParallelFor& parallel_for) {
  LoadedTokenizer loaded;
  loaded.opened_ = tokenizer::open(named_flags(options), parallel_for);
  tokenizer::Opened& opened = loaded.opened_;
  loaded.notes_ = std::move(opened.notes);
  if (!opened.idle.empty())
    loaded.notes_.push_back(cli::concat("no effect here: ", cli::join(opened.idle, ", ")));
  loaded.description_ = options.type;
  if (!opened.files.empty())
    loaded.description_ += cli::concat(options.type.empty() ? "" : " ", opened.files);
  if (!opened.tokenizer) {
    loaded.vocab_size_ = *options.vocab_size;
    loaded.id_limit_ = std::max<int64_t>(*options.vocab_size, int64_t{*opened.eod} + 1);
    if (!options.null_eod_id) loaded.notes_.push_back(tokenizer::null_note(*options.vocab_size));
    return loaded;
  }
  const tok::TokenizerSource& source = opened.tokenizer->source();
  if (options.keep_extra_whitespaces && source.sentencepiece)
    throw cli::UsageError(cli::concat("--no-tokenizer-sentencepiece-ignore-extra-whitespaces: ",
                                      opened.files, " itself says what becomes of blanks"));
  const bool parse = options.special_tokens_in_text == "auto"
                         ? parses_by_default(options.type) && !source.split_special_tokens
                         : options.special_tokens_in_text == "parse";
  loaded.encode_options_.special_tokens_in_text =
      parse ? tok::SpecialTokens::parse : tok::SpecialTokens::text;
  loaded.encode_options_.add_special_tokens =
      options.include_special_tokens && has_templates(options.type);
  if (!source.version_note.empty()) loaded.notes_.push_back(source.version_note);
  if (loaded.encode_options_.add_special_tokens && !source.template_note.empty())
    loaded.notes_.push_back(source.template_note);
  const std::string note = release_note(options, loaded.encode_options_, source);
  if (!note.empty()) loaded.notes_.push_back(note);
  loaded.vocab_size_ = opened.tokenizer->vocab_size();
  loaded.id_limit_ = opened.tokenizer->id_limit();
  opened.eod = find_eod(options, opened);
  loaded.eod_note_ = eod_note(opened, opened.eod);
  return loaded;
}

std::string padded_vocab_line(int64_t vocab_size, const TokenizerOptions& options) {
  const int64_t multiple = options.divisible_by * options.tensor_parallel;
  const int64_t padded = (vocab_size + multiple - 1) / multiple * multiple;
  return cli::concat(" > padded vocab (size: ", vocab_size, ") with ", padded - vocab_size,
                     " dummy tokens (new size: ", padded, ")");
}

}  // namespace tokenize
