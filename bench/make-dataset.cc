// SPDX-License-Identifier: MIT
// make-dataset: seeded token datasets for the tools' tests and benchmarks; not installed.
//   make-dataset PREFIX DOCUMENTS MAX_TOKENS SEED
//     [no-manifest|uncounted-eod|int32|tokenizer=NAME]...
// Document k has 0 to MAX_TOKENS tokens (1 to 999) and, unless empty, the end-of-document token 0;
// its recorded source is line k+1 of SEED.jsonl. `uncounted-eod` makes the files that
// preprocess_data.py of mid-2023 made.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "libindexed/builder.h"
#include "libindexed/numpy_random.h"

namespace {

struct Recipe {
  std::string prefix;
  int64_t documents = 0;
  int64_t max_tokens = 0;
  uint32_t seed = 0;
  bool manifest = true;
  bool uncounted_eod = false;
  indexed::DType dtype = indexed::DType::uint16;
  std::string tokenizer = "made";
};

void make(const Recipe& recipe) {
  indexed::IndexedDatasetBuilder builder(
      recipe.prefix,
      {.dtype = recipe.dtype, .existing = indexed::Existing::replace, .manifest = recipe.manifest});
  indexed::RandomState random(recipe.seed);
  std::vector<int32_t> tokens;
  for (int64_t k = 0; k < recipe.documents; ++k) {
    tokens.resize(static_cast<size_t>(random.interval(static_cast<uint64_t>(recipe.max_tokens))));
    for (int32_t& token : tokens) token = 1 + static_cast<int32_t>(random.next() % 999);
    if (!tokens.empty()) tokens.push_back(0);
    builder.add_document(std::span<const int32_t>(tokens));
  }
  builder.finish({.tool = "make-dataset",
                  .tokenizer = recipe.tokenizer,
                  .tokenizer_hash = recipe.tokenizer,
                  .vocab_size = 1000,
                  .eod_token = 0,
                  .sources = {{.path = std::to_string(recipe.seed) + ".jsonl",
                               .first_document = 0,
                               .num_documents = recipe.documents,
                               .first_line = 1}}});
}

// The same .bin with an index that does not count the last token of each document.
void forget_eod(const std::string& prefix) {
  std::vector<int32_t> lengths, counts;
  {
    const auto data = indexed::IndexedDataset::open(prefix);
    for (int64_t k = 0; k < data.num_documents(); ++k) {
      const auto length = static_cast<int32_t>(data.document(k).size());
      counts.push_back(length > 0);
      if (length > 0) lengths.push_back(length - 1);
    }
  }
  std::filesystem::rename(prefix + ".bin", prefix + ".kept");
  indexed::IndexedDatasetBuilder builder(
      prefix,
      {.dtype = indexed::DType::uint16, .existing = indexed::Existing::replace, .manifest = false});
  int64_t tokens = 0;
  for (const int32_t length : lengths) tokens += length;
  builder.add_index(lengths, counts);
  builder.place(0, std::vector<std::byte>(static_cast<size_t>(tokens * 2)));
  builder.finish();
  std::filesystem::rename(prefix + ".kept", prefix + ".bin");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "make-dataset PREFIX DOCUMENTS MAX_TOKENS SEED [OPTION]...\n");
    return 2;
  }
  Recipe recipe{.prefix = argv[1],
                .documents = std::stoll(argv[2]),
                .max_tokens = std::stoll(argv[3]),
                .seed = static_cast<uint32_t>(std::stoul(argv[4]))};
  for (int i = 5; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "no-manifest") recipe.manifest = false;
    if (word == "uncounted-eod") recipe.uncounted_eod = true;
    if (word == "int32") recipe.dtype = indexed::DType::int32;
    if (word.starts_with("tokenizer=")) recipe.tokenizer = word.substr(10);
  }
  try {
    make(recipe);
    if (recipe.uncounted_eod) forget_eod(recipe.prefix);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make-dataset: %s\n", error.what());
    return 1;
  }
  return 0;
}
