// SPDX-License-Identifier: MIT
// tokenizer_files.h: reading vocabularies, writing tokenizer.json. The latter is written as text
// and not as a tree, since its vocabulary has tens of thousands of keys in the order of their ids.
#include "convert/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "libindexed/format.h"
#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "trainer/checkpoint/checkpoint.h"

namespace convert {
namespace {

using indexed::FormatError;
using nlohmann::json;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

// The folder of the tokenizer beside a checkpoint.
constexpr const char* kBeside = "tokenizer";

// The keys of a config that name tokens.
constexpr const char* kIdKeys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

std::string read_text(const std::string& path) {
  const indexed::MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

json parse_json(const std::string& text, const std::string& path) {
  json tree = json::parse(text, nullptr, false);
  if (tree.is_discarded() || !tree.is_object())
    throw FormatError(path + ": not a JSON object: no vocabulary");
  return tree;
}

// A foreign value as JSON, a string in quotes; bytes that are not UTF-8 are replaced.
std::string show_text(const json& text) {
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Calls `read`; a JSON value of the wrong kind becomes an error that names the file.
template <class Read>
TokenizerFiles of_right_kinds(const std::string& path, Read read) {
  try {
    return read();
  } catch (const json::exception&) {
    throw FormatError(path +
                      ": a key has a value of another kind than it should, or bytes that are "
                      "not UTF-8");
  }
}

// Tokens in the order of their ids. Ids are whole numbers from 0 up, each once, possibly with gaps.
std::vector<std::pair<int64_t, std::string>> tokens_by_id(const json& vocab,
                                                          const std::string& path) {
  std::vector<std::pair<int64_t, std::string>> tokens;
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      throw FormatError(path + ": token " + json(token).dump() + " has no id but " + id.dump());
    tokens.emplace_back(id.get<int64_t>(), token);
  }
  std::sort(tokens.begin(), tokens.end());
  for (size_t i = 1; i < tokens.size(); ++i)
    if (tokens[i].first == tokens[i - 1].first)
      throw FormatError(path + ": tokens " + json(tokens[i - 1].second).dump() + " and " +
                        json(tokens[i].second).dump() + " have one id");
  if (tokens.empty()) throw FormatError(path + ": an empty vocabulary");
  return tokens;
}

std::vector<std::string> read_merges(const std::string& text, const json& vocab,
                                     const std::string& path) {
  std::vector<std::string> merges;
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    const std::string place = path + ":" + std::to_string(number) + ": merge " + show_text(line);
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      throw FormatError(place + " is not two tokens");
    const std::string left = line.substr(0, space), right = line.substr(space + 1);
    for (const std::string& token : {left, right, left + right})
      if (!vocab.contains(token))
        throw FormatError(place + ": token " + show_text(token) + " is not in the vocabulary");
    merges.push_back(std::move(line));
  }
  return merges;
}

// The file that the tokenizers library reads, for byte-level BPE as GPT-2 has it.
std::string tokenizer_json(const std::vector<std::pair<int64_t, std::string>>& tokens,
                           const std::vector<std::string>& merges,
                           const std::pair<std::string, int64_t>& end_of_text) {
  const std::string byte_level =
      R"("type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true)";
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  out += "  \"added_tokens\": [";
  if (!end_of_text.first.empty())
    out += "\n    {\"id\": " + std::to_string(end_of_text.second) +
           ", \"content\": " + json(end_of_text.first).dump() +
           ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
           "\"normalized\": true, \"special\": true}\n  ";
  out += "],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {" + byte_level +
         "},\n  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
         "\"trim_offsets\": false, \"use_regex\": true},\n  \"decoder\": {\"type\": "
         "\"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": "
         "true},\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    "
         "\"unk_token\": null,\n    \"continuing_subword_prefix\": \"\",\n    "
         "\"end_of_word_suffix\": \"\",\n    \"fuse_unk\": false,\n    \"byte_fallback\": "
         "false,\n    \"vocab\": {";
  for (size_t i = 0; i < tokens.size(); ++i)
    out += (i == 0 ? "\n      " : ",\n      ") + json(tokens[i].second).dump() + ": " +
           std::to_string(tokens[i].first);
  out += "\n    },\n    \"merges\": [";
  for (size_t i = 0; i < merges.size(); ++i)
    out += (i == 0 ? "\n      " : ",\n      ") + json(merges[i]).dump();
  return out + "\n    ]\n  }\n}\n";
}

// Adds the files that AutoTokenizer needs besides a vocabulary. GPT2Tokenizer uses <|endoftext|>
// for tokens that are not named, even if the vocabulary lacks it: null means that there is none.
void add_small_files(TokenizerFiles& out, const std::string& end_of_text, bool gpt2,
                     int64_t max_length) {
  ordered_json config;
  if (gpt2) config["add_prefix_space"] = false;
  ordered_json map = ordered_json::object();
  for (const char* key : {"bos_token", "eos_token", "unk_token"}) {
    if (!end_of_text.empty())
      config[key] = map[key] = end_of_text;
    else if (gpt2)
      config[key] = nullptr;
  }
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = max_length;
  config["tokenizer_class"] = gpt2 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast";
  out.files.push_back({"tokenizer_config.json", config.dump(2) + "\n"});
  out.files.push_back({"special_tokens_map.json", map.dump(2) + "\n"});
}

void set_ids(TokenizerFiles& out, int64_t bos, int64_t eos, int64_t pad) {
  const auto set = [&](const char* key, int64_t id) {
    out.ids[key] = id < 0 ? ordered_json() : ordered_json(id);
  };
  set("bos_token_id", bos);
  set("eos_token_id", eos);
  if (pad >= 0) set("pad_token_id", pad);
}

tok::FolderIds ids_of(const tok::ReadFile& read, const std::string& folder) {
  try {
    return tok::read_folder_ids(read);
  } catch (const tok::ParseError& error) {
    throw FormatError(folder + ": " + error.what());
  }
}

// Every file of a folder's tokenizer, by name.
std::vector<TokenizerFile> files_of(const std::string& folder) {
  std::vector<TokenizerFile> files;
  for (const std::string& name : tokenizer_file_names(folder))
    files.push_back({name, read_text(folder + "/" + name)});
  return files;
}

}  // namespace

bool has_tokenizer_name(const std::string& name) {
  static const std::regex kNames(
      R"((vocab|special_tokens_map|added_tokens|tekken|tokenizer|tokenizer_config)\.json|)"
      R"(vocab\.txt|merges\.txt|spiece\.model|sentencepiece\.bpe\.model|)"
      R"(chat_template\.(jinja|json)|tokenizer\.model(\.v\d+(m\d+)?)?|tokenizer\.[\d.]+\.json)");
  return std::regex_match(name, kNames);
}

bool is_tokenizer_file(const std::string& name) {
  return has_tokenizer_name(name) || name.ends_with(".tiktoken") ||
         (name.starts_with("tokenization_") && name.ends_with(".py"));
}

std::vector<std::string> tokenizer_file_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && is_tokenizer_file(name)) names.push_back(name);
    if (!entry.is_directory() || name != kTemplatesFolder) continue;
    for (const fs::directory_entry& inner : fs::directory_iterator(entry.path()))
      if (inner.is_regular_file() && inner.path().extension() == ".jinja")
        names.push_back(name + "/" + inner.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

tok::ReadFile folder_reader(const std::string& folder) {
  return [folder](std::string_view name) -> std::optional<std::string> {
    const std::string path = folder + "/" + std::string(name);
    if (!fs::is_regular_file(path)) return std::nullopt;
    return read_text(path);
  };
}

std::optional<std::vector<int64_t>> ends_of_text(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = folder + "/" + name;
    if (!fs::is_regular_file(path)) continue;
    const json config = json::parse(read_text(path), nullptr, false);
    if (!config.is_object()) throw FormatError(path + ": not a JSON object");
    const json named = config.value("eos_token_id", json());
    if (named.is_null()) continue;
    std::vector<int64_t> ids;
    for (const json& id : named.is_array() ? named : json::array({named})) {
      if (!id.is_number_integer())
        throw FormatError(path + ": key \"eos_token_id\" is " + show_text(named) +
                          ", expected a whole number or a list of them");
      ids.push_back(id.get<int64_t>());
    }
    return ids;
  }
  return std::nullopt;
}

bool has_tokenizer(const std::string& folder) {
  const auto there = [&](const char* name) { return fs::exists(folder + "/" + name); };
  if (!fs::is_directory(folder)) return false;
  return there("tokenizer.json") || (there("vocab.json") && there("merges.txt")) ||
         there("tokenizer.model") || there("tekken.json") || there("config.json");
}

TokenizerBeside::TokenizerBeside(const TokenizerFiles& tokenizer, std::string folder, bool replace)
    : folder_(std::move(folder)),
      unfinished_((fs::path(folder_).parent_path() / ".tokenizer.tmp").string()),
      replace_(replace) {
  fs::remove_all(unfinished_);
  for (const std::vector<TokenizerFile>* files : {&tokenizer.files, &tokenizer.model_files})
    for (const TokenizerFile& file : *files) {
      const fs::path path = fs::path(unfinished_) / file.name;
      for (const fs::path& folder : {fs::path(unfinished_), path.parent_path()}) {
        if (fs::exists(folder)) continue;
        folders_.emplace_back(folder.string());
        fs::create_directory(folder);
      }
      files_.push_back(
          std::make_unique<indexed::OutputFile>(path.string(), indexed::Existing::replace));
      files_.back()->write(file.text);
      files_.back()->sync();
    }
}

TokenizerBeside::~TokenizerBeside() {
  files_.clear();
  std::error_code ignored;
  fs::remove_all(unfinished_, ignored);
}

void TokenizerBeside::take_names(SetAside& old) {
  const fs::path folder(folder_);
  if (replace_)
    for (const fs::path& path : {folder, folder / kTemplatesFolder})
      if (fs::is_symlink(path)) old.take(path);
  if (replace_ && fs::is_directory(folder)) {
    for (const std::string& name : tokenizer_file_names(folder_)) old.take(folder / name);
    for (const char* name : {"config.json", "generation_config.json"}) old.take(folder / name);
  }
  for (const std::unique_ptr<indexed::OutputFile>& file : files_) {
    file->commit();
    const fs::path target = folder / fs::path(file->path()).lexically_relative(unfinished_);
    old.make_folders(target.parent_path());
    old.name_again(file->path(), target);
  }
  files_.clear();
}

static bool is_iteration(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name == "release" || name.starts_with("iter_");
}

// Whether a folder holds checkpoints. Its own name may be as that of one.
static bool is_root(const fs::path& folder) {
  std::error_code none;
  if (fs::exists(folder / "latest_checkpointed_iteration.txt", none)) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    if (is_iteration(entry.path()) && entry.is_directory(none)) return true;
  return false;
}

std::string folder_beside_checkpoint(const std::string& path) {
  fs::path root = trainer::plain_path(path);
  const auto is_named = [&](std::string_view start) {
    return root.filename().string().starts_with(start) && !is_root(root);
  };
  if (is_named("model_optim_rng.pt")) root = root.parent_path();
  if (is_named("mp_rank_")) root = root.parent_path();
  if (is_iteration(root) && !is_root(root)) root = root.parent_path();
  const std::string folder = (root / kBeside).string();
  return has_tokenizer(folder) ? folder : "";
}

static TokenizerFiles read_vocab(const std::string& vocab_file, const std::string& merge_file,
                                 int64_t max_length) {
  TokenizerFiles out;
  out.place = vocab_file;
  std::string vocab_text = read_text(vocab_file), merge_text = read_text(merge_file);
  const json vocab = parse_json(vocab_text, vocab_file);
  const std::vector<std::pair<int64_t, std::string>> tokens = tokens_by_id(vocab, vocab_file);
  const std::vector<std::string> merges = read_merges(merge_text, vocab, merge_file);
  out.vocab_size = tokens.back().first + 1;
  std::pair<std::string, int64_t> end = {"", -1};
  for (const std::string_view name : tok::kEodNames) {
    const auto found = vocab.find(name);
    if (found == vocab.end()) continue;
    end = {std::string(name), found->get<int64_t>()};
    break;
  }
  set_ids(out, end.second, end.second, -1);
  out.files.push_back({"vocab.json", std::move(vocab_text)});
  out.files.push_back({"merges.txt", std::move(merge_text)});
  out.files.push_back({"tokenizer.json", tokenizer_json(tokens, merges, end)});
  add_small_files(out, end.first, true, max_length);
  return out;
}

TokenizerFiles tokenizer_from_json(const std::string& path, int64_t max_length) {
  TokenizerFiles out;
  out.place = path;
  std::string text = read_text(path);
  const tok::ReadFile read = [&](std::string_view name) {
    return name == "tokenizer.json" ? std::optional(text) : std::nullopt;
  };
  const tok::FolderIds ids = ids_of(read, path);
  if (ids.limit == 0) throw FormatError(path + ": no vocabulary");
  out.vocab_size = ids.limit;
  set_ids(out, ids.eod, ids.eod, -1);
  out.files.push_back({"tokenizer.json", std::move(text)});
  add_small_files(out, ids.eod < 0 ? "" : ids.eod_name, false, max_length);
  return out;
}

TokenizerFiles tokenizer_from_sentencepiece(const std::string& path, int64_t max_length) {
  TokenizerFiles out;
  out.place = path;
  std::string model = read_text(path);
  try {
    const tok::TokenizerSource source = tok::read_sentencepiece(model);
    const tok::SentencePieceRules& rules = *source.sentencepiece;
    out.vocab_size = static_cast<int64_t>(source.vocab.tokens.size());
    set_ids(out, source.bos_id, source.eos_id, source.pad_id);
    ordered_json config;
    const auto name = [&](const char* key, int32_t id) {
      if (id != tok::kNoId) config[key] = source.vocab.tokens[static_cast<size_t>(id)].bytes;
    };
    name("bos_token", source.bos_id);
    name("eos_token", source.eos_id);
    name("pad_token", source.pad_id);
    name("unk_token", source.decode_rules.unk_id);
    if (!rules.add_dummy_prefix) config["add_prefix_space"] = false;
    config["clean_up_tokenization_spaces"] = false;
    config["legacy"] = true;
    config["model_max_length"] = max_length;
    config["tokenizer_class"] = "LlamaTokenizer";
    out.files.push_back({"tokenizer_config.json", config.dump(2) + "\n"});
    const char* what = !rules.charsmap.empty()               ? "replaces characters"
                       : rules.remove_extra_whitespaces      ? "removes blanks"
                       : !rules.user_defined.texts().empty() ? "has user-defined symbols"
                                                             : nullptr;
    if (what != nullptr) {
      out.note = path + ": the model " + what +
                 ", for which transformers' LlamaTokenizer gives other ids than sentencepiece, "
                 "which read the training data: compare before use";
    }
  } catch (const tok::ParseError& error) {
    throw FormatError(path + ": " + error.what());
  }
  out.files.push_back({"tokenizer.model", std::move(model)});
  return out;
}

TokenizerFiles tokenizer_from_vocab(const std::string& vocab_file, const std::string& merge_file,
                                    int64_t max_length) {
  return of_right_kinds(vocab_file, [&] { return read_vocab(vocab_file, merge_file, max_length); });
}

static TokenizerFiles read_folder(const std::string& folder, int64_t max_length) {
  const auto there = [&](const char* name) { return fs::is_regular_file(folder + "/" + name); };
  if (!has_tokenizer(folder))
    throw FormatError(folder +
                      ": neither tokenizer.json nor vocab.json and merges.txt nor tokenizer.model");
  const bool alone =
      !there("config.json") && !there("tokenizer_config.json") && !there("special_tokens_map.json");
  if (alone && there("tokenizer.json")) {
    TokenizerFiles out = tokenizer_from_json(folder + "/tokenizer.json", max_length);
    for (TokenizerFile& file : files_of(folder))
      if (file.name != "tokenizer.json") out.files.push_back(std::move(file));
    return out;
  }
  if (alone && there("vocab.json") && there("merges.txt"))
    return tokenizer_from_vocab(folder + "/vocab.json", folder + "/merges.txt", max_length);
  TokenizerFiles out;
  out.copied = true;
  out.place = folder;
  out.files = files_of(folder);
  const tok::FolderIds ids = ids_of(folder_reader(folder), folder);
  out.vocab_size = ids.limit;
  for (const char* name : {"config.json", "generation_config.json"})
    if (there(name)) out.model_files.push_back({name, read_text(folder + "/" + name)});
  if (!there("config.json")) {
    set_ids(out, ids.names_eos ? ids.bos : ids.eod, ids.eod, ids.pad);
    return out;
  }
  const ordered_json config = ordered_json::parse(out.model_files[0].text, nullptr, false);
  if (!config.is_object()) throw FormatError(folder + "/config.json: not a JSON object");
  out.ids = ordered_json::object();
  for (const char* key : kIdKeys)
    if (config.contains(key)) out.ids[key] = config[key];
  return out;
}

TokenizerFiles tokenizer_from_folder(const std::string& folder, int64_t max_length) {
  return of_right_kinds(folder, [&] { return read_folder(folder, max_length); });
}

}  // namespace convert
