// A folder as on the hub: what tokenizer_config.json and the other files add to tokenizer.json, or
// to vocab.json with merges.txt. The steps and their order are those of
// PreTrainedTokenizerBase._from_pretrained and TokenizersBackend.__init__ of transformers 5, with
// the defaults of the classes that read byte-level BPE.
// Not here: tokenizer.json by itself (load_tokenizer_json.cc), reading files (the caller's).
// Source: transformers 5.23; comments say where 4.46 differs.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "libtok/folder_config.h"
#include "libtok/load_json.h"
#include "libtok/load_sentencepiece.h"
#include "libtok/loaders.h"

namespace tok {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Notes that nothing says how a pair is to be cut.
void note_no_class(const FolderConfig& config, TokenizerSource& source) {
  if (!config.has_no_class()) return;
  const std::string type = config.model_type();
  source.version_note =
      (type.empty() ? "no file names the class of vocab.json and merges.txt"
                    : "model_type " + ordered_json(type).dump() +
                          " of config.json says no class for vocab.json and merges.txt") +
      std::string(": they are read as GPT-2's");
}

/// vocab.json and merges.txt, with the splitting of the folder's class.
LoadingTokenizer load_pair(const FolderFile& file, const FolderConfig& config,
                           const ParallelFor& parallel_for) {
  if (file.kind != FolderKind::pair) {
    throw ParseError(
        "neither tokenizer.json nor vocab.json with merges.txt nor tokenizer.model nor tekken.json "
        "there");
  }
  if (config.known_class() == nullptr && config.class_of_model_type()) {
    refuse_config("config.json", "model_type",
                  "\"" + config.model_type() + "\": its " + config.class_name() +
                      " without a tokenizer.json is not supported");
  }
  if (config.known_class() == nullptr) {
    refuse_config(kConfigFile, "tokenizer_class",
                  "\"" + config.class_name() + "\" without a tokenizer.json is not supported");
  }
  LoadingTokenizer loading = load_gpt2(file.text, file.merges, parallel_for);
  const TokenizerClass& known = *config.known_class();
  loading.source.pretokenizer = make_pretokenizer(known.family);
  if (known.nfc) loading.source.normal_forms = {NormalForm::nfc};
  note_no_class(config, loading.source);
  return loading;
}

std::string version_note(const std::string& what_5_does) {
  return "tokenizer.model is read as by transformers 4.46; transformers 5 " + what_5_does;
}

/// tokenizer.model as the folder's class reads it.
LoadingTokenizer load_model(const FolderFile& file, const FolderConfig& config) {
  if (config.class_name().empty()) {
    refuse_config(kModelFile, "no file names its tokenizer_class",
                  "name " + std::string(kModelFile) + " itself for sentencepiece's own ids");
  }
  if (config.model_class() == nullptr) {
    refuse_config(kConfigFile, "tokenizer_class",
                  "\"" + config.class_name() +
                      "\" with a tokenizer.model is not supported: transformers' " +
                      "save_pretrained writes its tokenizer.json");
  }
  try {
    const SentencePieceModel model = read_sentencepiece_model(file.text);
    check_sentencepiece_bpe(model);
    const ordered_json& own = config.config();
    LoadingTokenizer loading = convert_sentencepiece(
        model, {.kind = config.model_class()->kind,
                .legacy = flag_of(own, "legacy", true, kConfigFile),
                .add_prefix_space = flag_of(own, "add_prefix_space", true, kConfigFile)});
    if (config.model_class()->kind == ModelConversion::llama && !scores_follow_ids(model)) {
      loading.source.version_note = version_note("merges in the order of ids, not of scores");
    }
    return loading;
  } catch (const ParseError& error) {
    const std::string text = error.what();
    throw ParseError(text.starts_with(kConfigFile) ? text : std::string(kModelFile) + ": " + text);
  }
}

/// Where transformers 5 gives other ids for a tokenizer.model than 4.46, which is followed.
void note_model_versions(const FolderConfig& config, TokenizerSource& source) {
  const auto note = [&](const char* why) { source.version_note = version_note(why); };
  if (config.model_class()->kind != ModelConversion::llama) return;
  const ordered_json& extra = member_of(config.map(), "additional_special_tokens");
  if (extra.is_array() && !extra.empty()) note("drops additional_special_tokens of the map");
  if (source.prepend_blank) note("drops a blank at the beginning of a text");
  if (config.class_by_model_type()) note("puts no blank before a text whose class is not named");
}

/// Notes listed tokens whose flags transformers 5 takes otherwise, for a token that no
/// tokenizer.json has: Qwen2Tokenizer gives named ones none, and with split_special_tokens one that
/// only extra_special_tokens names stays a token in texts if the list says that it is not special.
/// 4.46 is followed.
void note_flags(const FolderConfig& config, LoadingTokenizer& loading) {
  if (!config.has_list() || !loading.source.version_note.empty()) return;
  const bool drops = config.class_name() == "Qwen2Tokenizer";
  const auto has_role = [&](const std::string& content) {
    return std::ranges::any_of(config.roles(), [&](const auto& role) {
      return role.first != "extra_special_tokens" && role.second.content == content;
    });
  };
  const ordered_json& list = config.config().at("added_tokens_decoder");
  for (const auto& [id, token] : config.listed_tokens()) {
    const auto written = list.find(std::to_string(id));
    if (written == list.end() || !config.is_named(token.content) ||
        loading.has_added(token.content))
      continue;
    const bool any = token.lstrip || token.rstrip || token.single_word || token.normalized;
    const bool split =
        loading.source.split_special_tokens && !flag_of(*written, "special", false, kConfigFile);
    if (!(drops && any) && !(split && !has_role(token.content))) continue;
    loading.source.version_note = "the flags of " + ordered_json(token.content).dump() +
                                  " are taken as by transformers 4.46; transformers 5 " +
                                  (drops && any ? "drops them" : "does not make it special");
    return;
  }
}

void add_tokens(const FolderConfig& config, LoadingTokenizer& loading) {
  // If the configuration has no list, tokenizer.json's own is used.
  for (AddedToken& token : loading.added) {
    token.special = token.special || (!config.has_list() && config.is_named(token.content));
  }
  // The classes of transformers that make their own tokenizer add all tokens at once.
  if (config.known_class() == nullptr) loading.begin_list();
  for (auto& [id, token] : config.listed_tokens()) {
    if (token.content.empty()) continue;
    const std::string content = token.content;
    const int32_t given = loading.add(token);
    if (given != id) {
      refuse_config(config.has_list() ? kConfigFile : "added_tokens.json",
                    ordered_json(content).dump(),
                    "its id is " + std::to_string(id) + ", Hugging Face would give it " +
                        std::to_string(given));
    }
  }
  // Of two roles of a token that no list has, the last one's flags count.
  std::unordered_set<std::string> fresh;
  for (const auto& [role, token] : config.roles()) {
    if (token.content.empty()) continue;
    if (!loading.has_added(token.content)) fresh.insert(token.content);
    if (fresh.contains(token.content)) loading.add(token);
  }
}

/// Special tokens around a text. With tokenizer.json its post_processor defines them, without it
/// the two flags do. In 4.46 two classes follow the flags even with tokenizer.json, and there is no
/// add_eos_token for the pair.
void set_template(const FolderConfig& config, TokenizerSource& source) {
  const bool has_json = config.kind() == FolderKind::json;
  const bool has_model = config.kind() == FolderKind::model;
  const bool llama = config.class_name() == "LlamaTokenizer";
  const bool bos_in_4 = has_model && config.model_class()->kind != ModelConversion::backend;
  const bool by_flags_in_4 = llama || config.class_name() == "GPTNeoXTokenizer";
  const bool add_bos =
      flag_of(config.config(), "add_bos_token", (llama && has_json) || bos_in_4, kConfigFile);
  const bool add_eos = flag_of(config.config(), "add_eos_token", false, kConfigFile);
  const auto ids = [](bool wanted, int32_t id) {
    return wanted && id != kNoId ? std::vector<int32_t>{id} : std::vector<int32_t>{};
  };
  const std::vector<int32_t> before = ids(add_bos, source.bos_id);
  const std::vector<int32_t> after = ids(add_eos, source.eos_id);
  if (!has_json) {
    source.prefix_ids = before;
    source.suffix_ids = after;
    if (bos_in_4 && !config.config().contains("add_bos_token")) {
      source.template_note =
          "bos_token begins each text, as in transformers 4.46; transformers 5 wants add_bos_token "
          "for it";
    } else if (!after.empty() && !has_model) {
      source.template_note =
          "add_eos_token: eos_token ends each text, as in transformers 5 and not in 4.46";
    }
  } else if (by_flags_in_4 && (source.prefix_ids != before || source.suffix_ids != after)) {
    source.template_note =
        "tokens around each text are those of tokenizer.json's post_processor, as in transformers "
        "5; 4.46 goes by add_bos_token and add_eos_token";
  }
}

struct OwnCut {
  PreTokenizer pretokenizer;
  bool nfc;
};

/// How a class of transformers 5 that makes its own byte-level tokenizer cuts; none for others.
std::optional<OwnCut> own_cut(const FolderConfig& config) {
  if (const TokenizerClass* known = config.known_class()) {
    return OwnCut{make_pretokenizer(known->family), known->nfc};
  }
  if (config.class_name() == "CohereTokenizer") {
    return OwnCut{make_pretokenizer(Family::digits, Family::gpt2), true};
  }
  if (config.class_name() == "Qwen3_5Tokenizer") {
    return OwnCut{make_pretokenizer(Family::qwen35), true};
  }
  return std::nullopt;
}

/// Some classes of transformers 5 use only vocabulary, merges and template of tokenizer.json. They
/// ignore its rules for splitting, and drop added tokens that the configuration's list lacks; 4.46
/// and this reader keep both.
void note_what_5_drops(const FolderConfig& config, LoadingTokenizer& loading) {
  const TokenizerSource& read = loading.source;
  const bool llama = config.class_name() == "LlamaTokenizer";
  // LlamaTokenizer puts the blank before each segment if the folder sets `legacy`.
  const bool legacy = llama && flag_of(config.config(), "legacy", false, kConfigFile);
  const bool same = llama ? read.metaspace && read.add_prefix_space && !read.replace_blanks &&
                                read.prefix_first_only != legacy
                          : read.replace_blanks && !read.prepend_blank && !read.metaspace;
  const bool knows = llama || config.class_name() == "GemmaTokenizer";
  if (knows && read.vocab.by_characters && !same) {
    loading.source.version_note = "tokenizer.json is followed, as by transformers 4.46; " +
                                  config.class_name() +
                                  " of transformers 5 drops its way of cutting or normalising";
  }
  const std::optional<OwnCut> own = own_cut(config);
  if (!own) return;
  TokenizerSource& source = loading.source;
  std::string dropped;
  const size_t forms = own->nfc ? 1 : 0;
  if (source.pretokenizer != own->pretokenizer ||
      source.normal_forms != std::vector(forms, NormalForm::nfc)) {
    dropped = "its way of cutting or normalising";
  }
  std::unordered_set<std::string> listed;
  for (const auto& [id, token] : config.listed_tokens()) listed.insert(token.content);
  for (const AddedToken& token : loading.added) {
    if (!config.has_list() || config.is_named(token.content) || listed.contains(token.content))
      continue;
    dropped += (dropped.empty() ? "" : " and ") + std::string("added tokens such as ") +
               ordered_json(token.content).dump() + ", which added_tokens_decoder lacks";
    break;
  }
  if (dropped.empty()) return;
  source.version_note = "tokenizer.json is followed, as by transformers 4.46; " +
                        config.class_name() + " of transformers 5 drops " + dropped;
}

/// Refuses flags of a listed token that the file has as another kind of token.
void check_same_flags(const AddedToken& listed, const TokenizerSource& source, const char* place) {
  const auto same = [&](const AddedToken& token) { return token.content == listed.content; };
  const auto found = std::find_if(source.added_tokens.begin(), source.added_tokens.end(), same);
  const bool plain = !listed.lstrip && !listed.rstrip && !listed.single_word;
  if (found != source.added_tokens.end() && found->special == listed.special && plain) return;
  refuse_config(kConfigFile, ordered_json(listed.content).dump(),
                std::string("its flags are not those of ") + place + ", which is not supported");
}

/// Applies the folder's configuration (added tokens, roles, template) to a complete source.
/// `place`: the file that the source was read from.
TokenizerSource with_configuration(const FolderConfig& config, const char* place,
                                   TokenizerSource source) {
  const auto id_of = [&](const std::string& content) {
    for (const VocabSource::Token& token : source.vocab.tokens) {
      if (token.bytes == content) return token.id;
    }
    for (const AddedToken& token : source.added_tokens) {
      if (token.content == content) return token.id;
    }
    return kNoId;
  };
  int32_t limit = 0;  // the next free id: tekken.json's special tokens come before the others
  for (const VocabSource::Token& token : source.vocab.tokens) limit = std::max(limit, token.id + 1);
  for (const AddedToken& token : source.added_tokens) limit = std::max(limit, token.id + 1);
  for (auto& [id, token] : config.listed_tokens()) {
    const int32_t here = id_of(token.content);
    if (here == id) {
      check_same_flags(token, source, place);
      continue;
    }
    if (here != kNoId || id != limit) {
      refuse_config(kConfigFile, ordered_json(token.content).dump(),
                    "its id is " + std::to_string(id) + ", which " + place + " contradicts");
    }
    token.id = limit++;
    source.added_tokens.push_back(token);
  }
  for (const auto& [role, to] :
       {std::pair("bos_token", &source.bos_id), std::pair("eos_token", &source.eos_id),
        std::pair("pad_token", &source.pad_id)}) {
    const AddedToken* token = config.role(role);
    if (token != nullptr) *to = id_of(token->content);
  }
  for (const auto& [role, token] : config.roles()) {
    if (token.content.empty() || id_of(token.content) != kNoId) continue;
    refuse_config(kConfigFile, role, ordered_json(token.content).dump() + ": no token of " + place);
  }
  const auto ids = [](bool wanted, int32_t id) {
    return wanted && id != kNoId ? std::vector<int32_t>{id} : std::vector<int32_t>{};
  };
  source.prefix_ids =
      ids(flag_of(config.config(), "add_bos_token", !source.prefix_ids.empty(), kConfigFile),
          source.bos_id);
  source.suffix_ids =
      ids(flag_of(config.config(), "add_eos_token", false, kConfigFile), source.eos_id);
  source.split_special_tokens =
      flag_of(config.config(), "split_special_tokens", false, kConfigFile);
  return source;
}

/// For folders with none of the other tokenizer files: reads tekken.json, or a list of its kind, if
/// there is one.
std::optional<TokenizerSource> read_other_file(const ReadFile& read, const FolderConfig& config) {
  for (const char* name : {kModelFile, "tekken.json"}) {
    const std::optional<std::string> bytes = read(name);
    if (!bytes) continue;
    try {
      return with_configuration(config, name, read_rank_list(*bytes));
    } catch (const ParseError& error) {
      const std::string text = error.what();
      throw ParseError(text.starts_with(kConfigFile) ? text : std::string(name) + ": " + text);
    }
  }
  return std::nullopt;
}

}  // namespace

TokenizerSource read_folder(const ReadFile& read, const ParallelFor& parallel_for) {
  const FolderFile file = read_folder_file(read);
  const FolderKind kind = file.kind;
  FolderConfig config(read, file);
  if (kind == FolderKind::pair && config.empty() && config.class_name().empty()) {
    TokenizerSource source = read_gpt2(file.text, file.merges, {}, parallel_for);
    note_no_class(config, source);
    return source;
  }
  if (kind == FolderKind::other) {
    if (std::optional<TokenizerSource> other = read_other_file(read, config)) {
      return *std::move(other);
    }
  }
  LoadingTokenizer loading = kind == FolderKind::json    ? load_tokenizer_json(file.text)
                             : kind == FolderKind::model ? load_model(file, config)
                                                         : load_pair(file, config, parallel_for);
  TokenizerSource& source = loading.source;
  if (kind == FolderKind::json) {
    config.take_padding(loading.file.tree);
    note_what_5_drops(config, loading);
  }
  const bool wants_space = flag_of(config.config(), "add_prefix_space", false, kConfigFile);
  const bool by_byte_level = source.pretokenizer == make_pretokenizer(Family::gpt2);
  const bool known = config.known_class() != nullptr;
  if (known && config.known_class()->sets_prefix_space && by_byte_level) {
    source.add_prefix_space = wants_space;
  } else if (wants_space &&
             (kind == FolderKind::pair || (known && !config.known_class()->sets_prefix_space))) {
    refuse_config(kConfigFile, "add_prefix_space",
                  "true: not supported for " + config.class_name());
  }
  source.split_special_tokens =
      flag_of(config.config(), "split_special_tokens", false, kConfigFile);
  note_flags(config, loading);
  add_tokens(config, loading);
  const auto id_of = [&](const char* role) {
    const AddedToken* token = config.role(role);
    return token == nullptr ? kNoId : loading.find(token->content);
  };
  source.bos_id = id_of("bos_token");
  source.eos_id = id_of("eos_token");
  source.pad_id = id_of("pad_token");
  set_template(config, source);
  if (kind == FolderKind::model) note_model_versions(config, source);
  return std::move(loading).finish();
}

static NamedTokens named_tokens_of(const FolderConfig& config) {
  const auto content = [&](const char* role) -> std::optional<std::string> {
    const AddedToken* token = config.role(role);
    return token == nullptr ? std::nullopt : std::optional(token->content);
  };
  return {content("bos_token"), content("eos_token"), content("pad_token")};
}

NamedTokens read_named_tokens(const ReadFile& read) {
  const FolderFile file = read_folder_file(read);
  FolderConfig config(read, file);
  if (file.kind == FolderKind::json && config.role("pad_token") == nullptr) {
    config.take_padding(read_json_file(file.text, "tokenizer.json", VocabPlace::model).tree);
  }
  return named_tokens_of(config);
}

FolderIds read_folder_ids(const ReadFile& read) {
  const FolderFile folder_file = read_folder_file(read);
  FolderConfig config(read, folder_file);
  FolderIds out;
  std::map<std::string, int32_t, std::less<>> small;  // ids of listed tokens; the first counts
  const auto list = [&](const std::string& content, int64_t id) {
    if (id < 0 || id >= kIdLimit) return;
    small.emplace(content, static_cast<int32_t>(id));
    out.limit = std::max(out.limit, id + 1);
  };
  FileVocab vocab;
  if (folder_file.kind == FolderKind::json) {
    JsonFile file = read_json_file(folder_file.text, "tokenizer.json", VocabPlace::model);
    for (const json& entry : file.tree.value("added_tokens", json::array())) {
      if (!entry.is_object() || !entry.contains("content") || !entry.contains("id")) continue;
      const json &content = entry["content"], &id = entry["id"];
      if (!content.is_string() || !id.is_number_integer()) {
        refuse_config("tokenizer.json", "added_tokens",
                      shown_value(entry) + ": expected a token with its id");
      }
      list(content.get<std::string>(), id.get<int64_t>());
    }
    config.take_padding(file.tree);
    const json& model = file.tree["model"];
    if (model.is_object() && model.contains("vocab") && model["vocab"].is_array()) {
      int64_t id = 0;  // a unigram model: pairs of token and score, whose positions are the ids
      for (const json& pair : model["vocab"]) {
        const bool named_pair = pair.is_array() && !pair.empty() && pair[0].is_string();
        list(named_pair ? pair[0].get<std::string>() : "", id++);
      }
    }
    vocab = std::move(file.vocab);
  } else if (const std::optional<std::string> text = read("vocab.json")) {
    vocab = read_json_file(*text, "vocab.json", VocabPlace::root).vocab;
  } else if (folder_file.kind == FolderKind::model) {
    int64_t id = 0;
    for (const std::string& piece : read_sentencepiece_pieces(folder_file.text)) list(piece, id++);
  } else if (const std::optional<std::string> ranks = read("tekken.json")) {
    const TokenizerSource source = read_rank_list(*ranks);
    for (const AddedToken& token : source.added_tokens) list(token.content, token.id);
    for (const VocabSource::Token& token : source.vocab.tokens) {
      out.limit = std::max(out.limit, int64_t{token.id} + 1);
    }
  }
  for (const VocabSource::Token& token : vocab.tokens) {
    out.limit = std::max(out.limit, int64_t{token.id} + 1);
  }
  for (const auto& [id, token] : config.listed_tokens()) list(token.content, id);
  const NamedTokens named = named_tokens_of(config);
  const auto id_of = [&](const std::optional<std::string>& content) {
    if (!content) return kNoId;
    const auto found = small.find(*content);
    return found != small.end() ? found->second : vocab.find(*content);
  };
  out.bos = id_of(named.bos);
  out.eos = out.eod = id_of(named.eos);
  out.pad = id_of(named.pad);
  out.names_eos = named.eos.has_value();
  out.eod_name = named.eos.value_or("");
  for (std::string_view name : kEodNames) {
    if (out.eod != kNoId) break;
    out.eod = id_of(std::string(name));
    out.eod_name = name;
  }
  return out;
}

}  // namespace tok
