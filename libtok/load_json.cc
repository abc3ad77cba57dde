// Shared parts of the JSON loaders.
// SPDX-License-Identifier: MIT
#include "libtok/load_json.h"

#include <optional>

#include "libtok/byte_level.h"

namespace tok {
namespace {

/// Deeper nesting than any tokenizer file has; stops depth bombs before the parser's own limits.
constexpr int kMaxDepth = 64;

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view place) {
  const auto check_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kMaxDepth) {
      throw ParseError(std::string(place) + ": nested deeper than " + std::to_string(kMaxDepth));
    }
    return true;
  };
  try {
    nlohmann::json json = nlohmann::json::parse(text, check_depth);
    if (!json.is_object()) throw ParseError(std::string(place) + ": not a JSON object");
    return json;
  } catch (const nlohmann::json::parse_error& error) {
    throw ParseError(std::string(place) + ": byte " + std::to_string(error.byte) +
                     ": not valid JSON");
  }
}

std::vector<VocabSource::Token> tokens_of_json(const nlohmann::json& vocab,
                                               std::string_view place) {
  if (!vocab.is_object()) {
    throw ParseError(std::string(place) + ": the vocabulary is not an object of token and id");
  }
  std::vector<VocabSource::Token> tokens;
  tokens.reserve(vocab.size());
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kIdLimit) {
      throw ParseError(std::string(place) + ": token \"" + text + "\": id " + id.dump() +
                       " is not an integer in 0.." + std::to_string(kIdLimit - 1));
    }
    std::optional<std::string> bytes = bytes_of_byte_level(text);
    const bool text_only = !bytes.has_value() || text.empty();
    tokens.push_back({text_only ? text : *std::move(bytes), id.get<int32_t>(), text_only});
  }
  return tokens;
}

std::pair<std::string, std::string> merge_of_halves(std::string_view left, std::string_view right,
                                                    std::string_view place) {
  std::optional<std::string> halves[2] = {bytes_of_byte_level(left), bytes_of_byte_level(right)};
  for (int i = 0; i < 2; ++i) {
    if (halves[i].has_value()) continue;
    throw ParseError(std::string(place) + "\"" + std::string(i == 0 ? left : right) +
                     "\": a character outside the byte-level alphabet");
  }
  return {*std::move(halves[0]), *std::move(halves[1])};
}

int32_t assign_added_id(const nlohmann::json& vocab, const std::string& content,
                        int32_t largest_added) {
  if (const auto found = vocab.find(content); found != vocab.end()) return found->get<int32_t>();
  const int32_t size = static_cast<int32_t>(vocab.size());
  return largest_added >= size || size == 0 ? largest_added + 1 : size;
}

}  // namespace tok
