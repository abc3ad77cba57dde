// SPDX-License-Identifier: MIT
// TrainingData: the train, valid and test samples of a run, in the order in which Megatron draws
// them, from the flags that name datasets, weights, splits and sizes. Arrays are built in memory,
// or read from and written to Megatron's own cache files. shuffle-index writes those files through
// this, the trainer reads its samples through it.
// Shapes: a sample is S+1 tokens (S with extra_token off). Source: docs/format/sample-index.5.md.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libindexed/blend.h"
#include "libindexed/cache_names.h"
#include "libindexed/dataset.h"
#include "libindexed/sample_index.h"

namespace indexed {

/// What to do about Megatron's cache files.
enum class CacheUse {
  none,  ///< build in memory
  /// Use files that are complete, fit the dataset and are not older than its .idx; else build.
  read,
  write,  ///< build, and write files that are missing or differ
  keep,   ///< read; arrays that had to be built are written, as in Megatron's own runs
};

/// The flags of a run that determine its samples.
struct TrainingDataOptions {
  std::vector<std::string> data_path = {};  ///< words of --data-path; empty: per split
  std::array<std::vector<std::string>, 3> split_data_path =
      {};                            ///< words of --train-, --valid-, --test-data-path
  std::string split = "969, 30, 1";  ///< with data_path; part of the cache's name, unchanged
  int64_t seq_length = 0;
  int64_t seed = 1234;
  std::array<std::optional<int64_t>, 3> num_samples =
      {};  ///< nothing: one epoch, only without weights
  bool extra_token = true;
  bool drop_last_partial_validation = true;
  double surplus = 0.005;  ///< --mid-level-dataset-surplus
  /// If a --split leaves no sequence of any dataset to valid or test, that split is absent, as in
  /// Megatron 2 and 3; otherwise requesting samples from it is an error.
  bool skip_empty_evaluation = false;
  std::optional<int64_t> train_epochs = {};  ///< forces the epochs of train (2023 forks)
  CacheStyle style = CacheStyle::megatron_core;
  CacheUse cache = CacheUse::none;
  std::string cache_path = {};  ///< --data-cache-path; empty: beside each dataset, no blends
  Json tokenizer = {};          ///< describe_tokenizer()
  OpenOptions open = {};
  /// Called before each set of arrays is built: what it is, for people.
  std::function<void(const std::string&)> on_build = {};
};

/// For GPT-NeoX's order: sets the style unless it is one of GPT-NeoX's; a split's own paths get the
/// weight 1 if they have none, as there. Errors: FormatError for an invalid blend.
void use_neox_order(TrainingDataOptions& options);

/// One dataset's part of one split.
struct SplitMember {
  size_t dataset = 0;  ///< which of TrainingData::datasets()
  SequenceRange range = {};
  DatasetIdentity identity = {};
  SampleIndex index = {};
  std::string description = {};
  std::string hash = {};
};

/// A file of the cache, and whether it was written.
struct CacheFile {
  std::string path;
  bool written;  ///< false: it existed already with these bytes
};

/// The samples of one split.
class SplitData {
 public:
  int64_t num_samples() const noexcept {
    return blend_ ? blend_->dataset_index.rows() : members_[0].index.num_samples();
  }

  /// Where sample `i` comes from, 0 <= i < num_samples().
  struct Place {
    const SplitMember* member;
    int64_t sample;  ///< of the member
  };
  Place place(int64_t i) const noexcept {
    if (!blend_) return {&members_[0], i};
    return {&members_[static_cast<size_t>(blend_->dataset_index[i])],
            blend_->dataset_sample_index[i]};
  }

  const std::vector<SplitMember>& members() const noexcept { return members_; }
  const std::optional<BlendIndex>& blend() const noexcept { return blend_; }
  /// Weights as the blend was built with, its description and hash; empty without a blend.
  const std::vector<double>& weights() const noexcept { return weights_; }
  const std::string& description() const noexcept { return description_; }
  const std::string& hash() const noexcept { return hash_; }

 private:
  friend class TrainingData;
  std::vector<SplitMember> members_;
  std::optional<BlendIndex> blend_;
  std::vector<double> weights_;
  std::string description_;
  std::string hash_;
};

/// All splits of a run; move-only; reading is for any number of threads.
class TrainingData {
 public:
  /// Opens the datasets and builds or loads the arrays.
  /// Errors: FormatError for an invalid word, weight, split or dataset; std::system_error. Nothing
  /// is written unless options.cache is write; then files appear complete, the description last.
  static TrainingData build(const TrainingDataOptions& options);

  /// Split 0 train, 1 valid, 2 test; null where the run has none.
  const SplitData* split(int64_t i) const noexcept {
    const std::optional<SplitData>& split = splits_[static_cast<size_t>(i)];
    return split ? &*split : nullptr;
  }

  /// Copies the tokens of sample `i` of a split into `out` (S+x long); returns how many.
  int64_t read(const SplitData& split, int64_t i, std::span<int32_t> out) const {
    const SplitData::Place place = split.place(i);
    return place.member->index.read(place.sample, datasets_[place.member->dataset], out);
  }

  const std::deque<IndexedDataset>& datasets() const noexcept { return datasets_; }
  const std::vector<CacheFile>& cache_files() const noexcept { return cache_files_; }

 private:
  TrainingData() = default;
  size_t open_dataset(const std::string& prefix, const TrainingDataOptions& options);
  void add_split(size_t split, const Blend& blend, bool own_path,
                 const TrainingDataOptions& options);
  SplitMember build_member(size_t split, const std::string& prefix,
                           std::optional<SequenceRange> range, std::optional<int64_t> num_samples,
                           std::optional<int64_t> own_place, const TrainingDataOptions& options);
  void build_blend_layer(SplitData& data, size_t split, std::vector<double> weights,
                         std::optional<int64_t> size, bool lengths,
                         const TrainingDataOptions& options);
  void write_cache(const CacheFiles& files, const std::string& description,
                   std::span<const IndexArray* const> arrays);

  std::deque<IndexedDataset> datasets_;
  std::array<std::optional<SplitData>, 3> splits_;
  std::vector<CacheFile> cache_files_;
};

}  // namespace indexed
