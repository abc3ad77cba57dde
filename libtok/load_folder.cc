// A folder as on the hub: what tokenizer_config.json and the other files add to tokenizer.json, or
// to vocab.json with merges.txt. The steps and their order are those of
// PreTrainedTokenizerBase._from_pretrained and TokenizersBackend.__init__ of transformers 5, with
// the defaults of the classes that read byte-level BPE.
// Not here: tokenizer.json by itself (load_tokenizer_json.cc), reading files (the caller's).
// Source: transformers 5.23; comments say where 4.46 differs.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "libtok/load_json.h"
#include "libtok/loaders.h"

namespace tok {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kMap = "special_tokens_map.json";
constexpr const char* kEndOfText = "<|endoftext|>";

/// The roles, in the order in which transformers adds their tokens.
constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

/// A class of transformers that reads byte-level BPE: how it splits texts without a tokenizer.json,
/// and its default tokens for roles that the folder does not mention.
struct TokenizerClass {
  const char* name;
  Family family;
  bool nfc;
  bool sets_prefix_space;  ///< add_prefix_space overrides tokenizer.json's ByteLevel
  const char* bos;
  const char* eos;
  const char* unk;
  const char* pad;
};
constexpr TokenizerClass kClasses[] = {
    {"GPT2Tokenizer", Family::gpt2, false, true, kEndOfText, kEndOfText, kEndOfText, nullptr},
    {"CodeGenTokenizer", Family::gpt2, false, true, kEndOfText, kEndOfText, kEndOfText, nullptr},
    // 4.46 has no pad token here.
    {"GPTNeoXTokenizer", Family::gpt2, true, true, kEndOfText, kEndOfText, kEndOfText,
     "<|padding|>"},
    {"Qwen2Tokenizer", Family::qwen2, true, false, nullptr, kEndOfText, kEndOfText, kEndOfText},
};

/// The class of a model_type of config.json, for folders whose tokenizer_config.json has none.
constexpr std::pair<const char*, const char*> kModelClasses[] = {
    {"gpt2", "GPT2Tokenizer"},       {"opt", "GPT2Tokenizer"},
    {"gpt_neo", "GPT2Tokenizer"},    {"gptj", "GPT2Tokenizer"},
    {"codegen", "CodeGenTokenizer"}, {"gpt_neox", "GPTNeoXTokenizer"},
    {"qwen2", "Qwen2Tokenizer"},     {"qwen2_moe", "Qwen2Tokenizer"},
    {"qwen3", "Qwen2Tokenizer"},     {"qwen3_moe", "Qwen2Tokenizer"}};

[[noreturn]] void refuse(const std::string& file, const std::string& what, const std::string& why) {
  throw ParseError(file + ": " + what + ": " + why);
}

std::string shown(const ordered_json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 100 ? text.substr(0, 100) + "..." : text;
}

/// The model's config.json; an empty object if there is none, or if it is a file of another kind.
ordered_json read_model_config(const ReadFile& read) {
  ordered_json tree = ordered_json::parse(read("config.json").value_or("{}"), nullptr, false);
  return tree.is_object() ? tree : ordered_json::object();
}

/// A configuration file; an empty object if there is none.
ordered_json read_object(const ReadFile& read, const char* name) {
  const std::optional<std::string> text = read(name);
  if (!text) return ordered_json::object();
  ordered_json tree = ordered_json::parse(*text, nullptr, false);
  if (!tree.is_object()) throw ParseError(std::string(name) + ": not a JSON object");
  return tree;
}

const ordered_json& member(const ordered_json& object, const char* name) {
  static const ordered_json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

bool flag(const ordered_json& object, const char* name, bool fallback, const std::string& file) {
  const ordered_json& value = member(object, name);
  if (value.is_null()) return fallback;
  if (!value.is_boolean()) refuse(file, name, shown(value) + ": expected true or false");
  return value.get<bool>();
}

/// A token as it is written in files: its content, or an object with flags.
AddedToken read_token(const ordered_json& value, bool special, const std::string& file,
                      const std::string& place) {
  if (value.is_string()) return {.content = value.get<std::string>(), .special = special};
  if (!value.is_object() || !member(value, "content").is_string()) {
    refuse(file, place, shown(value) + ": expected a token");
  }
  AddedToken token{.content = value["content"].get<std::string>()};
  token.special = special || flag(value, "special", false, file);
  token.single_word = flag(value, "single_word", false, file);
  token.lstrip = flag(value, "lstrip", false, file);
  token.rstrip = flag(value, "rstrip", false, file);
  token.normalized = flag(value, "normalized", !token.special, file);
  return token;
}

/// The combined content of a folder's configuration files.
class FolderConfig {
 public:
  /// `pair`: the folder has no tokenizer.json, so a class must define how texts are split.
  FolderConfig(const ReadFile& read, bool pair)
      : config_(read_object(read, kConfig)), model_(read_model_config(read)) {
    // A file that lists its added tokens with flags is complete; the older files count only if
    // there is no such list.
    has_list_ = config_.contains("added_tokens_decoder");
    if (!has_list_) {
      map_ = read_object(read, kMap);
      added_ = read_object(read, "added_tokens.json");
    }
    set_class();
    if (pair && class_name_.empty() && !empty()) class_name_ = kClasses[0].name;
    for (const TokenizerClass& row : kClasses) {
      if (class_name_ == row.name) class_ = &row;
    }
    set_roles();
    for (const auto& [role, token] : roles_) named_.insert(token.content);
  }

  /// The class name without "Fast"; empty if no file gives it.
  const std::string& class_name() const { return class_name_; }
  /// The entry of a known class; null for others.
  const TokenizerClass* known_class() const { return class_; }
  /// Named tokens by role, in the order in which they are added.
  const std::vector<std::pair<std::string, AddedToken>>& roles() const { return roles_; }
  const ordered_json& config() const { return config_; }
  bool is_named(const std::string& content) const { return named_.contains(content); }
  /// Whether tokenizer_config.json lists its added tokens, with their flags.
  bool has_list() const { return has_list_; }
  bool empty() const { return config_.empty() && map_.empty() && added_.empty(); }

  const AddedToken* role(std::string_view name) const {
    for (const auto& [key, token] : roles_) {
      if (key == name) return &token;
    }
    return nullptr;
  }

  /// Added tokens with the ids that the files give, ascending by id.
  std::map<int64_t, AddedToken> listed_tokens() const {
    std::map<int64_t, AddedToken> tokens;
    const ordered_json& list = member(config_, "added_tokens_decoder");
    if (has_list_ && !list.is_object() && !list.is_null()) {
      refuse(kConfig, "added_tokens_decoder", "expected an object");
    }
    for (const auto& [key, value] : list.items()) {
      int64_t id = -1;
      const char* end = key.data() + key.size();
      if (std::from_chars(key.data(), end, id).ptr != end || id < 0) {
        refuse(kConfig, "added_tokens_decoder", "\"" + key + "\" is no id");
      }
      tokens[id] = read_token(value, false, kConfig, "added_tokens_decoder." + key);
    }
    for (const auto& [content, id] : added_.items()) {
      if (!id.is_number_integer()) refuse("added_tokens.json", content, "has no id");
      const bool special = is_named(content);
      tokens[id.get<int64_t>()] = {.content = content, .special = special, .normalized = !special};
    }
    for (auto& [id, token] : tokens) token.special = token.special || is_named(token.content);
    return tokens;
  }

 private:
  void set_class() {
    for (const ordered_json* file : {&config_, &model_}) {
      const ordered_json& name = member(*file, "tokenizer_class");
      if (class_name_.empty() && name.is_string()) class_name_ = name.get<std::string>();
    }
    if (class_name_.ends_with("Fast")) class_name_.resize(class_name_.size() - 4);
    const ordered_json& type = member(model_, "model_type");
    for (const auto& [model, name] : kModelClasses) {
      // Qwen2's own class is used whatever the folder says, as in transformers 5.
      const bool overrules = type == "qwen2";
      if (type == model && (class_name_.empty() || overrules)) class_name_ = name;
    }
  }

  /// A role's value is the special tokens map's, else the configuration's, else the class's
  /// default.
  void set_roles() {
    for (const char* name : kRoles) {
      const bool in_map = map_.contains(name);
      const ordered_json& value = in_map ? map_[name] : member(config_, name);
      if (!value.is_null()) {
        roles_.emplace_back(name, read_token(value, true, in_map ? kMap : kConfig, name));
      } else if (!in_map && !config_.contains(name)) {
        if (const char* fallback = class_default(name)) {
          roles_.emplace_back(name, AddedToken{.content = fallback, .special = true});
        }
      }
    }
    add_own_roles(config_, kConfig);
    for (const auto& [file, place] : {std::pair(&config_, kConfig), std::pair(&map_, kMap)}) {
      const ordered_json& extra = member(*file, "extra_special_tokens");
      const ordered_json& more = extra.empty() ? member(*file, "additional_special_tokens") : extra;
      if (more.is_null()) continue;
      if (!more.is_array() && !more.is_object()) {
        refuse(place, "extra_special_tokens", shown(more) + ": expected a list of tokens");
      }
      for (const auto& [key, value] : more.items()) {
        roles_.emplace_back("extra", read_token(value, true, place, "extra_special_tokens"));
      }
    }
  }

  /// Roles that only some models have, such as image_token. 4.46 ignores them.
  void add_own_roles(const ordered_json& file, const char* place) {
    for (const auto& [key, value] : file.items()) {
      const bool standard =
          std::find(std::begin(kRoles), std::end(kRoles), key) != std::end(kRoles);
      if (standard || !key.ends_with("_token")) continue;
      const bool token = value.is_string() || (value.is_object() && value.contains("content"));
      if (token) roles_.emplace_back(key, read_token(value, true, place, key));
    }
  }

  const char* class_default(std::string_view role) const {
    if (class_ == nullptr) return nullptr;
    return role == "bos_token"   ? class_->bos
           : role == "eos_token" ? class_->eos
           : role == "unk_token" ? class_->unk
           : role == "pad_token" ? class_->pad
                                 : nullptr;
  }

  ordered_json config_, model_, map_ = ordered_json::object(), added_ = ordered_json::object();
  bool has_list_ = false;
  std::string class_name_;
  const TokenizerClass* class_ = nullptr;
  std::vector<std::pair<std::string, AddedToken>> roles_;
  std::unordered_set<std::string> named_;  ///< contents of roles_
};

/// vocab.json and merges.txt, with the splitting of the folder's class.
LoadingTokenizer load_pair(const ReadFile& read, const FolderConfig& config,
                           const DoParts& do_parts) {
  const std::optional<std::string> vocab = read("vocab.json");
  const std::optional<std::string> merges = read("merges.txt");
  if (!vocab || !merges) {
    throw ParseError(
        "neither tokenizer.json nor vocab.json with merges.txt nor tokenizer.model there");
  }
  if (config.known_class() == nullptr) {
    refuse(kConfig, "tokenizer_class",
           "\"" + config.class_name() + "\" without a tokenizer.json is not supported");
  }
  LoadingTokenizer loading = load_gpt2(*vocab, *merges, do_parts);
  const TokenizerClass& known = *config.known_class();
  loading.source.pretokenizer = make_pretokenizer(known.family);
  if (known.nfc) loading.source.normal_forms = {NormalForm::nfc};
  return loading;
}

void add_tokens(const FolderConfig& config, LoadingTokenizer& loading) {
  // If the configuration has no list, tokenizer.json's own is used.
  for (AddedToken& token : loading.added) {
    token.special = token.special || (!config.has_list() && config.is_named(token.content));
  }
  for (auto& [id, token] : config.listed_tokens()) {
    if (token.content.empty()) continue;
    const std::string content = token.content;
    const int32_t given = loading.add(token);
    if (given != id) {
      refuse(config.has_list() ? kConfig : "added_tokens.json", ordered_json(content).dump(),
             "its id is " + std::to_string(id) + ", Hugging Face would give it " +
                 std::to_string(given));
    }
  }
  for (const auto& [role, token] : config.roles()) {
    if (!token.content.empty() && !loading.has_added(token.content)) loading.add(token);
  }
}

/// Special tokens around a text. With tokenizer.json its post_processor defines them, without it
/// the two flags do. In 4.46 two classes follow the flags even with tokenizer.json, and there is no
/// add_eos_token for the pair.
void set_template(const FolderConfig& config, bool has_json, TokenizerSource& source) {
  const bool llama = config.class_name() == "LlamaTokenizer";
  const bool by_flags_in_4 = llama || config.class_name() == "GPTNeoXTokenizer";
  const bool add_bos = flag(config.config(), "add_bos_token", llama && has_json, kConfig);
  const bool add_eos = flag(config.config(), "add_eos_token", false, kConfig);
  const auto ids = [](bool wanted, int32_t id) {
    return wanted && id != kNoId ? std::vector<int32_t>{id} : std::vector<int32_t>{};
  };
  const std::vector<int32_t> before = ids(add_bos, source.bos_id);
  const std::vector<int32_t> after = ids(add_eos, source.eos_id);
  if (!has_json) {
    source.prefix_ids = before;
    source.suffix_ids = after;
    if (!after.empty()) {
      source.template_note =
          "add_eos_token: eos_token ends each text, as in transformers 5 and not in 4.46";
    }
  } else if (by_flags_in_4 && (source.prefix_ids != before || source.suffix_ids != after)) {
    source.template_note =
        "tokens around each text are those of tokenizer.json's post_processor, as in transformers "
        "5; 4.46 goes by add_bos_token and add_eos_token";
  }
}

/// Some classes of transformers 5 use only vocabulary, merges and template of tokenizer.json. They
/// ignore its rules for splitting, and drop added tokens that the configuration's list lacks; 4.46
/// and this reader keep both.
void note_what_5_drops(const FolderConfig& config, LoadingTokenizer& loading) {
  const TokenizerSource& read = loading.source;
  const bool llama = config.class_name() == "LlamaTokenizer";
  // LlamaTokenizer puts the blank before each segment if the folder sets `legacy`.
  const bool legacy = llama && flag(config.config(), "legacy", false, kConfig);
  const bool same = llama ? read.metaspace && read.add_prefix_space && !read.replace_blanks &&
                                read.prefix_first_only != legacy
                          : read.replace_blanks && !read.prepend_blank && !read.metaspace;
  const bool knows = llama || config.class_name() == "GemmaTokenizer";
  if (knows && read.vocab.by_characters && !same) {
    loading.source.version_note = "tokenizer.json is followed, as by transformers 4.46; " +
                                  config.class_name() +
                                  " of transformers 5 drops its way of cutting or normalising";
  }
  if (config.known_class() == nullptr) return;
  const TokenizerClass& known = *config.known_class();
  TokenizerSource& source = loading.source;
  const std::vector<NormalForm> own =
      known.nfc ? std::vector{NormalForm::nfc} : std::vector<NormalForm>{};
  std::string dropped;
  if (source.pretokenizer != make_pretokenizer(known.family) || source.normal_forms != own) {
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
  auto limit = static_cast<int32_t>(source.vocab.tokens.size());
  for (const AddedToken& token : source.added_tokens) limit = std::max(limit, token.id + 1);
  for (auto& [id, token] : config.listed_tokens()) {
    const int32_t here = id_of(token.content);
    if (here == id) continue;
    if (here != kNoId || id != limit) {
      refuse(kConfig, ordered_json(token.content).dump(),
             "its id is " + std::to_string(id) + ", which " + place + " contradicts");
    }
    token.id = limit++;
    source.added_tokens.push_back(token);
  }
  for (const auto& [role, to] :
       {std::pair("bos_token", &source.bos_id), std::pair("eos_token", &source.eos_id),
        std::pair("pad_token", &source.pad_id)}) {
    const AddedToken* token = config.role(role);
    if (token == nullptr) continue;
    *to = id_of(token->content);
    if (*to == kNoId) {
      refuse(kConfig, role, ordered_json(token->content).dump() + ": no token of " + place);
    }
  }
  const auto ids = [](bool wanted, int32_t id) {
    return wanted && id != kNoId ? std::vector<int32_t>{id} : std::vector<int32_t>{};
  };
  source.prefix_ids = ids(
      flag(config.config(), "add_bos_token", !source.prefix_ids.empty(), kConfig), source.bos_id);
  source.suffix_ids = ids(flag(config.config(), "add_eos_token", false, kConfig), source.eos_id);
  source.split_special_tokens = flag(config.config(), "split_special_tokens", false, kConfig);
  if (source.sentencepiece && !flag(config.config(), "add_prefix_space", true, kConfig))
    refuse(kConfig, "add_prefix_space", "false: not supported for tokenizer.model");
  if (source.sentencepiece && config.class_name() == "LlamaTokenizer") {
    source.version_note =
        "tokenizer.model is read as sentencepiece does, and transformers 4.46 after it; "
        "transformers 5 drops a blank at the beginning of a text";
  }
  return source;
}

/// For folders with neither tokenizer.json nor the pair: reads another tokenizer file, if there is
/// one.
std::optional<TokenizerSource> read_other_file(const ReadFile& read, const FolderConfig& config) {
  if (read("vocab.json") && read("merges.txt")) return std::nullopt;
  for (const char* name : {"tokenizer.model", "tekken.json"}) {
    const std::optional<std::string> bytes = read(name);
    if (!bytes) continue;
    try {
      return with_configuration(
          config, name,
          is_sentencepiece(*bytes) ? read_sentencepiece(*bytes) : read_rank_list(*bytes));
    } catch (const ParseError& error) {
      const std::string text = error.what();
      throw ParseError(text.starts_with(kConfig) ? text : std::string(name) + ": " + text);
    }
  }
  return std::nullopt;
}

}  // namespace

TokenizerSource read_folder(const ReadFile& read, const DoParts& do_parts) {
  const std::optional<std::string> whole = read("tokenizer.json");
  const FolderConfig config(read, !whole.has_value());
  if (!whole && config.empty() && config.class_name().empty()) {
    const std::optional<std::string> vocab = read("vocab.json"), merges = read("merges.txt");
    if (vocab && merges) return read_gpt2(*vocab, *merges, {}, do_parts);
  }
  if (!whole) {
    if (std::optional<TokenizerSource> other = read_other_file(read, config)) {
      return *std::move(other);
    }
  }
  LoadingTokenizer loading =
      whole ? load_tokenizer_json(*whole) : load_pair(read, config, do_parts);
  TokenizerSource& source = loading.source;
  if (whole) note_what_5_drops(config, loading);
  const bool wants_space = flag(config.config(), "add_prefix_space", false, kConfig);
  const bool by_byte_level = source.pretokenizer == make_pretokenizer(Family::gpt2);
  if (config.known_class() != nullptr && config.known_class()->sets_prefix_space && by_byte_level) {
    source.add_prefix_space = wants_space;
  } else if (!whole && wants_space) {
    refuse(kConfig, "add_prefix_space", "true: not supported for " + config.class_name());
  }
  source.split_special_tokens = flag(config.config(), "split_special_tokens", false, kConfig);
  add_tokens(config, loading);
  const auto id_of = [&](const char* role) {
    const AddedToken* token = config.role(role);
    return token == nullptr ? kNoId : loading.find(token->content);
  };
  source.bos_id = id_of("bos_token");
  source.eos_id = id_of("eos_token");
  source.pad_id = id_of("pad_token");
  set_template(config, whole.has_value(), source);
  return std::move(loading).finish();
}

NamedTokens read_named_tokens(const ReadFile& read) {
  const FolderConfig config(read, !read("tokenizer.json").has_value());
  const auto content = [&](const char* role) -> std::optional<std::string> {
    const AddedToken* token = config.role(role);
    return token == nullptr ? std::nullopt : std::optional(token->content);
  };
  return {content("bos_token"), content("eos_token"), content("pad_token")};
}

FolderIds read_folder_ids(const ReadFile& read) {
  const NamedTokens named = read_named_tokens(read);
  FolderIds out;
  std::map<std::string, int32_t, std::less<>> small;  // ids of listed tokens; the first counts
  const auto list = [&](const std::string& content, int64_t id) {
    if (id < 0 || id >= kIdLimit) return;
    small.emplace(content, static_cast<int32_t>(id));
    out.limit = std::max(out.limit, id + 1);
  };
  FileVocab vocab;
  const std::optional<std::string> whole = read("tokenizer.json");
  if (whole) {
    JsonFile file = read_json_file(*whole, "tokenizer.json", VocabPlace::model);
    for (const json& entry : file.tree.value("added_tokens", json::array())) {
      if (!entry.is_object() || !entry.contains("content") || !entry.contains("id")) continue;
      const json &content = entry["content"], &id = entry["id"];
      if (!content.is_string() || !id.is_number_integer()) {
        refuse("tokenizer.json", "added_tokens", shown(entry) + ": expected a token with its id");
      }
      list(content.get<std::string>(), id.get<int64_t>());
    }
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
  } else if (const std::optional<std::string> model = read("tokenizer.model")) {
    int64_t id = 0;
    if (is_sentencepiece(*model)) {
      for (const std::string& piece : read_sentencepiece_pieces(*model)) list(piece, id++);
    }
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
  for (const auto& [id, token] : FolderConfig(read, !whole).listed_tokens())
    list(token.content, id);
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
