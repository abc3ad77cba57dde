// SPDX-License-Identifier: MIT
// Room: tools/tokenize. Which files make which tokenizer. The types are Megatron's (2023 and
// today's), Megatron-DeepSpeed's, gpt-neox's and BigScience's; they differ in wrappers, not in
// files, so one loader serves all.
#include "tools/tokenize/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "tools/cli/fields.h"
#include "tools/cli/text.h"
#include "tools/stream/input.h"

namespace tokenize {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 11> kTypes = {
    "GPT2BPETokenizer",          "HuggingFaceTokenizer", "HFTokenizer",   "HFGPT2Tokenizer",
    "PretrainedFromHF",          "TikTokenizer",         "NullTokenizer", "SentencePieceTokenizer",
    "GPTSentencePieceTokenizer", "Llama2Tokenizer",      "SPMTokenizer"};

/// Types of SentencePiece models.
constexpr std::array<std::string_view, 4> kSentencePieceTypes = {
    "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer", "SPMTokenizer"};

/// Types that Megatron's programs know and that are no BPE.
constexpr std::array<std::string_view, 6> kOtherTypes = {
    "BertWordPieceLowerCase",  "BertWordPieceCase", "MultimodalTokenizer",
    "NullMultimodalTokenizer", "SFTTokenizer",      "CharLevelTokenizer"};

constexpr std::string_view kTiktokenAlias = "TiktokenTokenizer";

template <class List>
bool has(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

cli::Field<TokenizerOptions> type_field() {
  return {cli::Arity::one,
          [](TokenizerOptions& o, const cli::Values& v) {
            if (has(kOtherTypes, v[0])) {
              throw cli::UsageError("not a BPE tokenizer, which is what this program reads");
            }
            if (!has(kTypes, v[0]) && v[0] != kTiktokenAlias) {
              throw cli::UsageError(
                  cli::concat("expected one of ", cli::join({kTypes.begin(), kTypes.end()}, ", ")));
            }
            o.type = v[0] == kTiktokenAlias ? "TikTokenizer" : v[0];
          },
          [](const TokenizerOptions& o) {
            return o.type.empty() ? cli::Values{} : cli::Values{o.type};
          },
          {kTypes.begin(), kTypes.end()}};
}

std::string read_whole(const std::string& path) {
  stream::Input input(path);
  std::string text;
  std::string buffer(1 << 18, '\0');
  while (const size_t size = input.read(buffer)) text.append(buffer, 0, size);
  return text;
}

/// A path that exists, or the error for a name on the network.
std::string existing(const std::string& path, std::string_view flag) {
  std::error_code error;
  if (fs::exists(path, error)) return path;
  throw std::system_error(std::make_error_code(std::errc::no_such_file_or_directory),
                          cli::concat("--", flag, " ", path,
                                      " (nothing is downloaded: give tokenizer.json, its folder, "
                                      "or vocab.json and merges.txt)"));
}

/// The files of a folder, for libtok.
tok::ReadFile reader_of(const fs::path& folder) {
  return [folder](std::string_view name) -> std::optional<std::string> {
    std::error_code error;
    const fs::path path = folder / name;
    if (!fs::exists(path, error)) return std::nullopt;
    return read_whole(path.string());
  };
}

/// tiktoken's name of an encoding, from the name of its file: cl100k_base.tiktoken(.gz).
std::string encoding_of(const TokenizerOptions& options, const std::string& path) {
  if (!options.encoding.empty()) return options.encoding;
  const std::string name = fs::path(path).filename().string();
  return name.substr(0, name.find('.'));
}

/// Calls `make` and adds the file's name to the parser's errors.
template <class Make>
tok::Tokenizer parsed(const std::string& path, Make make) {
  try {
    return make();
  } catch (const tok::ParseError& error) {
    throw tok::ParseError(cli::concat(path, ": ", error.what()));
  }
}

/// What is known about a tokenizer besides itself.
struct Files {
  std::string description;
  bool bare_list = false;  ///< a list of tokens for TikTokenizer, which does not say its sizes
  bool tiktoken = false;   ///< a .tiktoken file
  fs::path folder;         ///< the folder of its configuration; empty for files read alone
};

tok::Tokenizer from_folder(const fs::path& folder, Files& files,
                           const tok::ParallelFor& parallel_for) {
  std::error_code error;
  const auto there = [&](const char* name) { return fs::exists(folder / name, error); };
  const bool pair = there("vocab.json") && there("merges.txt");
  const char* whole = there("tokenizer.json")    ? "tokenizer.json"
                      : pair                     ? nullptr
                      : there("tokenizer.model") ? "tokenizer.model"
                      : there("tekken.json")     ? "tekken.json"
                                                 : nullptr;
  if (whole == nullptr && !pair) {
    throw std::system_error(std::make_error_code(std::errc::no_such_file_or_directory),
                            cli::concat(folder.string(),
                                        ": neither tokenizer.json nor vocab.json with merges.txt "
                                        "nor tokenizer.model nor tekken.json"));
  }
  files.folder = folder;
  files.description =
      whole ? (folder / whole).string()
            : cli::concat((folder / "vocab.json").string(), " ", (folder / "merges.txt").string());
  return parsed(folder.string(),
                [&] { return tok::Tokenizer::from_folder(reader_of(folder), parallel_for); });
}

/// Whether the two files are a folder's pair, with a configuration beside them.
bool is_folders_pair(const fs::path& vocab, const fs::path& merges) {
  const fs::path folder = vocab.parent_path();
  std::error_code error;
  return vocab.filename() == "vocab.json" && merges.filename() == "merges.txt" &&
         merges.parent_path() == folder && fs::exists(folder / "tokenizer_config.json", error);
}

tok::Tokenizer from_pair(const TokenizerOptions& options, const std::string& vocab,
                         const std::string& merges, Files& files,
                         const tok::ParallelFor& parallel_for) {
  if (is_folders_pair(vocab, merges)) {
    // With a type or special tokens on the command line, the two files are read alone.
    files.folder = fs::path(vocab).parent_path();
    if (options.type.empty() && options.special_tokens.empty())
      return from_folder(files.folder, files, parallel_for);
  }
  files.description = cli::concat(vocab, " ", merges);
  tok::Gpt2Options gpt2;
  if (!options.special_tokens.empty()) {
    gpt2.special_tokens = options.special_tokens;
    gpt2.special_tokens.insert(gpt2.special_tokens.begin(), "<|endoftext|>");
  }
  const std::string vocab_text = read_whole(vocab);
  const std::string merges_text = read_whole(merges);
  try {
    return tok::Tokenizer::from_gpt2(vocab_text, merges_text, gpt2, parallel_for);
  } catch (const tok::ParseError& error) {
    throw tok::ParseError(tok::with_paths(error.what(), vocab, merges));
  }
}

/// What Megatron's TikTokenizer is told of a list of tokens. tekken.json says it itself.
tok::RankListOptions rank_list_options(const TokenizerOptions& options) {
  tok::RankListOptions list;
  list.family = options.tiktoken_pattern == "v1" ? tok::Family::nemotron : tok::Family::tekken;
  if (options.tiktoken_num_special_tokens) {
    list.num_special_tokens = *options.tiktoken_num_special_tokens;
  }
  if (options.vocab_size) list.vocab_size = *options.vocab_size;
  if (!options.tiktoken_special_tokens.empty()) {
    list.special_tokens = options.tiktoken_special_tokens;
  }
  return list;
}

tok::Tokenizer from_rank_list(const TokenizerOptions& options, const std::string& path,
                              const std::string& text, Files& files,
                              const tok::ParallelFor& parallel_for) {
  files.bare_list = text[text.find_first_not_of(" \t\r\n")] == '[';
  if (files.bare_list && options.tiktoken_pattern.empty()) {
    throw cli::UsageError(cli::concat("--tokenizer-model ", path,
                                      ": a list of tokens needs --tiktoken-pattern v1 or v2"));
  }
  return parsed(path, [&] {
    return tok::Tokenizer::from_rank_list(text, rank_list_options(options), parallel_for);
  });
}

tok::Tokenizer from_sentencepiece(const TokenizerOptions& options, const std::string& path,
                                  const std::string& model, const tok::ParallelFor& parallel_for) {
  if (options.keep_extra_whitespaces) {
    throw cli::UsageError(cli::concat("--no-tokenizer-sentencepiece-ignore-extra-whitespaces: ",
                                      path, " itself says what becomes of blanks"));
  }
  const tok::SentencePieceOptions added{.megatron_tokens =
                                            options.type == "SentencePieceTokenizer"};
  return parsed(path,
                [&] { return tok::Tokenizer::from_sentencepiece(model, added, parallel_for); });
}

tok::Tokenizer from_file(const TokenizerOptions& options, const std::string& path, Files& files,
                         const tok::ParallelFor& parallel_for) {
  const fs::path file(path);
  // gpt-neox's HFTokenizer reads --vocab-file alone, whatever is beside it.
  const bool alone = options.type == "HFTokenizer" && options.model.empty();
  if (file.filename() == "tokenizer.json" && !alone) {
    return from_folder(file.has_parent_path() ? file.parent_path() : fs::path("."), files,
                       parallel_for);
  }
  files.description = path;
  const std::string text = read_whole(path);
  if (tok::is_sentencepiece(text)) return from_sentencepiece(options, path, text, parallel_for);
  if (has(kSentencePieceTypes, options.type) || path.ends_with(".model")) {
    throw tok::ParseError(cli::concat(path, ": not a SentencePiece model"));
  }
  if (tok::is_rank_list(text)) return from_rank_list(options, path, text, files, parallel_for);
  const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (begin == text.size() || (text[begin] != '{' && text[begin] != '[')) {  // base64 lines
    files.tiktoken = true;
    return parsed(path, [&] {
      return tok::Tokenizer::from_tiktoken(text, encoding_of(options, path), parallel_for);
    });
  }
  return parsed(path, [&] { return tok::Tokenizer::from_tokenizer_json(text, parallel_for); });
}

tok::Tokenizer from_files(const TokenizerOptions& options, Files& files,
                          const tok::ParallelFor& parallel_for) {
  if (!options.merge_file.empty()) {
    return from_pair(options, existing(options.vocab_file, "vocab-file"),
                     existing(options.merge_file, "merge-file"), files, parallel_for);
  }
  const std::string& named = options.model.empty() ? options.vocab_file : options.model;
  const std::string path =
      existing(named, options.model.empty() ? "vocab-file" : "tokenizer-model");
  std::error_code error;
  return fs::is_directory(path, error) ? from_folder(path, files, parallel_for)
                                       : from_file(options, path, files, parallel_for);
}

/// The id that ends a document, as the wrapper of the type finds it.
std::optional<int32_t> find_eod(const TokenizerOptions& options, const tok::Tokenizer& tokenizer,
                                const Files& files) {
  if (options.eod_token.empty()) {
    const std::optional<int32_t> neox =
        options.type == "SPMTokenizer" ? tokenizer.token_id("<|endoftext|>") : std::nullopt;
    return neox ? neox : tokenizer.eod_id();
  }
  const std::optional<int32_t> id = tokenizer.token_id(options.eod_token);
  if (!id) {
    throw std::runtime_error(cli::concat("--eod-token ", cli::quote(options.eod_token),
                                         ": no token of ", files.description));
  }
  return id;
}

/// A warning if documents end with another token than the folder's eos_token; else empty.
std::string eod_note(const tok::Tokenizer& tokenizer, std::optional<int32_t> eod,
                     const Files& files) {
  if (files.folder.empty() || !eod) return {};
  const std::optional<std::string> eos = tok::read_named_tokens(reader_of(files.folder)).eos;
  const std::optional<int32_t> id = eos ? tokenizer.token_id(*eos) : std::nullopt;
  if (!id || *id == *eod) return {};
  return cli::concat("documents end with ", cli::quote(tokenizer.token_bytes(*eod)), " (", *eod,
                     "), but eos_token of ", files.folder.string(), " is ", cli::quote(*eos), " (",
                     *id, "), at which a model exported with it stops");
}

/// --tiktoken-num-special-tokens of Megatron's command lines, whatever the tokenizer.
constexpr int64_t kMegatronSpecialTokens = 1000;

/// Refuses flags that ask something of another kind of file than was read.
void refuse_idle_flags(const TokenizerOptions& options, const Files& files, int64_t vocab_size,
                       int64_t base_vocab_size) {
  const auto refuse = [&](bool given, const char* flag, const char* wants) {
    if (!given) return;
    throw cli::UsageError(cli::concat("--", flag, ": ", files.description, " is no ", wants));
  };
  refuse(!options.encoding.empty() && !files.tiktoken, "tiktoken-encoding", ".tiktoken file");
  if (files.bare_list) return;
  constexpr const char* kList = "list of tokens for TikTokenizer";
  refuse(!options.tiktoken_pattern.empty(), "tiktoken-pattern", kList);
  const int64_t special = options.tiktoken_num_special_tokens.value_or(kMegatronSpecialTokens);
  refuse(special != kMegatronSpecialTokens, "tiktoken-num-special-tokens", kList);
  refuse(!options.tiktoken_special_tokens.empty(), "tiktoken-special-tokens", kList);
  const int64_t asked = options.vocab_size.value_or(vocab_size);
  if (asked == vocab_size || asked == base_vocab_size) return;
  throw cli::UsageError(
      cli::concat("--vocab-size ", asked, ": ", files.description, " has ", vocab_size, " tokens"));
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
        .field = type_field()},
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
        .help = "TikTokenizer's list of tokens in JSON: how texts are cut.",
        .field = cli::choice(&T::tiktoken_pattern, {"", "v1", "v2"})},
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
        .field = cli::integer(&T::vocab_size, 1, int64_t{1} << 31)},
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
  if (options.type == "NullTokenizer") {
    if (!options.vocab_size)
      throw cli::UsageError("--tokenizer-type NullTokenizer needs --vocab-size");
    return;
  }
  if (!options.merge_file.empty() && options.vocab_file.empty()) {
    throw cli::UsageError("--merge-file needs --vocab-file");
  }
  if (!options.model.empty() && !options.merge_file.empty()) {
    throw cli::UsageError("--tokenizer-model and --merge-file name two tokenizers");
  }
  if (options.null_eod_id) {
    throw cli::UsageError("--null-tokenizer-eod-id needs --tokenizer-type NullTokenizer");
  }
  if (!options.special_tokens.empty() && options.merge_file.empty()) {
    throw cli::UsageError(
        "--tokenizer-special-tokens needs --merge-file: tokenizer.json lists its own");
  }
  if (options.merge_file.empty() && options.vocab_file.ends_with("vocab.json")) {
    throw cli::UsageError(cli::concat("--vocab-file ", options.vocab_file, " needs --merge-file"));
  }
}

int64_t LoadedTokenizer::encode(std::string_view text, tok::Scratch& scratch,
                                tok::TokenBuffer& out) const {
  if (tokenizer_) return tokenizer_->encode(text, scratch, out, encode_options_);
  for (size_t at = 0; at < text.size();) {
    out.push_back(next_number(text, vocab_size_, at));
    out.drain_if_full();
  }
  return 0;
}

std::string LoadedTokenizer::complaint(std::string_view text) const {
  if (tokenizer_) return {};
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
  if (options.type == "NullTokenizer") {
    loaded.vocab_size_ = loaded.id_limit_ = *options.vocab_size;
    const int64_t eod = options.null_eod_id.value_or(*options.vocab_size - 1);
    loaded.eod_ = static_cast<int32_t>(eod);
    loaded.id_limit_ = std::max(loaded.id_limit_, eod + 1);
    loaded.description_ = loaded.identity_ = "NullTokenizer";
    if (!options.null_eod_id)
      loaded.version_notes_.push_back(cli::concat(
          "NullTokenizer: --vocab-size ", *options.vocab_size, " is ids 0 to ", eod, ", and ", eod,
          " ends documents, as from megatron-core 0.18 on; earlier releases add an id for that: "
          "give ",
          *options.vocab_size + 1));
    return loaded;
  }
  Files files;
  loaded.tokenizer_ = std::make_unique<tok::Tokenizer>(from_files(options, files, parallel_for));
  refuse_idle_flags(options, files, loaded.tokenizer_->vocab_size(),
                    loaded.tokenizer_->base_vocab_size());
  const tok::TokenizerSource& source = loaded.tokenizer_->source();
  const bool parse = options.special_tokens_in_text == "auto"
                         ? parses_by_default(options.type) && !source.split_special_tokens
                         : options.special_tokens_in_text == "parse";
  loaded.encode_options_.special_tokens_in_text =
      parse ? tok::SpecialTokens::parse : tok::SpecialTokens::text;
  loaded.encode_options_.add_special_tokens =
      options.include_special_tokens && has_templates(options.type);
  if (!source.version_note.empty()) loaded.version_notes_.push_back(source.version_note);
  if (loaded.encode_options_.add_special_tokens && !source.template_note.empty())
    loaded.version_notes_.push_back(source.template_note);
  const std::string note = release_note(options, loaded.encode_options_, source);
  if (!note.empty()) loaded.version_notes_.push_back(note);
  loaded.vocab_size_ = loaded.tokenizer_->vocab_size();
  loaded.id_limit_ = loaded.tokenizer_->id_limit();
  loaded.eod_ = find_eod(options, *loaded.tokenizer_, files);
  loaded.eod_note_ = eod_note(*loaded.tokenizer_, loaded.eod_, files);
  loaded.description_ =
      cli::concat(options.type, options.type.empty() ? "" : " ", files.description);
  loaded.identity_ = loaded.tokenizer_->identity();
  return loaded;
}

std::string padded_vocab_line(int64_t vocab_size, const TokenizerOptions& options) {
  const int64_t multiple = options.divisible_by * options.tensor_parallel;
  const int64_t padded = (vocab_size + multiple - 1) / multiple * multiple;
  return cli::concat(" > padded vocab (size: ", vocab_size, ") with ", padded - vocab_size,
                     " dummy tokens (new size: ", padded, ")");
}

}  // namespace tokenize
