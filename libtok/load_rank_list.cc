// Lists of tokens by rank, in JSON: Mistral's tekken.json, which also defines how texts are split
// and which tokens are special, and the bare list that Megatron's TikTokenizer reads (Nemotron). An
// id is the rank plus the number of special tokens.
// Source: mistral_common 1.13 (tekken.py), Megatron-LM (CustomTikTokenizer).
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libtok/base64.h"
#include "libtok/load_json.h"
#include "libtok/loaders.h"

namespace tok {
namespace {

using nlohmann::json;

/// More than the nesting of any of these files.
constexpr int kMaxDepth = 64;

/// More special tokens than any of these files has; the limit keeps a small file from taking much
/// memory.
constexpr int64_t kMaxSpecial = 1 << 16;

/// Special tokens that tekken.json files up to version v7 do not list.
constexpr const char* kTekkenSpecial[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

[[noreturn]] void refuse(const std::string& place, const json& value, const std::string& why) {
  std::string shown = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (shown.size() > 100) shown = shown.substr(0, 100) + "...";
  throw ParseError(place + ": " + shown + ": " + why);
}

/// A file: its tokens by rank, and the rest as a tree.
struct RankList {
  std::vector<std::string> tokens;
  json tree;
};

void add_token(const json& entry, std::vector<std::string>& tokens) {
  const std::string place = "token " + std::to_string(tokens.size());
  const json rank = entry.value("rank", json()), text = entry.value("token_bytes", json());
  if (rank != tokens.size()) {
    refuse(place, rank, "expected its number as its rank");
  }
  std::string bytes;
  if (!text.is_string() || !decode_base64(text.get_ref<const std::string&>(), bytes)) {
    refuse(place, text, "token_bytes is not base64");
  }
  if (tokens.size() < 256 && bytes != std::string(1, static_cast<char>(tokens.size()))) {
    refuse(place, text, "expected the byte of its rank: the first 256 tokens are the bytes");
  }
  tokens.push_back(std::move(bytes));
}

/// Moves tokens out of the tree as soon as they are read. In tekken.json a token's object is at
/// depth three, in the bare list at depth two.
RankList read_list(std::string_view text) {
  RankList list;
  const int depth_of_tokens = text.find_first_not_of(" \t\r\n") < text.size() &&
                                      text[text.find_first_not_of(" \t\r\n")] == '['
                                  ? 1
                                  : 2;
  std::string member;
  const auto take = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) throw ParseError("nested deeper than " + std::to_string(kMaxDepth));
    if (event == json::parse_event_t::key && depth == 1) member = value.get<std::string>();
    if (event != json::parse_event_t::object_end || depth != depth_of_tokens) return true;
    if (depth == 2 && member != "vocab") return true;
    add_token(value, list.tokens);
    return false;
  };
  list.tree = json::parse(text, take, false);
  if (list.tree.is_discarded()) throw ParseError("not valid JSON");
  if (list.tokens.empty()) throw ParseError("no list of tokens with rank and token_bytes");
  return list;
}

/// An integer of tekken.json's config.
int64_t config_number(const json& config, const char* name) {
  const json value = config.value(name, json());
  const bool good = value.is_number_integer() && value >= 0 && value < kIdLimit;
  if (!good) refuse(std::string("config.") + name, value, "expected a number of tokens");
  return value.get<int64_t>();
}

/// tekken.json's options.
RankListOptions tekken_options(const json& tree) {
  const json config = tree.value("config", json());
  if (!config.is_object()) refuse("config", config, "expected an object");
  const json pattern = config.value("pattern", json());
  const std::optional<Family> family =
      pattern.is_string()
          ? family_of_pattern(pattern.get_ref<const std::string&>(), PatternEngine::tiktoken)
          : std::nullopt;
  if (!family) {
    refuse("config.pattern", pattern,
           "not one of the supported patterns, which are known by identity");
  }
  RankListOptions options{.family = *family,
                          .num_special_tokens = config_number(config, "default_num_special_tokens"),
                          .vocab_size = config_number(config, "default_vocab_size"),
                          .special_tokens = {std::begin(kTekkenSpecial), std::end(kTekkenSpecial)}};
  const json special = tree.value("special_tokens", json());
  if (special.is_null()) {
    const json version = config.value("version", json());
    const bool old = version == "v1" || version == "v2" || version == "v3" || version == "v7";
    if (!old) refuse("config.version", version, "the file has no special_tokens, and needs them");
    return options;
  }
  if (!special.is_array()) refuse("special_tokens", special, "expected an array");
  options.special_tokens.clear();
  for (const json& token : special) {
    const json content = token.is_object() ? token.value("token_str", json()) : json();
    const json rank = token.is_object() ? token.value("rank", json()) : json();
    if (!content.is_string() || rank != options.special_tokens.size()) {
      refuse("special_tokens", token, "expected token_str, and its number as its rank");
    }
    options.special_tokens.push_back(content.get<std::string>());
  }
  return options;
}

void check(const RankListOptions& options, const RankList& list) {
  const auto count = static_cast<int64_t>(list.tokens.size());
  const int64_t special = options.num_special_tokens;
  const std::string asked = std::to_string(special) + " special tokens in a vocabulary of " +
                            std::to_string(options.vocab_size);
  if (special > kMaxSpecial) throw ParseError(asked + ": more than " + std::to_string(kMaxSpecial));
  if (special >= options.vocab_size || options.vocab_size - special < 256) {
    throw ParseError(asked + ": no room for the 256 bytes");
  }
  if (options.vocab_size - special > count) {
    throw ParseError(asked + ": the file has only " + std::to_string(count) + " others");
  }
  if (static_cast<int64_t>(options.special_tokens.size()) > special) {
    throw ParseError(asked + ": " + std::to_string(options.special_tokens.size()) + " are named");
  }
}

}  // namespace

bool is_rank_list(std::string_view text) noexcept {
  // A tokenizer.json has neither of these before its vocabulary, and both are near the beginning.
  const std::string_view head = text.substr(0, 4096);
  return head.find("\"token_bytes\"") != std::string_view::npos ||
         head.find("\"default_num_special_tokens\"") != std::string_view::npos;
}

TokenizerSource read_rank_list(std::string_view text, const RankListOptions& given) {
  RankList list = read_list(text);
  const RankListOptions options = list.tree.is_object() ? tekken_options(list.tree) : given;
  check(options, list);
  TokenizerSource source;
  source.pretokenizer = make_pretokenizer(options.family);
  source.vocab.rank_rule = RankRule::by_id;
  source.vocab.whole_piece_first = true;
  const auto special = static_cast<int32_t>(options.num_special_tokens);
  list.tokens.resize(static_cast<size_t>(options.vocab_size - special));
  int32_t id = special;
  for (std::string& bytes : list.tokens) source.vocab.tokens.push_back({std::move(bytes), id++});
  for (int32_t i = 0; i < special; ++i) {
    const bool named = static_cast<size_t>(i) < options.special_tokens.size();
    const std::string content = named ? options.special_tokens[static_cast<size_t>(i)]
                                      : "<SPECIAL_" + std::to_string(i) + ">";
    source.added_tokens.push_back({.content = content, .id = i, .special = true});
    if (content == "<s>") source.bos_id = i;
    if (content == "</s>") source.eos_id = i;
    if (content == "<pad>") source.pad_id = i;
  }
  if (source.bos_id != kNoId) source.prefix_ids = {source.bos_id};
  return source;
}

}  // namespace tok
