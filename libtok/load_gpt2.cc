// vocab.json with merges.txt. The merge rank is the line's number, the id is vocab.json's. They
// agree for GPT-2 and differ for OPT, RoBERTa and fairseq.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "libtok/load_json.h"
#include "libtok/loaders.h"

namespace tok {
namespace {

/// The usual names of special tokens in byte-level vocabularies.
constexpr std::string_view kUsualSpecialTokens[] = {"<|endoftext|>", "<s>",   "<pad>",
                                                    "</s>",          "<unk>", "<mask>"};

std::string line_place(int64_t line) { return "merges.txt:" + std::to_string(line) + ": "; }

void read_merges(std::string_view text, TokenizerSource& source) {
  int64_t line_number = 0;
  bool has_version = false;
  std::vector<int64_t>& others = source.vocab.lines_without_merge.emplace();
  source.vocab.merges.reserve(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) {
      has_version = true;
      others.push_back(line_number);
      continue;
    }
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      if (line.empty() && text.empty()) break;  // an empty last line, as editors leave it
      throw ParseError(line_place(line_number) + "\"" + std::string(line) +
                       "\": expected two tokens and one space");
    }
    std::string complaint;
    if (!append_merge(line.substr(0, space), line.substr(space + 1), source.vocab.merges,
                      complaint)) {
      throw ParseError(line_place(line_number) + complaint);
    }
  }
  if (!has_version) {
    source.notes.push_back(
        "merges.txt has no #version line: its first line is a merge, as for Hugging Face; GPT-2's "
        "own encoder and Megatron drop the first line whatever it is");
  }
}

}  // namespace

LoadingTokenizer load_gpt2(std::string_view vocab_json, std::string_view merges_txt,
                           const ParallelFor& parallel_for) {
  LoadingTokenizer loading;
  parallel_for(2, [&](size_t part) {
    if (part == 1) return read_merges(merges_txt, loading.source);
    loading.file = read_json_file(vocab_json, "vocab.json", VocabPlace::root);
    if (!loading.file.vocab_complaint.empty()) {
      throw ParseError("vocab.json: " + loading.file.vocab_complaint);
    }
  });
  loading.source.pretokenizer = make_pretokenizer(Family::gpt2);
  return loading;
}

TokenizerSource read_gpt2(std::string_view vocab_json, std::string_view merges_txt,
                          const Gpt2Options& options, const ParallelFor& parallel_for) {
  LoadingTokenizer loading = load_gpt2(vocab_json, merges_txt, parallel_for);
  loading.source.add_prefix_space = options.add_prefix_space;
  for (const std::string& content : options.special_tokens) {
    loading.add({.content = content, .special = true, .normalized = true});
  }
  if (options.special_tokens.empty()) {
    for (std::string_view content : kUsualSpecialTokens) {
      if (loading.file.vocab.find(content) == kNoId) continue;
      loading.add({.content = std::string(content), .special = true, .normalized = true});
    }
  }
  return std::move(loading).finish();
}

std::string with_paths(std::string_view complaint, std::string_view vocab_path,
                       std::string_view merges_path) {
  for (const auto& [name, path] :
       {std::pair<std::string_view, std::string_view>("vocab.json:", vocab_path),
        {"tokenizer.json:", vocab_path},
        {"merges.txt:", merges_path}}) {
    if (!complaint.starts_with(name)) continue;
    return std::string(path) + ":" + std::string(complaint.substr(name.size()));
  }
  return std::string(vocab_path) + ": " + std::string(complaint);
}

}  // namespace tok
