// SPDX-License-Identifier: MIT
// Reading and making what the tests of libtok share.
#include "tests/tok/tok_data.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "libtok/byte_level.h"
#include "libtok/unicode.h"

namespace tok_test {

using nlohmann::json;

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::stringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

namespace {

/// Bytes of a gzip file, by the decompressor on the path.
std::optional<std::string> read_gzip(const std::string& path) {
  if (!std::ifstream(path)) return std::nullopt;
  FILE* pipe = popen(("gzip -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string bytes;
  char block[65536];
  for (size_t got; (got = fread(block, 1, sizeof(block), pipe)) > 0;) bytes.append(block, got);
  if (pclose(pipe) != 0) return std::nullopt;
  return bytes;
}

}  // namespace

std::optional<std::string> read_shared(const std::string& name) {
  const std::string path = std::string(SHARED_DATA_DIR) + "/" + name;
  return name.ends_with(".gz") ? read_gzip(path) : read_file(path);
}

std::string read_golden(const std::string& name) {
  std::optional<std::string> bytes = read_file(std::string(GOLDEN_DIR) + "/tok/" + name);
  if (!bytes.has_value()) throw std::runtime_error("golden " + name + " is missing");
  return *std::move(bytes);
}

const json& golden_cases() {
  static const json kCases = json::parse(read_golden("cases.json"));
  return kCases;
}

namespace {

void drop_bytes(json& model, const json& bytes) {
  std::set<std::string> dropped;
  for (const json& byte : bytes) {
    const char c = static_cast<char>(byte.get<int>());
    dropped.insert(tok::byte_level_of_bytes(std::string_view(&c, 1)));
  }
  const auto holds_dropped = [&](const std::string& token) {
    return std::any_of(dropped.begin(), dropped.end(), [&](const std::string& character) {
      return token.find(character) != std::string::npos;
    });
  };
  json kept_vocab = json::object();
  for (const auto& [token, id] : model["vocab"].items()) {
    if (!holds_dropped(token)) kept_vocab[token] = id;
  }
  json kept_merges = json::array();
  for (const json& merge : model["merges"]) {
    if (!holds_dropped(merge.get<std::string>())) kept_merges.push_back(merge);
  }
  model["vocab"] = std::move(kept_vocab);
  model["merges"] = std::move(kept_merges);
}

int64_t largest_id(const json& vocab) {
  int64_t largest = -1;
  for (const auto& [token, id] : vocab.items()) largest = std::max(largest, id.get<int64_t>());
  return largest;
}

/// The steps of make_tok_goldens.py's rewrite(), in its order.
void apply_steps(json& model, const json& steps) {
  json& vocab = model["vocab"];
  json& merges = model["merges"];
  if (steps.contains("drop_bytes")) drop_bytes(model, steps["drop_bytes"]);
  if (steps.contains("unreachable")) {
    for (const char* token : {"Ġtheoremata", "edilmektedir", "xyzzy", "qqqq", "Ġthethe", "ĠThe'"}) {
      if (!vocab.contains(token)) vocab[token] = largest_id(vocab) + 1;
    }
  }
  if (steps.contains("permute")) {
    const int64_t last = largest_id(vocab);
    for (json& id : vocab) id = last - id.get<int64_t>();
  }
  if (steps.contains("reverse")) std::reverse(merges.begin(), merges.end());
  if (steps.contains("again")) {
    merges.push_back(merges[0]);
    merges.push_back(merges[10]);
  }
  if (steps.contains("pairs")) {
    for (json& merge : merges) {
      const std::string text = merge.get<std::string>();
      const size_t space = text.find(' ');
      merge = json::array({text.substr(0, space), text.substr(space + 1)});
    }
  }
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    const size_t size = std::min<size_t>(3, bytes.size() - at);
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (i < size ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    }
    for (size_t i = 0; i < 4; ++i) out += i <= size ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

/// A .tiktoken file of GPT-2's vocab.json.
std::string r50k_ranks(const std::string& vocab_json) {
  std::string ranks;
  const json vocab = json::parse(vocab_json);
  for (const auto& [token, id] : vocab.items()) {
    if (token == "<|endoftext|>") continue;
    ranks += base64(*tok::bytes_of_byte_level(token)) + " " + id.dump() + "\n";
  }
  return ranks;
}

}  // namespace

std::string patched_json(const json& patch) {
  json root = json::parse(read_golden("base.json"));
  root.update(patch["members"]);
  root["model"].update(patch["model"]);
  apply_steps(root["model"], patch["steps"]);
  return root.dump();
}

std::optional<tok::Tokenizer> load_case(const std::string& name,
                                        const tok::ParallelFor& parallel_for) {
  const json& entry = golden_cases().at(name);
  if (entry.contains("patch")) {
    return tok::Tokenizer::from_tokenizer_json(patched_json(entry["patch"]), parallel_for);
  }
  if (entry.contains("base")) {
    const std::optional<std::string> text = read_shared(entry["base"]);
    if (!text.has_value()) return std::nullopt;
    return tok::Tokenizer::from_tokenizer_json(*text, parallel_for);
  }
  const std::optional<std::string> vocab = read_shared("gpt2-vocab.json");
  const std::optional<std::string> merges = read_shared("gpt2-merges.txt");
  if (!vocab.has_value() || !merges.has_value()) return std::nullopt;
  if (entry.contains("files")) return tok::Tokenizer::from_gpt2(*vocab, *merges, {}, parallel_for);
  if (entry["tiktoken"] == "r50k_base") {
    return tok::Tokenizer::from_tiktoken(r50k_ranks(*vocab), "r50k_base", parallel_for);
  }
  const std::optional<std::string> ranks = read_shared("cl100k_base.tiktoken.gz");
  if (!ranks.has_value()) return std::nullopt;
  return tok::Tokenizer::from_tiktoken(*ranks, "cl100k_base", parallel_for);
}

const std::vector<std::string>& class_alphabet() {
  static const std::vector<std::string> kAlphabet = {
      "a", "s", "S", "'", " ", "\n", "\r", "\t", "1", "!", "\u00a0", "\u0660", "\u0301", "\u6f22"};
  return kAlphabet;
}

std::vector<std::string> random_texts(uint64_t seed, int count) {
  static const std::vector<std::string> kSnippets = {
      "<s>",  "</s>",   "<mask>", "word",  "wordy",      "<|endoftext|>", "e\u0301x", "abcef",
      "bcx",  "\n\n",   "    ",   "  ",    "the ",       " of",           "'s",       "'LL",
      "\r\n", "\u3000", "\u00a0", "ation", "\U0001f600", "0123"};
  Random random(seed);
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) {
    std::string text;
    const uint32_t length = random.next(60);
    for (uint32_t j = 0; j < length; ++j) {
      switch (random.next(8)) {
        case 0:
          text += kSnippets[random.next(static_cast<uint32_t>(kSnippets.size()))];
          break;
        case 1:
          tok::append_utf8(text, random.next(0xD800));
          break;
        case 2:
          tok::append_utf8(text, 0xE000 + random.next(0x110000 - 0xE000));
          break;
        case 3:
          tok::append_utf8(text, 0x300 + random.next(0x70));
          break;
        case 4:
          text += class_alphabet()[random.next(static_cast<uint32_t>(class_alphabet().size()))];
          break;
        default:
          text += static_cast<char>(32 + random.next(95));
      }
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

tok::ReadFile reader(const Files& files) {
  return [files](std::string_view name) -> std::optional<std::string> {
    const auto found = files.find(std::string(name));
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string folder_refusal(const Files& files) {
  try {
    tok::Tokenizer::from_folder(reader(files));
  } catch (const tok::ParseError& error) {
    return error.what();
  }
  return "";
}

}  // namespace tok_test
