// SPDX-License-Identifier: MIT
// From the words of --data-path, --split and the training sizes to numbers: which datasets, with
// which weights, which part of each, how many samples of each. Every rounding, summation order and
// quirk is the reference's, because the arrays built from these numbers must equal its arrays. No
// file is opened here except the list that the user names.
// Source: docs/format/sample-index.5.md; megatron/core/datasets/utils.py,
// blended_megatron_dataset_builder.py and blended_megatron_dataset_config.py; for
// Compat::fork_2023, megatron/data/dataset_utils.py of 2023.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libindexed/sample_index.h"

namespace indexed {

inline constexpr std::array<std::string_view, 3> kSplitNames = {"train", "valid", "test"};

/// Datasets and, unless they are to be inferred from lengths, weights; both as the user gave them.
struct Blend {
  std::vector<std::string> prefixes = {};
  std::vector<double> weights = {};  ///< empty: inferred
};

/// The grammar of --data-path: `PREFIX`, `WEIGHT PREFIX WEIGHT PREFIX ...`, or `PREFIX PREFIX
/// PREFIX`. As in the reference, an odd number of words are prefixes, and so is an even number in
/// which, from some pair on, the first words are not numbers. The forks of 2023 accept one prefix
/// or pairs.
/// Errors: FormatError for mixtures, and for weights that are not positive and finite.
Blend parse_blend(std::span<const std::string> words, Compat compat = Compat::megatron_core);

/// Refuses a prefix that is a number and names no dataset: a weight, of which there is one for
/// every dataset or none. Errors: FormatError.
void refuse_stray_weights(const Blend& blend);

/// The words of a --data-args-path file, divided at white space. Errors: std::system_error.
std::vector<std::string> read_blend_words(const std::string& path);

/// The words of a --per-split-data-args-path file: a JSON object with train, valid and test, each a
/// list of words, one string, or null. Errors: FormatError, std::system_error.
std::array<std::vector<std::string>, 3> read_blend_words_per_split(const std::string& path);

/// numpy.sum of doubles: eight running sums, pairwise beyond 128, in that order.
double numpy_sum(std::span<const double> values) noexcept;

/// values / numpy_sum(values).
std::vector<double> normalize(std::span<const double> values);

/// Fractions of a dataset, [begin, end); nothing for an empty split.
struct SplitFraction {
  double begin;
  double end;
};
using SplitMatrix = std::array<std::optional<SplitFraction>, 3>;

/// `--split 969,30,1` as fractions. Errors: FormatError for more than three numbers, or all zero.
SplitMatrix parse_split(const std::string& split);

/// The sequences of each split of a dataset of `num_sequences`; nothing for an absent one.
std::array<std::optional<SequenceRange>, 3> split_ranges(const std::string& split,
                                                         int64_t num_sequences,
                                                         Compat compat = Compat::megatron_core);

/// How many samples to take from each dataset and how many to prepare (a little more), for one
/// split of `size` samples. Errors: FormatError where they are more than 64 bits count.
struct BlendSizes {
  std::vector<int64_t> take = {};
  std::vector<int64_t> prepare = {};
  int64_t blend_size = 0;  ///< sum of the samples taken; slightly more than requested
};
BlendSizes blend_sizes(std::span<const double> normalized_weights, int64_t size,
                       double surplus = 0.005, Compat compat = Compat::megatron_core);

/// The number of samples that a training run needs, from its flags. Errors: FormatError where they
/// are more than 64 bits count.
struct RunLength {
  std::optional<int64_t> train_samples = {};
  int64_t train_iters = 0;
  int64_t global_batch_size = 0;
  int64_t eval_interval = 1000;
  int64_t eval_iters = 100;
};
std::array<int64_t, 3> requested_samples(const RunLength& run);

}  // namespace indexed
