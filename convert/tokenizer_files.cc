// SPDX-License-Identifier: MIT
// tokenizer_files.h: reading vocabularies, writing tokenizer.json. The latter is written as text
// and not as a tree, since its vocabulary has tens of thousands of keys in the order of their ids.
#include "convert/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "libindexed/format.h"
#include "libindexed/mapped_file.h"

namespace convert {
namespace {

using indexed::FormatError;
using nlohmann::json;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kEndOfText = "<|endoftext|>";

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

// A foreign text in quotes, whatever its bytes.
std::string show_text(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// What `read` gives; a value of another kind than a key should have is named by its file.
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

// Tokens in the order of their ids. Ids are whole numbers from 0 up, each once; gaps may be.
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
                           std::optional<int64_t> end_of_text) {
  const std::string byte_level =
      R"("type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true)";
  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  out += "  \"added_tokens\": [";
  if (end_of_text)
    out += "\n    {\"id\": " + std::to_string(*end_of_text) + ", \"content\": \"" + kEndOfText +
           "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
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

void add_small_files(TokenizerFiles& out, int64_t max_length) {
  ordered_json config;
  config["add_prefix_space"] = false;
  ordered_json map = ordered_json::object();
  if (out.end_of_text)
    for (const char* key : {"bos_token", "eos_token", "unk_token"})
      config[key] = map[key] = kEndOfText;
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = max_length;
  config["tokenizer_class"] = "GPT2Tokenizer";
  out.files.push_back({"tokenizer_config.json", config.dump(2) + "\n"});
  out.files.push_back({"special_tokens_map.json", map.dump(2) + "\n"});
}

// The id of the eos token that a copied folder names, in any of the places where it may stand.
std::optional<int64_t> folder_end_of_text(const std::string& folder, const json& vocab,
                                          const json& added) {
  std::string token = kEndOfText;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const std::string path = folder + "/" + name;
    if (!fs::exists(path)) continue;
    const json tree = parse_json(read_text(path), path);
    const auto eos = tree.find("eos_token");
    if (eos == tree.end()) continue;
    if (eos->is_string()) token = eos->get<std::string>();
    if (eos->is_object()) token = eos->value("content", token);
  }
  for (const json& entry : added)
    if (entry.is_object() && entry.value("content", "") == token && entry.contains("id"))
      return entry["id"].get<int64_t>();
  const auto found = vocab.find(token);
  if (found == vocab.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

}  // namespace

static TokenizerFiles read_vocab(const std::string& vocab_file, const std::string& merge_file,
                                 int64_t max_length) {
  TokenizerFiles out;
  out.place = vocab_file;
  std::string vocab_text = read_text(vocab_file), merge_text = read_text(merge_file);
  const json vocab = parse_json(vocab_text, vocab_file);
  const std::vector<std::pair<int64_t, std::string>> tokens = tokens_by_id(vocab, vocab_file);
  const std::vector<std::string> merges = read_merges(merge_text, vocab, merge_file);
  out.vocab_size = tokens.back().first + 1;
  const auto end = vocab.find(kEndOfText);
  if (end != vocab.end()) out.end_of_text = end->get<int64_t>();
  out.files.push_back({"vocab.json", std::move(vocab_text)});
  out.files.push_back({"merges.txt", std::move(merge_text)});
  out.files.push_back({"tokenizer.json", tokenizer_json(tokens, merges, out.end_of_text)});
  add_small_files(out, max_length);
  return out;
}

TokenizerFiles tokenizer_from_vocab(const std::string& vocab_file, const std::string& merge_file,
                                    int64_t max_length) {
  return of_right_kinds(vocab_file, [&] { return read_vocab(vocab_file, merge_file, max_length); });
}

static TokenizerFiles read_folder(const std::string& folder, int64_t max_length) {
  const std::string main = folder + "/tokenizer.json";
  if (!fs::exists(main)) {
    if (!fs::exists(folder + "/vocab.json") || !fs::exists(folder + "/merges.txt"))
      throw FormatError(folder + ": neither tokenizer.json nor vocab.json and merges.txt");
    return tokenizer_from_vocab(folder + "/vocab.json", folder + "/merges.txt", max_length);
  }
  TokenizerFiles out;
  out.place = main;
  for (const char* name :
       {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"})
    if (fs::exists(folder + "/" + name))
      out.files.push_back({name, read_text(folder + "/" + name)});
  const json tree = parse_json(out.files[0].text, main);
  const json model = tree.value("model", json::object());
  const json vocab = model.value("vocab", json::object());
  const json added = tree.value("added_tokens", json::array());
  for (const auto& [token, id] : vocab.items()) {
    if (vocab.is_array()) break;  // a unigram model: a list of pairs, whose places are the ids
    if (id.is_number_integer()) out.vocab_size = std::max(out.vocab_size, id.get<int64_t>() + 1);
  }
  if (vocab.is_array()) out.vocab_size = static_cast<int64_t>(vocab.size());
  for (const json& entry : added)
    if (entry.is_object() && entry.contains("id") && entry["id"].is_number_integer())
      out.vocab_size = std::max(out.vocab_size, entry["id"].get<int64_t>() + 1);
  if (out.vocab_size == 0) throw FormatError(main + ": no vocabulary");
  out.end_of_text = folder_end_of_text(folder, vocab, added);
  if (!fs::exists(folder + "/tokenizer_config.json")) add_small_files(out, max_length);
  return out;
}

TokenizerFiles tokenizer_from_folder(const std::string& folder, int64_t max_length) {
  return of_right_kinds(folder, [&] { return read_folder(folder, max_length); });
}

}  // namespace convert
