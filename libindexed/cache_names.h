// SPDX-License-Identifier: MIT
// The names of Megatron's cached index arrays: a description of everything on which (it believes)
// they depend, and the description's MD5. Text in, text out; training_data.h reads and writes the
// files.
// Source: docs/format/sample-index.5.md; megatron/core/datasets/megatron_dataset.py and
// blended_dataset.py; for the forks, megatron/data/gpt_dataset.py and blendable_dataset.py of 2023.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libindexed/blend.h"
#include "libindexed/json.h"

namespace indexed {

/// Whose order of samples, and whose cache files: megatron-core's, NVIDIA's of mid-2023, those of
/// Megatron-DeepSpeed, which adds the number of epochs, GPT-NeoX's, or its release 2.0's, which has
/// the same arrays under shorter names.
enum class CacheStyle { megatron_core, megatron_2023, megatron_deepspeed, gpt_neox, gpt_neox_2_0 };

/// Whether it is GPT-NeoX's.
bool is_neox(CacheStyle style);

/// Releases of megatron-core whose descriptions of a tokenizer differ; each value means that
/// release and those up to the next. 0.20 is the main branch of August 2026.
enum class CoreRelease { v0_16, v0_17, v0_18, v0_20 };
constexpr CoreRelease kNewestCore = CoreRelease::v0_20;

/// The release named `name`: 0.16 to 0.20. Errors: FormatError for any other.
CoreRelease core_release(std::string_view name);

/// Whether a run uses gigatoken; 0.20 has the flag. `absent`: a version of 0.20 from before it.
enum class Gigatoken { by_release, absent, off, on };

/// The tokenizer in megatron-core's description; each field is the flag of that name, and an absent
/// one has the release's default.
struct TokenizerFlags {
  std::string tokenizer_type = {};  ///< empty: described as null
  std::string tokenizer_model = {};
  std::string vocab_file = {};
  std::string merge_file = {};
  int64_t vocab_size = 0;
  std::optional<int64_t> null_tokenizer_eod_id = {};
  std::optional<int64_t> null_tokenizer_pad_id = {};
  std::string tiktoken_pattern = {};
  int64_t tiktoken_num_special_tokens = 1000;
  std::optional<bool> use_fast = {};  ///< on by default from 0.17
  bool trust_remote_code = false;
  std::optional<bool> include_special_tokens = {};  ///< on by default from 0.17
  bool ignore_extra_whitespaces = true;
  bool sentencepiece_legacy = false;
  std::vector<std::string> special_tokens = {};
  Gigatoken use_gigatoken = Gigatoken::by_release;
};

/// The "unique identifiers" of that release's tokenizer; null without a type.
/// Errors: FormatError for a type that megatron-core does not build for text, or a flag that the
/// release does not have.
/// Source: megatron/core/tokenizers/utils/build_tokenizer.py and text/text_tokenizer.py.
Json describe_tokenizer(const TokenizerFlags& flags, CoreRelease release = kNewestCore);

/// One dataset of one split.
struct DatasetIdentity {
  std::string prefix = {};  ///< exactly as the user gives it to the training run
  std::optional<int64_t> num_samples = {};
  int64_t split = 0;  ///< 0 train, 1 valid, 2 test
  int64_t seed = 1234;
  int64_t seq_length = 0;
  std::optional<std::string> split_string = {};  ///< absent with per-split paths
  std::optional<int64_t> own_place = {};         ///< with per-split paths: which of them
  int64_t num_epochs = 1;                        ///< for megatron_deepspeed
  Json tokenizer = {};                           ///< for megatron_core
};

/// The description of one dataset's arrays. As JSON only for megatron_core; empty for GPT-NeoX.
Json describe_dataset(const DatasetIdentity& identity);
std::string description_text(const DatasetIdentity& identity, CacheStyle style);

/// The description of a blend. `size` absent: exhaustive. Weights are the ones the arrays are built
/// with: normalised twice, or the datasets' lengths when exhaustive.
std::string blend_description(std::span<const DatasetIdentity> datasets,
                              std::span<const double> weights, std::optional<int64_t> size,
                              CacheStyle style);

/// The folder of a dataset's arrays if the user names none, and the files' paths.
struct CacheFiles {
  std::string description;          ///< empty: there is none
  std::vector<std::string> arrays;  ///< document, sample, shuffle; or dataset, dataset sample
};
std::string default_cache_folder(const std::string& prefix, CacheStyle style);
CacheFiles dataset_cache_files(const std::string& folder, const std::string& hash, int64_t split,
                               CacheStyle style);
/// GPT-NeoX's, beside the dataset. Source: GPT-NeoX, megatron/data/gpt2_dataset.py, data_utils.py.
CacheFiles neox_cache_files(const DatasetIdentity& identity, CacheStyle style);
CacheFiles blend_cache_files(const std::string& folder, const std::string& hash, int64_t split,
                             CacheStyle style);

/// str(numpy.array(values)): 8 decimals at most, equal widths, lines of 75 columns.
std::string numpy_text(std::span<const double> values);

}  // namespace indexed
