// SPDX-License-Identifier: MIT
// Room: tools/dataset. Loading the tokenizer of a command line; see load_tokenizer.h.
#include "tools/dataset/load_tokenizer.h"

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "libindexed/read_file.h"
#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "tools/dataset/common_provenance.h"

namespace dataset {
namespace {

namespace fs = std::filesystem;

// Which ids a TikTokenizer's list of tokens has. How it cuts texts is not asked here.
tok::RankListOptions rank_list(const SampleFlags& flags) {
  tok::RankListOptions list{.num_special_tokens = flags.tiktoken_num_special_tokens};
  if (flags.vocab_size > 0) list.vocab_size = flags.vocab_size;
  return list;
}

using Made = std::unique_ptr<tok::Tokenizer>;

// Adds the file's name to the parser's errors.
template <class Read>
Made named(const std::string& path, Read read) {
  try {
    return std::make_unique<tok::Tokenizer>(read());
  } catch (const tok::ParseError& error) {
    throw tok::ParseError(cli::concat(path, ": ", error.what()));
  }
}

Made from_folder(const std::string& folder) {
  const tok::ReadFile read = [&](std::string_view name) -> std::optional<std::string> {
    const fs::path path = fs::path(folder) / name;
    if (!fs::is_regular_file(path)) return std::nullopt;
    return indexed::read_file(path.string());
  };
  return named(folder, [&] { return tok::read_folder(read); });
}

// `is_list` becomes true for a list of tokens, which does not say its sizes.
Made from_file(const SampleFlags& flags, const std::string& path,
               const std::string& tiktoken_encoding, bool& is_list) {
  const std::string bytes = indexed::read_file(path);
  const bool sentencepiece = tok::is_sentencepiece(bytes);
  if (sentencepiece || path.ends_with(".json")) {
    if (!tiktoken_encoding.empty())
      throw cli::UsageError(cli::concat("--tiktoken-encoding: ", path, " is no .tiktoken file"));
    const size_t begin = bytes.find_first_not_of(" \t\r\n");
    is_list = !sentencepiece && begin != std::string::npos && bytes[begin] == '[';
    return named(path, [&] {
      if (sentencepiece && flags.tokenizer_type == "SentencePieceTokenizer")
        return tok::read_sentencepiece(bytes, {.megatron_tokens = true});
      return tok::read_tokenizer_file(bytes, rank_list(flags));
    });
  }
  if (bytes.starts_with("\x1f\x8b"))
    throw tok::ParseError(
        cli::concat(path, ": packed by gzip; unpack it, the file itself is read"));
  const std::string name = fs::path(path).filename().string();
  const std::string encoding =
      tiktoken_encoding.empty() ? name.substr(0, name.find('.')) : tiktoken_encoding;
  return named(path, [&] { return tok::read_tiktoken(bytes, encoding); });
}

std::string idle_flags(const SampleFlags& flags, bool is_list) {
  const std::pair<bool, const char*> all[] = {
      {!is_list && flags.vocab_size != 0, "--vocab-size"},
      {flags.null_tokenizer_eod_id.has_value(), "--null-tokenizer-eod-id"},
      {flags.null_tokenizer_pad_id.has_value(), "--null-tokenizer-pad-id"},
      {!flags.tiktoken_pattern.empty(), "--tiktoken-pattern"},
      {!is_list && flags.tiktoken_num_special_tokens != SampleFlags().tiktoken_num_special_tokens,
       "--tiktoken-num-special-tokens"},
      {flags.use_fast, "--tokenizer-hf-use-fast"},
      {flags.no_use_fast, "--tokenizer-hf-no-use-fast"},
      {flags.trust_remote_code, "--trust-remote-code"},
      {flags.include_special_tokens, "--tokenizer-hf-include-special-tokens"},
      {flags.no_special_tokens, "--tokenizer-hf-no-include-special-tokens"},
      {flags.sentencepiece_legacy, "--tokenizer-sentencepiece-legacy"},
      {flags.keep_whitespace, "--no-tokenizer-sentencepiece-ignore-extra-whitespaces"},
      {!flags.use_gigatoken.empty(), "--use-gigatoken"}};
  std::string idle;
  for (const auto& [given, name] : all) {
    if (given) idle += cli::concat(idle.empty() ? "" : ", ", name);
  }
  return idle;
}

Made find_tokenizer(const SampleFlags& flags, const std::string& tiktoken_encoding, bool& is_list) {
  if (flags.tokenizer_type == "NullTokenizer") return nullptr;
  if (!flags.tokenizer_model.empty() && !(flags.vocab_file + flags.merge_file).empty()) {
    throw cli::UsageError(cli::concat("--tokenizer-model and --",
                                      flags.vocab_file.empty() ? "merge-file" : "vocab-file",
                                      " name two tokenizers"));
  }
  if (!flags.merge_file.empty()) {
    if (flags.vocab_file.empty()) throw cli::UsageError("--merge-file needs --vocab-file");
    if (!tiktoken_encoding.empty())
      throw cli::UsageError("--tiktoken-encoding: --vocab-file and --merge-file are no .tiktoken");
    const std::string vocab = indexed::read_file(flags.vocab_file);
    const std::string merges = indexed::read_file(flags.merge_file);
    try {
      return std::make_unique<tok::Tokenizer>(tok::read_gpt2(vocab, merges));
    } catch (const tok::ParseError& error) {
      throw tok::ParseError(tok::with_paths(error.what(), flags.vocab_file, flags.merge_file));
    }
  }
  const std::string& path =
      flags.tokenizer_model.empty() ? flags.vocab_file : flags.tokenizer_model;
  if (path.empty()) {
    if (!tiktoken_encoding.empty())
      throw cli::UsageError("--tiktoken-encoding needs --tokenizer-model");
    return nullptr;
  }
  if (fs::path(path).filename() == "vocab.json")
    throw cli::UsageError(cli::concat("--vocab-file ", path, " needs --merge-file"));
  if (fs::is_directory(path)) return from_folder(path);
  return from_file(flags, path, tiktoken_encoding, is_list);
}

bool has_token(const tok::Tokenizer& tokenizer, int32_t id) {
  if (id < 0) return false;
  if (!tokenizer.token_bytes(id).empty()) return true;
  // What these give may be empty.
  return id == tokenizer.source().decode_rules.unk_id || tokenizer.is_special(id);
}

}  // namespace

ShownTokenizer load_tokenizer(const SampleFlags& flags, const std::string& tiktoken_encoding) {
  ShownTokenizer shown;
  bool is_list = false;
  shown.tokenizer = find_tokenizer(flags, tiktoken_encoding, is_list);
  if (shown.tokenizer != nullptr) shown.idle = idle_flags(flags, is_list);
  if (shown.tokenizer != nullptr && !is_list) shown.identity = shown.tokenizer->identity();
  return shown;
}

std::string other_tokenizer_note(const ShownTokenizer& shown, const indexed::IndexedDataset& data) {
  if (shown.identity.empty()) return {};
  std::optional<indexed::Manifest> manifest;
  try {
    manifest = read_own_manifest(data);
  } catch (const std::exception&) {  // verify reports it.
  }
  if (!manifest) return {};
  const indexed::Provenance& from = manifest->provenance;
  // A NullTokenizer's ids are of any vocabulary.
  if (from.tokenizer_hash.empty() || from.tokenizer_hash == "NullTokenizer" ||
      from.tokenizer_hash == shown.identity)
    return {};
  return cli::concat(data.prefix(), ": its tokenizer (", from.tokenizer,
                     ") differs from the one given: the text may not be what its tokens mean");
}

std::string shown_text(const tok::Tokenizer* tokenizer, std::span<const int64_t> ids) {
  std::string out;
  if (tokenizer == nullptr) {
    for (const int64_t id : ids) out += cli::concat(out.empty() ? "" : " ", id);
    return out;
  }
  std::vector<int32_t> known;
  const auto decode_known = [&] {
    out += tokenizer->decode(known);
    known.clear();
  };
  for (const int64_t id : ids) {
    const auto narrow = static_cast<int32_t>(id);
    if (narrow == id && has_token(*tokenizer, narrow)) {
      known.push_back(narrow);
      continue;
    }
    decode_known();
    out += cli::concat("<id ", id, ">");
  }
  decode_known();
  return out;
}

}  // namespace dataset
