// SPDX-License-Identifier: MIT
// The configuration files of a tokenizer's folder on the hub, combined: the class, the special
// tokens by role, the added tokens with their ids. Not for users of the library, and not here: what
// becomes of them (load_folder.cc).
// Source: transformers 5.23, PreTrainedTokenizerBase._from_pretrained and AutoTokenizer; comments
// say where 4.46 differs.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "libtok/load_sentencepiece.h"
#include "libtok/loaders.h"

namespace tok {

inline constexpr const char* kConfigFile = "tokenizer_config.json";
inline constexpr const char* kModelFile = "tokenizer.model";

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
/// A class that transformers makes of a SentencePiece model, and its default tokens.
struct ModelClass {
  const char* name;
  ModelConversion kind;
  const char* bos;
  const char* eos;
  const char* unk;
  const char* pad;
  const char* mask;
};
/// The tokenizer file that counts in a folder.
enum class FolderKind : uint8_t {
  json,   ///< tokenizer.json
  pair,   ///< vocab.json and merges.txt
  model,  ///< tokenizer.model, by SentencePiece
  other,  ///< tekken.json and its like, or none
};

/// That file. Which one: the first kind that the folder has, in the order of FolderKind.
struct FolderFile {
  FolderKind kind = FolderKind::other;
  std::string text;    ///< of `pair` the vocabulary; of `other` empty
  std::string merges;  ///< of `pair`
};

/// Reads it.
FolderFile read_folder_file(const ReadFile& read);

/// "file: what: why". Throws ParseError.
[[noreturn]] void refuse_config(const std::string& file, const std::string& what,
                                const std::string& why);

/// A value as shown in a message.
std::string shown_value(const nlohmann::ordered_json& value);

/// A member, or null if it is absent.
const nlohmann::ordered_json& member_of(const nlohmann::ordered_json& object, const char* name);

/// A member that is true, false, or absent. Errors: ParseError.
bool flag_of(const nlohmann::ordered_json& object, const char* name, bool fallback,
             const std::string& file);

/// The combined content of a folder's configuration files.
class FolderConfig {
 public:
  /// Errors: ParseError naming file, member and value.
  FolderConfig(const ReadFile& read, const FolderFile& file);

  /// The class name without "Fast"; empty if no file gives it.
  const std::string& class_name() const { return class_name_; }
  FolderKind kind() const { return kind_; }
  const std::string& model_type() const { return model_type_; }
  /// Whether the class is that of config.json's model_type.
  bool class_of_model_type() const { return class_of_model_type_; }
  /// Whether the folder has configuration files, of which none gives the class of a pair: it is
  /// taken for GPT2Tokenizer.
  bool has_no_class() const { return has_no_class_; }
  /// The entry of a known class; null for others.
  const TokenizerClass* known_class() const { return class_; }
  /// How transformers reads the folder's SentencePiece model; null for other classes.
  const ModelClass* model_class() const { return model_class_; }
  /// Whether model_type says the class of a SentencePiece model, which transformers 5 does not ask.
  bool class_by_model_type() const { return class_by_model_type_; }
  /// Named tokens by role, in the order in which they are added.
  const std::vector<std::pair<std::string, AddedToken>>& roles() const { return roles_; }
  const nlohmann::ordered_json& config() const { return config_; }
  /// special_tokens_map.json, where it counts.
  const nlohmann::ordered_json& map() const { return map_; }
  bool is_named(const std::string& content) const { return named_.contains(content); }
  /// Whether tokenizer_config.json lists its added tokens, with their flags.
  bool has_list() const { return has_list_; }
  bool empty() const { return config_.empty() && map_.empty() && added_.empty(); }

  /// The pad token is that of the file's `padding`, where no configuration names one and the class
  /// is none of those that make their own tokenizer.
  void take_padding(const nlohmann::json& tokenizer_json);

  /// The token of a role; null if there is none.
  const AddedToken* role(std::string_view name) const;

  /// Added tokens with the ids that the files give, ascending by id. Errors: ParseError.
  std::map<int64_t, AddedToken> listed_tokens() const;

 private:
  void set_class();
  void set_model_class(const std::string& bytes);
  void set_roles();
  void add_own_roles(const nlohmann::ordered_json& file, const char* place);
  void add_extra_tokens();
  std::string class_default(std::string_view role) const;

  FolderKind kind_;
  nlohmann::ordered_json config_, model_;
  nlohmann::ordered_json map_ = nlohmann::ordered_json::object();
  nlohmann::ordered_json added_ = nlohmann::ordered_json::object();
  bool has_list_ = false;
  std::string class_name_, model_type_;
  bool class_of_model_type_ = false;
  bool has_no_class_ = false;
  const TokenizerClass* class_ = nullptr;
  const ModelClass* model_class_ = nullptr;
  bool class_by_model_type_ = false;
  std::string own_bos_, own_eos_, own_unk_;  ///< of the SentencePiece model
  std::vector<std::pair<std::string, AddedToken>> roles_;
  std::unordered_set<std::string> named_;  ///< contents of roles_
};

}  // namespace tok
