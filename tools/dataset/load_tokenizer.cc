// SPDX-License-Identifier: MIT
// Room: tools/dataset. Loading the tokenizer of a command line; see load_tokenizer.h.
#include "tools/dataset/load_tokenizer.h"

#include <fstream>
#include <iterator>
#include <system_error>

namespace dataset {
namespace {

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::system_error(errno, std::generic_category(), path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Which ids a TikTokenizer's list of tokens has. How it cuts texts is not asked here.
tok::RankListOptions rank_list(const SampleFlags& flags) {
  tok::RankListOptions list{.num_special_tokens = flags.tiktoken_num_special_tokens};
  if (flags.vocab_size > 0) list.vocab_size = flags.vocab_size;
  return list;
}

}  // namespace

std::unique_ptr<tok::Tokenizer> load_tokenizer(const SampleFlags& flags,
                                               const std::string& tiktoken_encoding) {
  if (!flags.vocab_file.empty() && !flags.merge_file.empty()) {
    return std::make_unique<tok::Tokenizer>(
        tok::read_gpt2(read_whole(flags.vocab_file), read_whole(flags.merge_file)));
  }
  if (flags.tokenizer_model.empty()) return nullptr;
  const std::string bytes = read_whole(flags.tokenizer_model);
  if (flags.tokenizer_model.ends_with(".json") || tok::is_sentencepiece(bytes))
    return std::make_unique<tok::Tokenizer>(tok::read_tokenizer_file(bytes, rank_list(flags)));
  return std::make_unique<tok::Tokenizer>(tok::read_tiktoken(bytes, tiktoken_encoding));
}

}  // namespace dataset
