// From flags to the data they name: how many samples each split must have, and the words of
// --data-path from wherever they come. See batch_loader.h.
// Source: Megatron-LM training.py and get_blend_and_blend_per_split.
//
// SPDX-License-Identifier: MIT
#include "libindexed/cache_names.h"
#include "libindexed/format.h"
#include "tools/cli/flags.h"
#include "trainer/data/batch_loader.h"

namespace trainer {
namespace {

// The tokenizer as Megatron describes it in the names of its cache files.
indexed::Json tokenizer_description(const TrainConfig& config) {
  indexed::TokenizerFlags flags;
  flags.tokenizer_type = config.tokenizer_type;
  flags.tokenizer_model = config.tokenizer_model;
  flags.vocab_file = config.vocab_file;
  flags.merge_file = config.merge_file;
  flags.vocab_size = config.vocab_size.value_or(0);
  try {
    return indexed::describe_tokenizer(flags);
  } catch (const indexed::FormatError& error) {
    throw cli::UsageError(std::string("--data-cache-path: ") + error.what());
  }
}

}  // namespace

std::array<int64_t, 3> requested_samples(const TrainConfig& config) noexcept {
  const TrainConfig::Derived& d = config.derived;
  const int64_t evaluation = config.eval_iters * d.global_batch_size;
  const int64_t evaluations = config.skip_train ? 1 : d.train_iters / config.eval_interval + 1;
  return {d.train_samples, evaluations * evaluation, evaluation};
}

indexed::TrainingData open_training_data(const TrainConfig& config) {
  indexed::TrainingDataOptions options;
  options.data_path = config.data_args_path.empty()
                          ? config.data_path
                          : indexed::read_blend_words(config.data_args_path);
  options.split_data_path = {config.train_data_path, config.valid_data_path, config.test_data_path};
  if (!config.per_split_data_args_path.empty()) {
    options.split_data_path = indexed::read_blend_words_per_split(config.per_split_data_args_path);
  }
  options.split = config.derived.split;
  options.seq_length = config.seq_length;
  options.seed = config.seed;
  const std::array<int64_t, 3> samples = requested_samples(config);
  for (size_t i = 0; i < 3; ++i) options.num_samples[i] = samples[i];
  options.surplus = config.mid_level_dataset_surplus;
  if (!config.data_cache_path.empty()) {
    options.cache = indexed::CacheUse::keep;
    options.cache_path = config.data_cache_path;
    options.tokenizer = tokenizer_description(config);
  }
  return indexed::TrainingData::build(options);
}

}  // namespace trainer
