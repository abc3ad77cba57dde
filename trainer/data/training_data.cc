// From flags to the data that they name: how many samples each split must have, and the words of
// --data-path from all possible places. See batch_loader.h.
// Source: Megatron-LM training.py and get_blend_and_blend_per_split.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <filesystem>

#include "libindexed/blend.h"
#include "libindexed/cache_names.h"
#include "libindexed/dataset.h"
#include "libindexed/format.h"
#include "tools/cli/flags.h"
#include "trainer/data/batch_loader.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

// The tokenizer as the newest megatron-core describes it in the names of its cache files, like
// shuffle-index by default.
indexed::Json tokenizer_description(const TrainConfig& config) {
  indexed::TokenizerFlags flags;
  flags.tokenizer_type = config.tokenizer_type;
  flags.tokenizer_model = config.tokenizer_model;
  flags.vocab_file = config.vocab_file;
  flags.merge_file = config.merge_file;
  flags.vocab_size = config.vocab_size.value_or(0);
  flags.null_tokenizer_eod_id = config.eod_id;
  try {
    return indexed::describe_tokenizer(flags);
  } catch (const indexed::FormatError& error) {
    throw cli::UsageError(std::string("--data-cache-path: ") + error.what());
  }
}

// The words of --data-path, and of the paths of each split, from all possible places. Errors:
// cli::UsageError for an invalid blend or split.
std::array<std::vector<std::string>, 4> words_of(const TrainConfig& config) {
  std::array<std::vector<std::string>, 4> words = {
      config.data_args_path.empty() ? config.data_path
                                    : indexed::read_blend_words(config.data_args_path),
      config.train_data_path, config.valid_data_path, config.test_data_path};
  if (!config.per_split_data_args_path.empty()) {
    const std::array<std::vector<std::string>, 3> per_split =
        indexed::read_blend_words_per_split(config.per_split_data_args_path);
    std::ranges::copy(per_split, words.begin() + 1);
  }
  constexpr const char* kFlags[] = {"--data-path", "--train-data-path", "--valid-data-path",
                                    "--test-data-path"};
  try {
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i].empty()) continue;
      const indexed::Blend blend = indexed::parse_blend(words[i]);
      indexed::refuse_stray_weights(blend);
      for (const std::string& prefix : blend.prefixes)
        if ((prefix.ends_with(".bin") || prefix.ends_with(".idx")) && fs::exists(prefix))
          throw cli::UsageError(std::string(kFlags[i]) + " " + prefix +
                                ": name it without .bin or .idx");
    }
    if (!config.derived.split.empty()) indexed::parse_split(config.derived.split);
  } catch (const indexed::FormatError& error) {
    throw cli::UsageError(error.what());
  }
  return words;
}

}  // namespace

std::array<int64_t, 3> requested_samples(const TrainConfig& config) noexcept {
  const TrainConfig::Derived& d = config.derived;
  const int64_t evaluation = config.eval_iters * d.global_batch_size;
  const int64_t evaluations = config.skip_train ? 1 : d.train_iters / config.eval_interval + 1;
  return {d.train_samples, evaluations * evaluation, evaluation};
}

std::vector<std::string> splits_asked(const TrainConfig& config) {
  std::vector<std::string> asked;
  if (config.derived.split.empty()) return asked;
  const indexed::SplitMatrix shares = indexed::parse_split(config.derived.split);
  for (size_t i = 0; i < 3; ++i)
    if (shares[i]) asked.emplace_back(std::array{"train", "valid", "test"}[i]);
  return asked;
}

std::vector<std::string> dataset_prefixes(const TrainConfig& config) {
  std::vector<std::string> prefixes;
  for (const std::vector<std::string>& words : words_of(config)) {
    if (words.empty()) continue;
    for (const std::string& prefix : indexed::parse_blend(words).prefixes)
      if (std::ranges::find(prefixes, prefix) == prefixes.end()) prefixes.push_back(prefix);
  }
  return prefixes;
}

indexed::TrainingData open_training_data(const TrainConfig& config, indexed::CacheUse cache) {
  indexed::TrainingDataOptions options;
  options.open.refuse = indexed::MappedFile::Refuse::cuts;
  const std::array<std::vector<std::string>, 4> words = words_of(config);
  options.data_path = words[0];
  for (size_t i = 0; i < 3; ++i) options.split_data_path[i] = words[i + 1];
  options.split = config.derived.split;
  options.skip_empty_evaluation = true;
  options.seq_length = config.seq_length;
  options.seed = config.seed;
  const std::array<int64_t, 3> samples = requested_samples(config);
  for (size_t i = 0; i < 3; ++i) options.num_samples[i] = samples[i];
  options.surplus = config.mid_level_dataset_surplus;
  if (config.sample_order == "gpt-neox") {
    indexed::use_neox_order(options);
  } else if (!config.data_cache_path.empty()) {
    options.cache = cache;
    options.cache_path = config.data_cache_path;
    options.tokenizer = tokenizer_description(config);
  }
  return indexed::TrainingData::build(options);
}

}  // namespace trainer
