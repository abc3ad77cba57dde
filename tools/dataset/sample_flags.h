// SPDX-License-Identifier: MIT
// Room: tools/dataset. The flags that define the samples of a training run, under Megatron's names,
// and the indexed::TrainingDataOptions that follow from them. Shared by shuffle-index and
// inspect-dataset where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libindexed/training_data.h"
#include "tools/cli/fields.h"
#include "tools/cli/flags.h"

namespace dataset {

/// One field for each flag, as given.
struct SampleFlags {
  std::vector<std::string> data_path = {};
  std::vector<std::string> train_data_path = {};
  std::vector<std::string> valid_data_path = {};
  std::vector<std::string> test_data_path = {};
  std::string data_args_path = {};
  std::string per_split_data_args_path = {};
  std::string split = {};
  int64_t seq_length = 0;
  int64_t seed = 1234;
  std::string data_cache_path = {};
  std::optional<int64_t> train_samples = {};
  std::optional<int64_t> train_iters = {};
  std::optional<int64_t> global_batch_size = {};
  int64_t eval_interval = 1000;
  int64_t eval_iters = 100;
  std::string samples = {};
  double surplus = 0.005;
  bool keep_last_partial = false;
  bool no_extra_token = false;
  std::optional<int64_t> train_epochs = {};
  std::string compat = "megatron-core";
  std::string sample_order = "megatron";
  bool permuted = false;

  std::string tokenizer_type = {};
  std::string tokenizer_model = {};
  std::string vocab_file = {};
  std::string merge_file = {};
  std::optional<int64_t> vocab_size = {};
  std::optional<int64_t> null_tokenizer_eod_id = {};
  std::optional<int64_t> null_tokenizer_pad_id = {};
  std::string tiktoken_pattern = {};
  int64_t tiktoken_num_special_tokens = 1000;
  bool use_fast = false, no_use_fast = false;
  bool trust_remote_code = false;
  bool include_special_tokens = false, no_special_tokens = false;
  bool sentencepiece_legacy = false;
  bool keep_whitespace = false;
  std::string use_gigatoken = {};
};

/// The rows: data and sizes, and (apart) the tokenizer, which only names cache files.
cli::Group<SampleFlags> sample_group();
cli::Group<SampleFlags> tokenizer_group();

/// The tokenizer's rows for a program that also opens its files (load_tokenizer.h), under `title`.
cli::Group<SampleFlags> opened_tokenizer_group(std::string_view title);

/// The program and release whose names --compat asks for: "megatron-core-0.20".
std::string tree_of(const SampleFlags& flags);

/// The options that the flags give. Reads the files that --data-args-path and
/// --per-split-data-args-path name.
/// Errors: cli::UsageError for missing or contradicting flags; FormatError and std::system_error
/// from files.
indexed::TrainingDataOptions training_data_options(const SampleFlags& flags);

}  // namespace dataset
