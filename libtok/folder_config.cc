// The steps and their order are those of PreTrainedTokenizerBase._from_pretrained and
// AutoTokenizer of transformers 5, with the defaults of the classes that this library reads.
// SPDX-License-Identifier: MIT
#include "libtok/folder_config.h"

#include <algorithm>
#include <charconv>

namespace tok {

using nlohmann::json;
using nlohmann::ordered_json;

void refuse_config(const std::string& file, const std::string& what, const std::string& why) {
  throw ParseError(file + ": " + what + ": " + why);
}

std::string shown_value(const ordered_json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 100 ? text.substr(0, 100) + "..." : text;
}

const ordered_json& member_of(const ordered_json& object, const char* name) {
  static const ordered_json kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

bool flag_of(const ordered_json& object, const char* name, bool fallback, const std::string& file) {
  const ordered_json& value = member_of(object, name);
  if (value.is_null()) return fallback;
  if (!value.is_boolean())
    refuse_config(file, name, shown_value(value) + ": expected true or false");
  return value.get<bool>();
}

namespace {

constexpr const char* kMap = "special_tokens_map.json";
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kGemma = "GemmaTokenizer";

/// The roles, in the order in which transformers adds their tokens.
constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

constexpr TokenizerClass kClasses[] = {
    {"GPT2Tokenizer", Family::gpt2, false, true, kEndOfText, kEndOfText, kEndOfText, nullptr},
    {"CodeGenTokenizer", Family::gpt2, false, true, kEndOfText, kEndOfText, kEndOfText, nullptr},
    // 4.46 has no pad token here.
    {"GPTNeoXTokenizer", Family::gpt2, true, true, kEndOfText, kEndOfText, kEndOfText,
     "<|padding|>"},
    {"Qwen2Tokenizer", Family::qwen2, true, false, nullptr, kEndOfText, kEndOfText, kEndOfText},
};

/// The classes of model_types of config.json, for folders whose tokenizer_config.json names none:
/// those of transformers 5 that read a pair, or that make a tokenizer of their own from a
/// tokenizer.json.
constexpr std::pair<const char*, std::string_view> kModelClasses[] = {
    {"GPT2Tokenizer",
     "gpt2 opt gpt_neo gptj phi starcoder2 blip-2 dbrx emu3 instructblip instructblipvideo jais2"},
    {"CodeGenTokenizer", "codegen"},
    {"GPTNeoXTokenizer", "gpt_neox falcon_mamba mamba mamba2 mpt olmo olmoe rwkv xlstm"},
    {"Qwen2Tokenizer",
     "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_5_omni qwen2_audio qwen3 qwen3_moe qwen3_next "
     "qwen3_vl qwen3_vl_moe qwen3_asr qwen3_omni_moe audioflamingo3 colqwen2 internvl ovis2 "
     "lighton_ocr"},
    {"Qwen3_5Tokenizer", "qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text"},
    {"CohereTokenizer", "cohere cohere2 aya_vision"},
    {kGemma, "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma t5gemma"},
    {"RobertaTokenizer",
     "roberta roberta-prelayernorm bart longformer bridgetower clap data2vec-text ibert lilt mega "
     "mra"},
    {"BartTokenizer", "florence2"},
    {"BioGptTokenizer", "biogpt"},
    {"BlenderbotTokenizer", "blenderbot"},
    {"BlenderbotSmallTokenizer", "blenderbot-small"},
    {"CLIPTokenizer",
     "clip clipseg aimv2 groupvit omdet-turbo oneformer owlv2 owlvit sam3 sam3_video xclip"},
    {"ClvpTokenizer", "clvp"},
    {"CTRLTokenizer", "ctrl"},
    {"DebertaTokenizer", "deberta"},
    {"FlaubertTokenizer", "flaubert"},
    {"HerbertTokenizer", "herbert"},
    {"LayoutLMv3Tokenizer", "layoutlmv3"},
    {"LEDTokenizer", "led"},
    {"LukeTokenizer", "luke"},
    {"MarkupLMTokenizer", "markuplm"},
    {"MvpTokenizer", "mvp"},
    {"NougatTokenizer", "nougat pp_formulanet"},
    {"OpenAIGPTTokenizer", "openai-gpt"},
    {"WhisperTokenizer", "whisper"},
    {"XLMTokenizer", "xlm"}};

/// Whether `words`, which blanks part, has `word`.
bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::string_view first = words.substr(0, words.find(' '));
    if (first == word) return true;
    words.remove_prefix(std::min(words.size(), first.size() + 1));
  }
  return false;
}

constexpr ModelClass kModelClassesOfPieces[] = {
    {"LlamaTokenizer", ModelConversion::llama, "<s>", "</s>", "<unk>", nullptr, nullptr},
    // 4.46 has no mask token here.
    {"GemmaTokenizer", ModelConversion::gemma, "<bos>", "<eos>", "<unk>", "<pad>", "<mask>"},
    // Its defaults are the model's own.
    {"PreTrainedTokenizer", ModelConversion::backend, nullptr, nullptr, nullptr, nullptr, nullptr},
    {"TokenizersBackend", ModelConversion::backend, nullptr, nullptr, nullptr, nullptr, nullptr}};

/// The class of a model_type, for folders with a SentencePiece model that name no class: 4.46's.
constexpr std::pair<const char*, const char*> kModelTypesOfPieces[] = {
    {"llama", "LlamaTokenizer"},    {"mistral", "LlamaTokenizer"}, {"mixtral", "LlamaTokenizer"},
    {"gemma", "GemmaTokenizer"},    {"gemma2", "GemmaTokenizer"},  {"phi3", "LlamaTokenizer"},
    {"persimmon", "LlamaTokenizer"}};

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

/// A token as it is written in files: its content, or an object with flags.
AddedToken read_token(const ordered_json& value, bool special, const std::string& file,
                      const std::string& place) {
  if (value.is_string()) return {.content = value.get<std::string>(), .special = special};
  if (!value.is_object() || !member_of(value, "content").is_string()) {
    refuse_config(file, place, shown_value(value) + ": expected a token");
  }
  AddedToken token{.content = value["content"].get<std::string>()};
  token.special = special || flag_of(value, "special", false, file);
  token.single_word = flag_of(value, "single_word", false, file);
  token.lstrip = flag_of(value, "lstrip", false, file);
  token.rstrip = flag_of(value, "rstrip", false, file);
  token.normalized = flag_of(value, "normalized", !token.special, file);
  return token;
}

}  // namespace

FolderFile read_folder_file(const ReadFile& read) {
  if (std::optional<std::string> text = read("tokenizer.json")) {
    return {.kind = FolderKind::json, .text = *std::move(text), .merges = {}};
  }
  std::optional<std::string> vocab = read("vocab.json"), merges = read("merges.txt");
  if (vocab && merges) return {FolderKind::pair, *std::move(vocab), *std::move(merges)};
  std::optional<std::string> model = read(kModelFile);
  if (!model || !is_sentencepiece(*model)) return {};
  return {.kind = FolderKind::model, .text = *std::move(model), .merges = {}};
}

FolderConfig::FolderConfig(const ReadFile& read, const FolderFile& file)
    : kind_(file.kind), config_(read_object(read, kConfigFile)), model_(read_model_config(read)) {
  // A file that lists its added tokens with flags is complete; the older files count only if
  // there is no such list.
  has_list_ = config_.contains("added_tokens_decoder");
  if (!has_list_) {
    map_ = read_object(read, kMap);
    added_ = read_object(read, "added_tokens.json");
  }
  set_class();
  if (kind_ == FolderKind::pair && class_name_.empty()) {
    has_no_class_ = !empty() || !model_type_.empty();
    if (!empty()) class_name_ = kClasses[0].name;
  }
  for (const TokenizerClass& row : kClasses) {
    if (class_name_ == row.name) class_ = &row;
  }
  if (kind_ == FolderKind::model) set_model_class(file.text);
  set_roles();
  for (const auto& [role, token] : roles_) named_.insert(token.content);
}

const AddedToken* FolderConfig::role(std::string_view name) const {
  for (const auto& [key, token] : roles_) {
    if (key == name) return &token;
  }
  return nullptr;
}

std::map<int64_t, AddedToken> FolderConfig::listed_tokens() const {
  std::map<int64_t, AddedToken> tokens;
  const ordered_json& list = member_of(config_, "added_tokens_decoder");
  if (has_list_ && !list.is_object() && !list.is_null()) {
    refuse_config(kConfigFile, "added_tokens_decoder", "expected an object");
  }
  for (const auto& [key, value] : list.items()) {
    int64_t id = -1;
    const char* end = key.data() + key.size();
    if (std::from_chars(key.data(), end, id).ptr != end || id < 0) {
      refuse_config(kConfigFile, "added_tokens_decoder", "\"" + key + "\" is no id");
    }
    tokens[id] = read_token(value, false, kConfigFile, "added_tokens_decoder." + key);
  }
  for (const auto& [content, id] : added_.items()) {
    if (!id.is_number_integer()) refuse_config("added_tokens.json", content, "has no id");
    const bool special = is_named(content);
    tokens[id.get<int64_t>()] = {.content = content, .special = special, .normalized = !special};
  }
  for (auto& [id, token] : tokens) token.special = token.special || is_named(token.content);
  return tokens;
}

void FolderConfig::set_model_class(const std::string& bytes) {
  const ordered_json& type = member_of(model_, "model_type");
  for (const auto& [model, name] : kModelTypesOfPieces) {
    if (!class_name_.empty() || type != model) continue;
    class_name_ = name;
    class_by_model_type_ = true;
  }
  for (const ModelClass& row : kModelClassesOfPieces) {
    if (class_name_ == row.name) model_class_ = &row;
  }
  if (model_class_ == nullptr || model_class_->kind != ModelConversion::backend) return;
  try {
    const SentencePieceModel model = read_sentencepiece_model(bytes);
    if (model.bos_id >= 0) own_bos_ = model.bos;
    if (model.eos_id >= 0) own_eos_ = model.eos;
    own_unk_ = model.unk;
  } catch (const ParseError&) {  // the names are asked of every file; its reader will refuse it
  }
}

void FolderConfig::set_class() {
  for (const ordered_json* file : {&config_, &model_}) {
    const ordered_json& name = member_of(*file, "tokenizer_class");
    if (class_name_.empty() && name.is_string()) class_name_ = name.get<std::string>();
  }
  if (class_name_.ends_with("Fast")) class_name_.resize(class_name_.size() - 4);
  const ordered_json& type = member_of(model_, "model_type");
  if (type.is_string()) model_type_ = type.get<std::string>();
  // Qwen2's own class is used whatever the folder says, as in transformers 5.
  if (!class_name_.empty() && model_type_ != "qwen2") return;
  const bool own = class_name_.empty();
  for (const auto& [name, types] : kModelClasses) {
    // Of a SentencePiece model set_model_class says which.
    if (kind_ == FolderKind::model && name == kGemma) continue;
    if (!has_word(types, model_type_)) continue;
    class_name_ = name;
    class_of_model_type_ = own;
  }
}

/// A role's value is the special tokens map's, else the configuration's, else the class's
/// default.
void FolderConfig::set_roles() {
  for (const char* name : kRoles) {
    const bool in_map = map_.contains(name);
    const ordered_json& value = in_map ? map_[name] : member_of(config_, name);
    if (!value.is_null()) {
      roles_.emplace_back(name, read_token(value, true, in_map ? kMap : kConfigFile, name));
    } else if (!in_map && !config_.contains(name)) {
      const std::string fallback = class_default(name);
      if (!fallback.empty()) {
        roles_.emplace_back(name, AddedToken{.content = fallback, .special = true});
      }
    }
  }
  add_own_roles(map_, kMap);
  add_own_roles(config_, kConfigFile);
  add_extra_tokens();
}

/// additional_special_tokens counts where extra_special_tokens is no list. An object of the latter
/// has roles that only some models have. In 4.46 both files' additional_special_tokens count.
void FolderConfig::add_extra_tokens() {
  constexpr const char* kExtra = "extra_special_tokens";
  constexpr const char* kAdditional = "additional_special_tokens";
  std::vector<AddedToken> own, list;
  bool has_list = false;
  const auto append = [&](const ordered_json& more, const char* place) {
    if (more.is_null()) return;
    if (!more.is_array() && !more.is_object()) {
      refuse_config(place, kExtra, shown_value(more) + ": expected a list of tokens");
    }
    if (more.is_array()) has_list = true;
    std::vector<AddedToken>& to = more.is_object() ? own : list;
    for (const auto& [key, value] : more.items()) {
      to.push_back(read_token(value, true, place, kExtra));
    }
  };
  const ordered_json& extra = member_of(config_, kExtra);
  const ordered_json& additional = member_of(config_, kAdditional);
  append(extra.empty() ? additional : extra, kConfigFile);
  const ordered_json& in_map = member_of(map_, kExtra);
  if (in_map.is_object()) {  // takes the place of the list
    list.clear();
    has_list = false;
  }
  append(in_map, kMap);
  if (!has_list || kind_ == FolderKind::model) {
    const bool maps = map_.contains(kAdditional);
    append(maps ? map_[kAdditional] : additional, maps ? kMap : kConfigFile);
  }
  own.insert(own.end(), list.begin(), list.end());
  for (AddedToken& token : own) roles_.emplace_back(kExtra, std::move(token));
}

void FolderConfig::take_padding(const json& tokenizer_json) {
  const bool backend = class_name_.empty() || class_name_ == "PreTrainedTokenizer" ||
                       class_name_ == "TokenizersBackend" || class_name_ == "BloomTokenizer";
  if (!backend || config_.contains("pad_token") || map_.contains("pad_token")) return;
  const auto padding = tokenizer_json.find("padding");
  if (padding == tokenizer_json.end() || !padding->is_object()) return;
  const auto token = padding->find("pad_token");
  if (token == padding->end() || !token->is_string()) return;
  const auto after = std::find_if(roles_.begin(), roles_.end(), [](const auto& role) {
    return std::find(kRoles, kRoles + 4, role.first) == kRoles + 4;  // not one of those before pad
  });
  const std::string content = token->get<std::string>();
  roles_.emplace(after, "pad_token", AddedToken{.content = content, .special = true});
  named_.insert(content);
}

/// Roles that only some models have, such as image_token. 4.46 ignores them.
void FolderConfig::add_own_roles(const ordered_json& file, const char* place) {
  for (const auto& [key, value] : file.items()) {
    const bool standard = std::find(std::begin(kRoles), std::end(kRoles), key) != std::end(kRoles);
    if (standard || !key.ends_with("_token")) continue;
    const bool token = value.is_string() || (value.is_object() && value.contains("content"));
    if (token) roles_.emplace_back(key, read_token(value, true, place, key));
  }
}

std::string FolderConfig::class_default(std::string_view role) const {
  const auto of = [&](const auto& row) {
    const char* found = role == "bos_token"   ? row.bos
                        : role == "eos_token" ? row.eos
                        : role == "unk_token" ? row.unk
                        : role == "pad_token" ? row.pad
                                              : nullptr;
    return std::string(found == nullptr ? "" : found);
  };
  if (class_ != nullptr) return of(*class_);
  if (model_class_ == nullptr) return {};
  if (model_class_->kind != ModelConversion::backend) {
    const bool has_mask = role == "mask_token" && model_class_->mask != nullptr;
    return has_mask ? model_class_->mask : of(*model_class_);
  }
  return role == "bos_token"   ? own_bos_
         : role == "eos_token" ? own_eos_
         : role == "unk_token" ? own_unk_
                               : "";
}

}  // namespace tok
