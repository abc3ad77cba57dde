// .tiktoken files, and the patterns and special tokens of the published encodings, which the files
// do not contain.
// SPDX-License-Identifier: MIT
#include <charconv>
#include <utility>

#include "libtok/base64.h"
#include "libtok/loaders.h"

namespace tok {
namespace {

struct Encoding {
  std::string_view name;
  Family family;
  std::vector<std::pair<std::string_view, int32_t>> special_tokens;
};

/// Source: tiktoken_ext/openai_public.py of tiktoken 0.14.
const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> kEncodings = {
      {"gpt2", Family::gpt2, {{"<|endoftext|>", 50256}}},
      {"r50k_base", Family::gpt2, {{"<|endoftext|>", 50256}}},
      {"p50k_base", Family::gpt2, {{"<|endoftext|>", 50256}}},
      {"p50k_edit",
       Family::gpt2,
       {{"<|endoftext|>", 50256},
        {"<|fim_prefix|>", 50281},
        {"<|fim_middle|>", 50282},
        {"<|fim_suffix|>", 50283}}},
      {"cl100k_base",
       Family::cl100k,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base", Family::o200k, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
  };
  return kEncodings;
}

const Encoding& encoding_named(std::string_view name) {
  std::string known;
  for (const Encoding& encoding : encodings()) {
    if (encoding.name == name) return encoding;
    known += (known.empty() ? "" : ", ") + std::string(encoding.name);
  }
  throw ParseError("tiktoken: encoding \"" + std::string(name) + "\": known are " + known);
}

}  // namespace

TokenizerSource read_tiktoken(std::string_view ranks, std::string_view encoding_name) {
  const Encoding& encoding = encoding_named(encoding_name);
  TokenizerSource source;
  source.pretokenizer = make_pretokenizer(encoding.family);
  source.vocab.rank_rule = RankRule::by_id;
  source.vocab.whole_piece_first = true;
  int64_t line_number = 0;
  std::string bytes;
  while (!ranks.empty()) {
    const size_t end = ranks.find('\n');
    std::string_view line = ranks.substr(0, end);
    ranks = end == std::string_view::npos ? std::string_view() : ranks.substr(end + 1);
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    int32_t rank = -1;
    const bool whole =
        space != std::string_view::npos && decode_base64(line.substr(0, space), bytes);
    const char* last = line.data() + line.size();
    if (!whole || std::from_chars(line.data() + space + 1, last, rank).ptr != last || rank < 0) {
      throw ParseError("tiktoken file:" + std::to_string(line_number) + ": \"" +
                       std::string(line.substr(0, 80)) + "\": expected base64, a space and a rank");
    }
    source.vocab.tokens.push_back({bytes, rank});
  }
  for (const auto& [content, id] : encoding.special_tokens) {
    source.added_tokens.push_back({.content = std::string(content), .id = id, .special = true});
  }
  return source;
}

}  // namespace tok
