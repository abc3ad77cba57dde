// SPDX-License-Identifier: MIT
// SampleIndex: the tokens of sample i of a training run, exactly as in Megatron-core's GPTDataset:
// a shuffled list of sequences (document_index), where in it each sample begins (sample_index), and
// the order in which samples are drawn (shuffle_index). Also the two blending rules that interleave
// datasets. What a run needs beyond one dataset (weights, splits, cache files) is in
// training_data.h. Letters: S seq_length, x 1 if a sample carries one token more than S (its last
// label), else 0; T tokens per epoch, E epochs, n samples. Source: docs/format/sample-index.5.md;
// megatron/core/datasets/gpt_dataset.py and helpers.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libindexed/dataset.h"
#include "libindexed/npy.h"

namespace indexed {

/// Whose arrays: megatron-core as of 2025 and 2026, or the forks of 2023 (sample_index always
/// int64, another split rounding, other blend sizes, other cache names).
enum class Compat { megatron_core, fork_2023 };

/// Sequences [begin, end) of a dataset.
struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
};

/// What the arrays depend on besides the lengths of the sequences.
struct SampleIndexOptions {
  int64_t seq_length = 0;  ///< S
  uint32_t seed = 1234;
  std::optional<int64_t> num_samples = {};  ///< at least this many; nothing: exactly one epoch
  bool extra_token = true;                  ///< x = 1
  bool drop_last_partial = true;  ///< false: a last sample shorter than S exists (validation only)
  std::optional<int64_t> num_epochs = {};  ///< forces E (the forks' --train-data-exact-num-epochs)
  Compat compat = Compat::megatron_core;
  bool separate_last_epoch = true;  ///< false: all epochs are shuffled together, as in GPT-NeoX
  std::string_view split = {};      ///< for messages: whose samples these are
};

/// How often the data is repeated, and whether the last repetition is shuffled separately.
struct EpochPlan {
  int64_t tokens_per_epoch = 0;  ///< T
  int64_t num_epochs = 1;        ///< E
  bool separate_last_epoch = false;
  int64_t samples_before_last_epoch = 0;  ///< meaningful when separate
  int64_t num_samples = 0;                ///< n
};

/// The plan for these sequences. Time O(end - begin).
/// Errors: FormatError if samples are requested from a range without tokens (Megatron would loop
/// forever), or more of them than 64-bit numbers of tokens and sequences can count.
EpochPlan plan_epochs(const IndexedDataset& dataset, SequenceRange range,
                      const SampleIndexOptions& options);

/// A piece of a sample: `num_tokens` tokens of a sequence from `offset` on.
struct SamplePiece {
  int64_t sequence;
  int64_t offset;
  int64_t num_tokens;
};

/// The three arrays of one dataset and split; built, or mapped from cache files. Reading is for
/// many threads.
class SampleIndex {
 public:
  /// Builds the arrays in memory: 4 bytes a shuffled sequence, 8 (int64: 16) and 4 bytes a sample.
  /// Errors: as plan_epochs; FormatError when a range exceeds 2^31-1 sequences.
  static SampleIndex build(const IndexedDataset& dataset, SequenceRange range,
                           const SampleIndexOptions& options);

  /// Uses arrays that were read from cache files, after checking them against the dataset: shapes,
  /// types, bounds, offsets. Errors: FormatError naming `place`.
  static SampleIndex adopt(IndexArray document_index, IndexArray sample_index,
                           IndexArray shuffle_index, const IndexedDataset& dataset,
                           const SampleIndexOptions& options, const std::string& place);

  /// Whether these are the arrays of that plan but for their order: each sequence of the range once
  /// an epoch, each sample once, each beginning seq_length tokens behind the one before. Adopted
  /// ones may be of other data. Time as for build() without its shuffling.
  bool fits(const IndexedDataset& dataset, SequenceRange range, const EpochPlan& plan,
            const SampleIndexOptions& options) const;

  int64_t num_samples() const noexcept { return shuffle_index_.rows(); }

  /// The pieces of sample `i`, in order, together S+x tokens (fewer only for a last partial
  /// sample).
  void pieces(int64_t i, const IndexedDataset& dataset, std::vector<SamplePiece>& out) const;

  /// Copies the tokens of sample `i` into `out` (S+x long); returns how many; the rest of `out` is
  /// unchanged.
  int64_t read(int64_t i, const IndexedDataset& dataset, std::span<int32_t> out) const;

  const IndexArray& document_index() const noexcept { return document_index_; }
  const IndexArray& sample_index() const noexcept { return sample_index_; }
  const IndexArray& shuffle_index() const noexcept { return shuffle_index_; }

 private:
  template <class Visit>
  void visit(int64_t i, const IndexedDataset& dataset, Visit visit) const;

  IndexArray document_index_;  // i4
  IndexArray sample_index_;    // i4 or i8, (n+1, 2)
  IndexArray shuffle_index_;   // u4 or i8
  int64_t extra_token_ = 1;
};

/// For each sample of a blend, the dataset and the sample in it.
struct BlendIndex {
  IndexArray dataset_index;          ///< i2 (u1 for the 2023 forks)
  IndexArray dataset_sample_index;   ///< i8
  std::vector<int64_t> counts = {};  ///< samples taken of each dataset
};

/// `size` samples in proportion to `weights` (already normalised): always the dataset that is
/// furthest behind. Errors: FormatError for more datasets than the index type holds, or none.
BlendIndex build_blend(std::span<const double> weights, int64_t size,
                       Compat compat = Compat::megatron_core);

/// Exactly sizes[i] samples of dataset i, in proportion.
BlendIndex build_exhaustive_blend(std::span<const int64_t> sizes);

}  // namespace indexed
