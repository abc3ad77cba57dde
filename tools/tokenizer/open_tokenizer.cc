// SPDX-License-Identifier: MIT
// Room: tools/tokenizer. See open_tokenizer.h. The type says which flag's file counts; the file's
// name and first bytes say what it is; libtok checks the contents.
#include "tools/tokenizer/open_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "tools/stream/input.h"

namespace tokenizer {
namespace {

namespace fs = std::filesystem;
using cli::concat;
using cli::UsageError;

constexpr std::string_view kNull = "NullTokenizer";

constexpr std::string_view kEncoding[] = {"GPT2BPETokenizer",
                                          "HuggingFaceTokenizer",
                                          "HFTokenizer",
                                          "HFGPT2Tokenizer",
                                          "PretrainedFromHF",
                                          "TikTokenizer",
                                          "TiktokenTokenizer",
                                          kNull,
                                          "SentencePieceTokenizer",
                                          "GPTSentencePieceTokenizer",
                                          "Llama2Tokenizer",
                                          "SPMTokenizer"};

/// Types that cut texts otherwise, or only around chats and images.
constexpr std::string_view kOthers[] = {
    "BertWordPieceLowerCase", "BertWordPieceCase", "MultimodalTokenizer", "NullMultimodalTokenizer",
    "SFTTokenizer",           "Llama3Tokenizer",   "MistralTokenizer",    "DeepSeekV2Tokenizer",
    "QwenTokenizer",          "Qwen2VLTokenizer",  "CharLevelTokenizer"};

/// Types of SentencePiece models.
constexpr std::string_view kSentencePiece[] = {
    "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer", "SPMTokenizer"};

/// Types that read --vocab-file and not --tokenizer-model.
constexpr std::string_view kOfVocabFile[] = {"GPT2BPETokenizer", "HFGPT2Tokenizer", "SPMTokenizer",
                                             "TiktokenTokenizer"};

/// Types that read one file and no merges.
constexpr std::string_view kOfOneFile[] = {"HFTokenizer", "SPMTokenizer", "TikTokenizer",
                                           "TiktokenTokenizer"};

bool has(std::span<const std::string_view> types, std::string_view type) {
  return std::ranges::find(types, type) != types.end();
}

std::string read_whole(const std::string& path) {
  stream::Input input(path);
  std::string text;
  std::string buffer(1 << 18, '\0');
  while (const size_t size = input.read(buffer)) text.append(buffer, 0, size);
  return text;
}

/// A path that exists, or the error for a name on the network.
const std::string& existing(const std::string& path, std::string_view flag) {
  std::error_code error;
  if (fs::exists(path, error)) return path;
  throw std::system_error(std::make_error_code(std::errc::no_such_file_or_directory),
                          concat("--", flag, " ", path,
                                 " (nothing is downloaded: give tokenizer.json, its folder, "
                                 "or vocab.json and merges.txt)"));
}

/// Calls `make` and puts the files' paths into the parser's errors.
template <class Make>
tok::Tokenizer named(const std::string& vocab, const std::string& merges, Make make) {
  try {
    return make();
  } catch (const tok::ParseError& error) {
    throw tok::ParseError(tok::with_paths(error.what(), vocab, merges));
  }
}

/// One tokenizer on its way from the flags.
struct Opening {
  const Flags& flags;
  const tok::ParallelFor& parallel_for;
  Opened& out;
  bool is_list = false;      ///< a list for TikTokenizer, which does not say its sizes
  bool is_tiktoken = false;  ///< a .tiktoken file

  tok::Tokenizer from_folder(const fs::path& folder) {
    out.folder = folder.empty() ? "." : folder.string();
    std::error_code error;
    const auto there = [&](const char* name) { return fs::exists(folder / name, error); };
    const bool pair = there("vocab.json") && there("merges.txt");
    const char* whole = there("tokenizer.json")    ? "tokenizer.json"
                        : pair                     ? "vocab.json"
                        : there("tokenizer.model") ? "tokenizer.model"
                                                   : "tekken.json";
    out.files = (folder / whole).string();
    if (whole == std::string_view("vocab.json"))
      out.files += concat(" ", (folder / "merges.txt").string());
    try {
      return tok::Tokenizer::from_folder(folder_reader(out.folder), parallel_for);
    } catch (const tok::ParseError& complaint) {
      const std::string text = complaint.what();
      const bool of_file = there(text.substr(0, text.find(':')).c_str());
      throw tok::ParseError(concat(out.folder, of_file ? "/" : ": ", text));
    }
  }

  /// With a type or special tokens the two files count alone, else with the configuration that
  /// stands beside them.
  tok::Tokenizer from_pair(const fs::path& vocab, const fs::path& merges) {
    const fs::path folder = vocab.parent_path();
    std::error_code error;
    if (vocab.filename() == "vocab.json" && merges == folder / "merges.txt" &&
        fs::exists(folder / "tokenizer_config.json", error)) {
      if (counting(flags).type.empty() && flags.special_tokens.empty()) return from_folder(folder);
      out.folder = folder.empty() ? "." : folder.string();
    }
    out.files = concat(vocab.string(), " ", merges.string());
    tok::Gpt2Options options{.special_tokens = flags.special_tokens};
    if (!options.special_tokens.empty())
      options.special_tokens.insert(options.special_tokens.begin(), "<|endoftext|>");
    const std::string vocab_text = read_whole(vocab.string());
    const std::string merges_text = read_whole(merges.string());
    return named(vocab.string(), merges.string(), [&] {
      return tok::Tokenizer::from_gpt2(vocab_text, merges_text, options, parallel_for);
    });
  }

  /// tekken.json says itself what Megatron's TikTokenizer is told of its list.
  tok::Tokenizer from_rank_list(const std::string& text) {
    is_list = text[text.find_first_not_of(" \t\r\n")] == '[';
    if (is_list && flags.encodes && flags.tiktoken_pattern.empty())
      throw UsageError(
          concat(shown(flags), ": a list of tokens needs --tiktoken-pattern v1 or v2"));
    tok::RankListOptions list;
    if (flags.tiktoken_pattern == "v1") list.family = tok::Family::nemotron;
    if (flags.tiktoken_num_special_tokens)
      list.num_special_tokens = *flags.tiktoken_num_special_tokens;
    if (flags.vocab_size) list.vocab_size = *flags.vocab_size;
    if (!flags.tiktoken_special_tokens.empty()) list.special_tokens = flags.tiktoken_special_tokens;
    return tok::Tokenizer::from_rank_list(text, list, parallel_for);
  }

  tok::Tokenizer from_text(const std::string& path, const std::string& text) {
    if (tok::is_sentencepiece(text)) {
      const tok::SentencePieceOptions added{.megatron_tokens =
                                                flags.type == "SentencePieceTokenizer"};
      return tok::Tokenizer::from_sentencepiece(text, added, parallel_for);
    }
    const bool list = tok::is_rank_list(text) && !has(kSentencePiece, flags.type);
    if (list) return from_rank_list(text);
    if (has(kSentencePiece, flags.type) || path.ends_with(".model"))
      throw tok::ParseError("not a SentencePiece model");
    const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
    is_tiktoken = !path.ends_with(".json") &&
                  (begin == text.size() || (text[begin] != '{' && text[begin] != '['));
    if (!is_tiktoken) return tok::Tokenizer::from_tokenizer_json(text, parallel_for);
    const std::string name = fs::path(path).filename().string();
    return tok::Tokenizer::from_tiktoken(
        text,
        flags.tiktoken_encoding.empty() ? name.substr(0, name.find('.')) : flags.tiktoken_encoding,
        parallel_for);
  }

  tok::Tokenizer from_file(const std::string& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) return from_folder(path);
    // GPT-NeoX's HFTokenizer reads --vocab-file alone, whatever is beside it.
    const bool alone = flags.type == "HFTokenizer" && path == flags.vocab_file;
    if (fs::path(path).filename() == "tokenizer.json" && !alone)
      return from_folder(fs::path(path).parent_path());
    out.files = path;
    const std::string text = read_whole(path);
    return named(path, "", [&] { return from_text(path, text); });
  }
};

bool is_null(const Flags& flags) { return flags.type == kNull && flags.patch_type.empty(); }

/// A message about the files that do not count; empty if all do.
std::string uncounted(const Flags& flags, const Flags& counted) {
  std::string files;
  for (const auto& [file, counts, flag] :
       {std::tuple{&flags.vocab_file, &counted.vocab_file, "--vocab-file "},
        {&flags.merge_file, &counted.merge_file, "--merge-file "},
        {&flags.model, &counted.model, "--tokenizer-model "}}) {
    if (counts->empty() && !file->empty()) files += concat(files.empty() ? "" : ", ", flag, *file);
  }
  if (files.empty()) return files;
  return concat(files, ": no effect beside ",
                !counted.model.empty()        ? "--tokenizer-model"
                : !counted.vocab_file.empty() ? shown(counted)
                                              : concat("--tokenizer-type ", flags.type));
}

/// --tiktoken-num-special-tokens of Megatron's command lines, whatever the tokenizer.
constexpr int64_t kMegatronSpecialTokens = 1000;

std::vector<std::string> idle_flags(const Flags& flags, const Opening& opening) {
  const std::optional<tok::Tokenizer>& tokenizer = opening.out.tokenizer;
  const bool list = opening.is_list, null = is_null(flags);
  const int64_t special = flags.tiktoken_num_special_tokens.value_or(kMegatronSpecialTokens);
  const int64_t asked = flags.vocab_size.value_or(0);
  const bool other_size = tokenizer && flags.vocab_size && asked != tokenizer->vocab_size() &&
                          asked != tokenizer->base_vocab_size();
  std::vector<std::string> idle;
  for (const auto& [given, flag] :
       {std::pair{other_size && !list, "--vocab-size"},
        {flags.null_eod_id && !null, "--null-tokenizer-eod-id"},
        {null && !flags.special_tokens.empty(), "--tokenizer-special-tokens"},
        {null && !flags.tiktoken_encoding.empty(), "--tiktoken-encoding"},
        {!list && !flags.tiktoken_pattern.empty(), "--tiktoken-pattern"},
        {!list && special != kMegatronSpecialTokens, "--tiktoken-num-special-tokens"},
        {!list && !flags.tiktoken_special_tokens.empty(), "--tiktoken-special-tokens"}}) {
    if (given) idle.emplace_back(flag);
  }
  return idle;
}

}  // namespace

std::vector<std::string> encoding_types() { return {std::begin(kEncoding), std::end(kEncoding)}; }

void check(const Flags& flags) {
  const std::string& type = flags.type;
  if (!type.empty() && !has(kEncoding, type) && !has(kOthers, type)) {
    std::vector<std::string> known = encoding_types();
    known.insert(known.end(), std::begin(kOthers), std::end(kOthers));
    throw UsageError(
        concat("--tokenizer-type ", type, ": expected one of ", cli::join(known, ", ")));
  }
  const std::string& pattern = flags.tiktoken_pattern;
  if (!pattern.empty() && pattern != "v1" && pattern != "v2")
    throw UsageError(concat("--tiktoken-pattern ", pattern, ": expected one of v1, v2"));
  if (is_null(flags)) {
    if (!flags.vocab_size) throw UsageError("--tokenizer-type NullTokenizer needs --vocab-size");
    return;
  }
  const bool vocab = !flags.vocab_file.empty(), merges = !flags.merge_file.empty();
  if ((type.empty() || type == kNull) && !flags.model.empty() && (vocab || merges))
    throw UsageError(
        concat("--tokenizer-model and --", vocab ? "vocab" : "merge",
               "-file name two tokenizers, and no --tokenizer-type says which counts"));
  if (merges && !vocab && flags.model.empty()) throw UsageError("--merge-file needs --vocab-file");
  const Flags counted = counting(flags);
  if (!flags.special_tokens.empty() && counted.merge_file.empty())
    throw UsageError("--tokenizer-special-tokens needs --merge-file: tokenizer.json lists its own");
  if (counted.merge_file.empty() && counted.vocab_file.ends_with("vocab.json"))
    throw UsageError(concat("--vocab-file ", flags.vocab_file, " needs --merge-file"));
  if (!flags.tiktoken_encoding.empty() && shown(counted).empty())
    throw UsageError("--tiktoken-encoding needs --tokenizer-model");
}

Flags counting(Flags flags) {
  const std::string& vocab = flags.vocab_file;
  const bool of_vocab = flags.model.empty() || (!vocab.empty() && has(kOfVocabFile, flags.type));
  const bool one_file = vocab.ends_with(".tiktoken") ||
                        (has(kOfOneFile, flags.type) && !vocab.ends_with("vocab.json"));
  const bool null = is_null(flags);
  if (null || !of_vocab || one_file) flags.merge_file.clear();
  if (null || !of_vocab) flags.vocab_file.clear();
  if (null || of_vocab) flags.model.clear();
  if (flags.type == kNull && !null) flags.type.clear();
  return flags;
}

Opened open(const Flags& flags, const tok::ParallelFor& parallel_for) {
  check(flags);
  Opened out;
  const Flags counted = counting(flags);
  if (std::string note = uncounted(flags, counted); !note.empty())
    out.notes.push_back(std::move(note));
  Opening opening{flags, parallel_for, out};
  if (is_null(flags)) {
    out.identity = kNull;
    out.eod = static_cast<int32_t>(flags.null_eod_id.value_or(*flags.vocab_size - 1));
  } else if (!counted.merge_file.empty()) {
    out.tokenizer = opening.from_pair(existing(flags.vocab_file, "vocab-file"),
                                      existing(flags.merge_file, "merge-file"));
  } else if (!counted.model.empty()) {
    out.tokenizer = opening.from_file(existing(flags.model, "tokenizer-model"));
  } else if (!counted.vocab_file.empty()) {
    out.tokenizer = opening.from_file(existing(flags.vocab_file, "vocab-file"));
  }
  out.idle = idle_flags(flags, opening);
  if (!out.tokenizer) return out;
  if (!flags.tiktoken_encoding.empty() && !opening.is_tiktoken)
    throw UsageError(concat("--tiktoken-encoding: ", out.files, " is no .tiktoken file"));
  if (!opening.is_list || !flags.tiktoken_pattern.empty()) out.identity = out.tokenizer->identity();
  out.eod = out.tokenizer->eod_id();
  if (flags.type == "SPMTokenizer") {
    if (const auto own = out.tokenizer->token_id("<|endoftext|>")) out.eod = own;
  }
  return out;
}

std::string shown(const Flags& flags) {
  const Flags counted = counting(flags);
  if (!counted.model.empty()) return concat("--tokenizer-model ", counted.model);
  if (counted.vocab_file.empty()) return {};
  return concat("--vocab-file ", counted.vocab_file,
                counted.merge_file.empty() ? "" : " --merge-file ", counted.merge_file);
}

std::string null_note(int64_t size) {
  return concat("NullTokenizer: --vocab-size ", size, " is ids 0 to ", size - 1,
                ", as from megatron-core 0.18 on, and the last one ends documents; earlier "
                "releases add an id for that: give ",
                size + 1);
}

tok::ReadFile folder_reader(const std::string& folder) {
  return [folder](std::string_view name) -> std::optional<std::string> {
    const fs::path path = fs::path(folder) / name;
    if (!fs::exists(path)) return std::nullopt;
    return read_whole(path.string());
  };
}

}  // namespace tokenizer
