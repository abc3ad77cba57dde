// From flags to the data they name: how many samples each split must have, and the words of
// --data-path from wherever they come. See batch_loader.h.
// Source: Megatron-LM training.py and get_blend_and_blend_per_split.
//
// SPDX-License-Identifier: MIT
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include <nlohmann/json.hpp>

#include "libindexed/format.h"
#include "libindexed/message.h"
#include "trainer/data/batch_loader.h"

namespace trainer {
namespace {

using Words = std::vector<std::string>;

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::system_error(errno, std::generic_category(), path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Words split_words(const std::string& text) {
  std::istringstream in(text);
  return Words(std::istream_iterator<std::string>(in), {});
}

// {"train": ..., "valid": ..., "test": ...}: each null, a list of words, or one text of words.
std::array<Words, 3> read_split_words(const std::string& path) {
  std::array<Words, 3> out;
  try {
    const nlohmann::json root = nlohmann::json::parse(read_text(path));
    const char* const names[] = {"train", "valid", "test"};
    for (size_t i = 0; i < 3; ++i) {
      const nlohmann::json& value = root.at(names[i]);
      if (value.is_string())
        out[i] = split_words(value.get<std::string>());
      else if (!value.is_null())
        value.get_to(out[i]);
    }
  } catch (const nlohmann::json::exception& error) {
    throw indexed::FormatError(indexed::message(path, ": ", error.what()));
  }
  return out;
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
  options.data_path = config.data_args_path.empty() ? config.data_path
                                                    : split_words(read_text(config.data_args_path));
  options.split_data_path = {config.train_data_path, config.valid_data_path, config.test_data_path};
  if (!config.per_split_data_args_path.empty()) {
    options.split_data_path = read_split_words(config.per_split_data_args_path);
  }
  options.split = config.derived.split;
  options.seq_length = config.seq_length;
  options.seed = config.seed;
  const std::array<int64_t, 3> samples = requested_samples(config);
  for (size_t i = 0; i < 3; ++i) options.num_samples[i] = samples[i];
  options.surplus = config.mid_level_dataset_surplus;
  return indexed::TrainingData::build(options);
}

}  // namespace trainer
