// See vocabulary.h. Which reader a file wants is told by its name first and by its other half
// second; contents are libtok's to judge.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/vocabulary.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using cli::concat;
using cli::UsageError;

// The files of a folder, the whole one first.
TokenizerFiles in_folder(const std::string& folder) {
  if (fs::exists(folder + "/tokenizer.json")) return {.vocab_file = folder + "/tokenizer.json"};
  if (fs::exists(folder + "/vocab.json") && fs::exists(folder + "/merges.txt")) {
    return {.vocab_file = folder + "/vocab.json", .merge_file = folder + "/merges.txt"};
  }
  throw UsageError(concat(folder, ": no tokenizer.json there, nor vocab.json with merges.txt"));
}

}  // namespace

std::string read_text_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::system_error(errno, std::generic_category(), path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

namespace {

// What `make` returns, or its complaint about a file, under the name that the user gave it.
template <class Make>
tok::Tokenizer named(const std::string& vocab, const std::string& merges, Make make) {
  try {
    return make();
  } catch (const tok::ParseError& error) {
    std::string text = error.what();
    for (const auto& [general, path] : {std::pair(std::string("vocab.json:"), vocab),
                                        std::pair(std::string("tokenizer.json:"), vocab),
                                        std::pair(std::string("merges.txt:"), merges)}) {
      if (text.starts_with(general))
        throw tok::ParseError(concat(path, ":", text.substr(general.size())));
    }
    throw tok::ParseError(concat(vocab, ": ", text));
  }
}

tok::Tokenizer from_json(const std::string& path) {
  const std::string text = read_text_file(path);
  return named(path, "", [&] { return tok::Tokenizer::from_tokenizer_json(text); });
}

}  // namespace

std::optional<tok::Tokenizer> load_tokenizer(const TokenizerFiles& files) {
  if (!files.tokenizer_model.empty()) {
    if (!fs::exists(files.tokenizer_model)) {
      throw UsageError(concat("--tokenizer-model ", files.tokenizer_model,
                              ": no such file or folder (nothing is downloaded: give a "
                              "tokenizer.json, or a folder that holds one)"));
    }
    if (fs::is_directory(files.tokenizer_model))
      return load_tokenizer(in_folder(files.tokenizer_model));
    if (files.tokenizer_model.ends_with(".model")) {
      throw UsageError(
          concat("--tokenizer-model ", files.tokenizer_model,
                 ": sentencepiece models are not read; name a tokenizer.json, or --vocab-size"));
    }
    return from_json(files.tokenizer_model);
  }
  if (files.vocab_file.empty()) {
    if (!files.merge_file.empty()) throw UsageError("--merge-file needs --vocab-file");
    return std::nullopt;
  }
  const std::string name = fs::path(files.vocab_file).filename().string();
  if (name.ends_with(".tiktoken")) {
    const std::string ranks = read_text_file(files.vocab_file);
    return named(files.vocab_file, "", [&] {
      return tok::Tokenizer::from_tiktoken(ranks, fs::path(name).stem().string());
    });
  }
  if (!files.merge_file.empty()) {
    const std::string vocab = read_text_file(files.vocab_file);
    const std::string merges = read_text_file(files.merge_file);
    return named(files.vocab_file, files.merge_file,
                 [&] { return tok::Tokenizer::from_gpt2(vocab, merges); });
  }
  if (name.ends_with("vocab.json"))
    throw UsageError(concat("--vocab-file ", files.vocab_file, " needs --merge-file"));
  return from_json(files.vocab_file);
}

Vocabulary find_vocabulary(const TrainConfig& config) {
  const std::optional<tok::Tokenizer> tokenizer =
      load_tokenizer({config.vocab_file, config.merge_file, config.tokenizer_model});
  Vocabulary vocabulary;
  if (tokenizer) {
    const int64_t size = std::max<int64_t>(tokenizer->vocab_size(), tokenizer->id_limit());
    vocabulary.vocab_size = config.vocab_size.value_or(size);
    vocabulary.eod_id = tokenizer->eod_id().value_or(-1);
    if (vocabulary.vocab_size < size) {
      throw UsageError(
          concat("--vocab-size ", vocabulary.vocab_size, " is less than the tokenizer's ", size));
    }
  } else if (config.vocab_size) {
    vocabulary.vocab_size = *config.vocab_size;
  } else {
    throw UsageError("--vocab-file is missing (or --tokenizer-model, or --vocab-size)");
  }
  vocabulary.vocab_size += config.extra_vocab_size;
  if (config.eod_id) vocabulary.eod_id = *config.eod_id;
  if (vocabulary.eod_id >= vocabulary.vocab_size) {
    throw UsageError(concat("--eod-id ", vocabulary.eod_id, ": the vocabulary has ids 0 to ",
                            vocabulary.vocab_size - 1));
  }
  const bool needs_eod =
      config.eod_mask_loss || config.reset_position_ids || config.reset_attention_mask;
  if (needs_eod && vocabulary.eod_id < 0) {
    throw UsageError(
        "--eod-mask-loss, --reset-position-ids and --reset-attention-mask need --eod-id");
  }
  return vocabulary;
}

}  // namespace trainer
