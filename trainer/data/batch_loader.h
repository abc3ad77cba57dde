// BatchLoader: the micro-batches of one data-parallel rank, in the order in which Megatron's
// pretraining sampler gives them. It has no state: a batch depends only on how many samples the run
// has consumed, so that number is the data cursor, for training and for validation. Here: the
// choice of samples, and what follows from their tokens (labels, positions, masks). Not here: the
// order of samples in a dataset and the blending of datasets (libindexed/training_data.h).
// May include: libindexed, config/. Tokens are checked against the vocabulary as they are read.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libindexed/training_data.h"
#include "trainer/config/train_config.h"

namespace trainer {

/// Arrays to fill, one element for each token of a step's micro-batches on this rank: micro-batch
/// m, position s, sample b at (m * S + s) * B + b.
struct BatchArrays {
  std::span<int32_t> tokens = {};  ///< inputs.
  std::span<int32_t> labels = {};  ///< the token that follows each input.
  std::span<int32_t> positions =
      {};  ///< 0 .. S-1, from 0 again after an eod with reset_position_ids.
  std::span<float> loss_mask = {};  ///< 0 where the input is an eod with eod_mask_loss, else 1.
  /// First position to which a query may attend: 0, or the one after the last eod before it. May be
  /// empty.
  std::span<int32_t> first_key = {};
};

/// Options of a loader.
struct BatchLoaderOptions {
  int64_t seq_length = 0;
  int64_t micro_batch_size = 0;
  int64_t data_parallel_rank = 0;
  int64_t data_parallel_size = 1;
  int64_t vocab_size = 0;      ///< ids at or above it are an error.
  std::string one_above = {};  ///< ends that error, for the id `vocab_size`.
  int64_t eod_id = -1;         ///< needed with any of the three below.
  bool eod_mask_loss = false;
  bool reset_position_ids = false;  ///< for learned positions only, as in Megatron.
  bool reset_attention_mask = false;
  int64_t sliding_window = 0;  ///< Keys to which a query attends, including its own; 0: all before
                               ///< it.
  bool starts_over = false;    ///< The first sample follows the last one.
};

/// Micro-batches of one split. The data must outlive it. State: none; any number of threads.
class BatchLoader {
 public:
  BatchLoader(const indexed::TrainingData& data, const indexed::SplitData& split,
              BatchLoaderOptions options)
      : data_(&data), split_(&split), options_(options) {}

  /// Samples of the split.
  int64_t num_samples() const noexcept { return split_->num_samples(); }

  /// Fills the arrays with this rank's `num_microbatches` micro-batches of the global batch that
  /// follows after `consumed_samples`. With m = micro_batch_size and R = data_parallel_size,
  /// micro-batch k of rank r has m samples, from consumed + (k R + r) m on.
  /// Errors: indexed::FormatError for a token id that the vocabulary does not have, naming dataset
  /// and document, and for samples past the end of the split.
  void fill(int64_t consumed_samples, int64_t num_microbatches, const BatchArrays& out) const;

  /// Checksum, in hex, of the tokens of the last eight samples, or fewer, before
  /// `consumed_samples`, whichever rank reads them: it differs where the data or its order does.
  /// Empty if there are none, or the split has not so many.
  std::string digest(int64_t consumed_samples) const;

  /// Checksums, in hex with spaces between, of where the next 1, 2, 4 and so on up to 4096 samples
  /// come from: dataset, sequence and offset. As many as the split has samples for.
  std::string places(int64_t consumed_samples) const;

  /// The documents in those micro-batches: "PREFIX: documents 3, 17-19", one text for
  /// each dataset.
  std::vector<std::string> documents(int64_t consumed_samples, int64_t num_microbatches) const;

 private:
  int64_t sample(int64_t consumed_samples, int64_t microbatch, int64_t b) const;
  void check_tokens(int64_t sample, std::span<const int32_t> tokens) const;

  const indexed::TrainingData* data_;
  const indexed::SplitData* split_;
  BatchLoaderOptions options_;
};

/// What follows from the tokens of one sample, written with a stride: element s of each array of
/// `out` at s * stride. `tokens` are S + 1. Source: Megatron-LM gpt_dataset.py,
/// _get_ltor_masks_and_position_ids.
void fill_sample(std::span<const int32_t> tokens, const BatchLoaderOptions& options,
                 const BatchArrays& out, int64_t stride);

/// Number of tokens of `loss_mask` that count in the loss.
int64_t counted_tokens(std::span<const float> loss_mask) noexcept;

/// loss_mask *= num_microbatches * data_parallel_size / total_tokens, so that the mean over
/// data-parallel ranks and micro-batches of sum(loss_mask * token loss) is the mean over the
/// `total_tokens` that count in the whole step; all become 0 if none does.
/// Source: Megatron-LM --calculate-per-token-loss (finalize_model_grads.py).
void weigh_tokens(std::span<float> loss_mask, int64_t num_microbatches, int64_t data_parallel_size,
                  int64_t total_tokens) noexcept;

/// How many samples a run needs from each split: train, valid, test; 0 if a split is not used.
/// Source: Megatron-LM training.py, get_train_valid_test_num_samples.
std::array<int64_t, 3> requested_samples(const TrainConfig& config) noexcept;

/// The splits of train, valid and test to which --split gives a share.
std::vector<std::string> splits_asked(const TrainConfig& config);

/// The datasets that the flags name, each once. Errors: as open_training_data for the words.
std::vector<std::string> dataset_prefixes(const TrainConfig& config);

/// Opens the data that the flags name, with Megatron's cache files in --data-cache-path if that is
/// given. Errors: cli::UsageError for an invalid blend or split; else as
/// indexed::TrainingData::build; indexed::FormatError for an invalid file of words.
indexed::TrainingData open_training_data(const TrainConfig& config,
                                         indexed::CacheUse cache = indexed::CacheUse::keep);

}  // namespace trainer
