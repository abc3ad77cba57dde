// What the tests of GPT-NeoX's configurations share: a small model's, and reading files with a
// command line as the trainer does.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tools/cli/parse.h"
#include "trainer/config/flags.h"

namespace trainer {

inline constexpr const char* kModel = R"({
  # JSON in YAML: comments, both spellings of keys, True, a comma at the end
  "num-layers": 6, "hidden_size": 512, "num-attention-heads": 8, "seq_length": 64,
  "max-position-embeddings": 64, "train_micro_batch_size_per_gpu": 4, "train-iters": 100,
  "optimizer": {"type": "Adam", "params": {"lr": 6.0e-4, "betas": [0.9, 0.95],}},
  "data_path": "d",
})";

struct Result {
  TrainConfig config;
  std::vector<std::string> idle, remarks;
  std::string error;
};

inline Result read(const std::vector<std::string>& texts,
                   const std::vector<std::string>& line = {}) {
  Result result;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), result.config);
  cli::Parsed parsed = cli::parse_arguments(rows, line);
  std::vector<NamedText> files;
  for (const std::string& text : texts)
    files.push_back({std::string(1, static_cast<char>('a' + files.size())) + ".yml", text});
  try {
    result.idle = apply_neox(result.config, parsed.given, files, result.remarks);
    derive_and_check(result.config, parsed.given, 1);
  } catch (const cli::UsageError& error) {
    result.error = error.what();
  }
  return result;
}

// The model with more keys.
inline Result with(const std::string& more, const std::vector<std::string>& line = {}) {
  return read({kModel, "{" + more + "}"}, line);
}

// What the files leave out has a remark of its own; see WhatIsLeftOutIsGptNeoxs.
inline constexpr const char* kComplete =
    "hidden_dropout: 0\nattention_dropout: 0\nweight_decay: 0.1\n";

}  // namespace trainer
