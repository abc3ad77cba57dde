// BatchLoader: Megatron's sampler order for any number of data-parallel ranks, masks and positions,
// blends, and descriptions of a batch. The worked numbers were made with Megatron's own code.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "libindexed/builder.h"
#include "libindexed/format.h"
#include "tools/cli/flags.h"
#include "trainer/data/batch_loader.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class DataTest : public testing::Test {
 protected:
  DataTest() {
    std::string name = fs::temp_directory_path() / "data_test.XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~DataTest() override { fs::remove_all(folder_); }

  // A dataset whose documents have these lengths; token j of document i is 100 i + j.
  std::string make(const std::string& name, const std::vector<int>& lengths) {
    const std::string prefix = folder_ + "/" + name;
    indexed::IndexedDatasetBuilder builder(prefix, {.dtype = indexed::DType::int32});
    for (size_t i = 0; i < lengths.size(); ++i) {
      std::vector<int32_t> tokens(static_cast<size_t>(lengths[i]));
      std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(100 * i));
      builder.add_document(tokens);
    }
    builder.finish();
    return prefix;
  }

  TrainConfig config(std::vector<std::string> data_path) {
    TrainConfig config;
    config.data_path = std::move(data_path);
    config.seq_length = 4;
    config.eval_iters = 0;
    config.derived.split = "1,0,0";
    config.derived.train_samples = 6;
    config.derived.global_batch_size = 6;
    return config;
  }

  std::string folder_;
};

struct Filled {
  std::vector<int32_t> tokens, labels, positions, first_key;
  std::vector<float> loss_mask;
  explicit Filled(size_t n)
      : tokens(n, -7), labels(n, -7), positions(n, -7), first_key(n, -7), loss_mask(n, -7) {}
  BatchArrays arrays() { return {tokens, labels, positions, loss_mask, first_key}; }
};

TEST(WeighTokens, MakesTheMeanOfMicroBatchesTheMeanOfTokens) {
  // Two ranks with two micro-batches of three tokens each; 7 of the 12 count.
  std::vector<std::vector<float>> masks = {{1, 1, 1, 0, 1, 0}, {0, 0, 0, 1, 1, 1}};
  const std::vector<std::vector<double>> loss = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};
  double sum = 0;
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(counted_tokens(masks[rank]), rank == 0 ? 4 : 3);
    weigh_tokens(masks[rank], 2, 2, 7);
    for (size_t i = 0; i < 6; ++i) sum += double{masks[rank][i]} * loss[rank][i] / (2 * 2);
  }
  EXPECT_NEAR(sum, (1 + 2 + 3 + 5 + 10 + 11 + 12) / 7.0, 1e-6);
  weigh_tokens(masks[0], 2, 2, 0);
  EXPECT_THAT(masks[0], testing::Each(0.0f));
}

TEST(FillSample, MegatronsExampleOfMasksAndPositions) {
  const std::vector<int32_t> tokens = {5, 0, 6, 7, 0, 8, 9};
  BatchLoaderOptions options{.seq_length = 6,
                             .eod_id = 0,
                             .eod_mask_loss = true,
                             .reset_position_ids = true,
                             .reset_attention_mask = true};
  Filled out(6);
  fill_sample(tokens, options, out.arrays(), 1);
  EXPECT_THAT(out.tokens, ElementsAre(5, 0, 6, 7, 0, 8));
  EXPECT_THAT(out.labels, ElementsAre(0, 6, 7, 0, 8, 9));
  EXPECT_THAT(out.positions, ElementsAre(0, 1, 0, 1, 2, 0));
  EXPECT_THAT(out.loss_mask, ElementsAre(1, 0, 1, 1, 0, 1));
  // Rows of Megatron's matrix (1 is masked): 011111 001111 110111 110011 110001 111110.
  EXPECT_THAT(out.first_key, ElementsAre(0, 0, 2, 2, 2, 5));
  options.eod_mask_loss = options.reset_position_ids = options.reset_attention_mask = false;
  fill_sample(tokens, options, out.arrays(), 1);
  EXPECT_THAT(out.positions, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(out.loss_mask, ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(out.first_key, ElementsAre(0, 0, 0, 0, 0, 0));
}

// Position q of a window of W sees keys q - W + 1 .. q, as transformers' mask has it, and no other
// document's.
TEST(FillSample, AWindowHidesWhatLiesBeforeIt) {
  const std::vector<int32_t> tokens = {5, 0, 6, 7, 4, 8, 9};
  BatchLoaderOptions options{.seq_length = 6, .eod_id = 0, .sliding_window = 3};
  Filled out(6);
  fill_sample(tokens, options, out.arrays(), 1);
  EXPECT_THAT(out.first_key, ElementsAre(0, 0, 0, 1, 2, 3));
  options.reset_attention_mask = true;
  fill_sample(tokens, options, out.arrays(), 1);
  EXPECT_THAT(out.first_key, ElementsAre(0, 0, 2, 2, 2, 3));
}

// Which sample a row of the batch is: read back through the data itself.
int64_t find_sample(const indexed::TrainingData& data, const std::vector<int32_t>& row) {
  std::vector<int32_t> sample(row.size());
  for (int64_t i = 0; i < data.split(0)->num_samples(); ++i) {
    data.read(*data.split(0), i, sample);
    if (sample == row) return i;
  }
  return -1;
}

// n = 22, consumed 4, m = 2, R = 3: rank 0 [4,5][10,11][16,17], rank 1 [6,7][12,13][18,19], rank 2
// [8,9][14,15][20,21].
TEST_F(DataTest, SamplerOrderOfThreeRanks) {
  TrainConfig c = config({make("a", std::vector<int>(20, 5))});
  c.derived.train_samples = 22;
  const indexed::TrainingData data = open_training_data(c);
  ASSERT_GE(data.split(0)->num_samples(), 22);
  for (int64_t rank = 0; rank < 3; ++rank) {
    const BatchLoader loader(data, *data.split(0),
                             {.seq_length = 4,
                              .micro_batch_size = 2,
                              .data_parallel_rank = rank,
                              .data_parallel_size = 3,
                              .vocab_size = 5000});
    Filled out(3 * 4 * 2);
    loader.fill(4, 3, out.arrays());
    std::vector<int64_t> samples;
    for (size_t m = 0; m < 3; ++m) {
      for (size_t b = 0; b < 2; ++b) {
        std::vector<int32_t> row;
        for (size_t s = 0; s < 4; ++s) row.push_back(out.tokens[(m * 4 + s) * 2 + b]);
        row.push_back(out.labels[(m * 4 + 3) * 2 + b]);
        samples.push_back(find_sample(data, row));
      }
    }
    const int64_t first = 4 + 2 * rank;
    EXPECT_THAT(samples,
                ElementsAre(first, first + 1, first + 6, first + 7, first + 12, first + 13));
  }
}

// Appendix A.3: lengths 5 3 7 2 6 4 1 8 3 5 and 6 2 9 4, weights 0.3 and 0.7, 6 samples of 4:
// dataset 1 0 1 1 0 1 1.
TEST_F(DataTest, BlendInMegatronsOrder) {
  const std::string p = make("p", {5, 3, 7, 2, 6, 4, 1, 8, 3, 5}), q = make("q", {6, 2, 9, 4});
  const indexed::TrainingData data = open_training_data(config({"0.3", p, "0.7", q}));
  const BatchLoader loader(data, *data.split(0),
                           {.seq_length = 4, .micro_batch_size = 1, .vocab_size = 5000});
  EXPECT_EQ(loader.num_samples(), 7);
  std::string order;
  for (int64_t i = 0; i < 7; ++i) {
    const std::vector<std::string> documents = loader.documents(i, 1);
    ASSERT_EQ(documents.size(), 1u);
    order += documents[0].starts_with(p) ? '0' : '1';
  }
  EXPECT_EQ(order, "1011011");
}

// Sample 0 of the worked example of 4.6: document_index begins 7 2, sample 0 is document 7 from 0
// to 4.
TEST_F(DataTest, NamesTheDocumentsOfABatch) {
  const std::string p = make("p", {5, 3, 7, 2, 6, 4, 1, 8, 3, 5});
  const indexed::TrainingData data = open_training_data(config({p}));
  const BatchLoader loader(data, *data.split(0),
                           {.seq_length = 4, .micro_batch_size = 2, .vocab_size = 5000});
  std::vector<int32_t> row(5);
  data.read(*data.split(0), 0, row);
  const std::vector<std::string> documents = loader.documents(0, 1);
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_THAT(documents[0], HasSubstr(p + ": documents "));
  EXPECT_THAT(documents[0], HasSubstr(std::to_string(row[0] / 100)));
}

TEST_F(DataTest, RefusesIdsOutsideOfTheVocabularyAndSamplesPastTheEnd) {
  const std::string p = make("p", std::vector<int>(10, 6));
  const indexed::TrainingData data = open_training_data(config({p}));
  const BatchLoader loader(data, *data.split(0),
                           {.seq_length = 4, .micro_batch_size = 1, .vocab_size = 905});
  Filled out(4);
  const auto last_error = [&](const BatchLoader& from) {
    std::string error;
    for (int64_t i = 0; i < from.num_samples(); ++i) {
      try {
        from.fill(i, 1, out.arrays());
      } catch (const indexed::FormatError& e) {
        error = e.what();
      }
    }
    return error;
  };
  EXPECT_EQ(last_error(loader),
            p + ".bin: document 9, token 5: id 905: the vocabulary has ids 0 to 904");
  EXPECT_THROW(loader.fill(loader.num_samples(), 1, out.arrays()), indexed::FormatError);
  // What the first id above them may mean is said of no other id.
  for (const auto& [size, end] : {std::pair<int64_t, std::string>(905, "904; why"), {800, "799"}}) {
    const BatchLoader other(
        data, *data.split(0),
        {.seq_length = 4, .micro_batch_size = 1, .vocab_size = size, .one_above = "; why"});
    EXPECT_THAT(last_error(other), testing::EndsWith(": the vocabulary has ids 0 to " + end));
  }
}

// Floats would be cut to integers, and train without a word.
TEST_F(DataTest, RefusesFloats) {
  for (const auto& [dtype, name] :
       {std::pair(indexed::DType::float32, "float32"), {indexed::DType::float64, "float64"}}) {
    const std::string p = folder_ + "/" + name;
    {
      indexed::IndexedDatasetBuilder builder(p, {.dtype = dtype});
      for (int d = 0; d < 4; ++d) builder.add_document(std::vector<int32_t>{1, 2, 3, 4, 5, 6});
      builder.finish();
    }
    const auto refused = testing::ThrowsMessage<indexed::FormatError>(
        p + ".idx: dtype " + name + ": token ids are integers, expected an integer type");
    EXPECT_THAT([&] { open_training_data(config({p})); }, refused);
  }
}

// An id of more than 31 bits is named whole, not as what is left of it.
TEST_F(DataTest, RefusesIdsOf64Bits) {
  const std::string p = folder_ + "/wide";
  {
    indexed::IndexedDatasetBuilder builder(p, {.dtype = indexed::DType::int64});
    for (int d = 0; d < 4; ++d) builder.add_document(std::vector<int32_t>{1, 2, 3, 4, 5, 6});
    builder.finish();
  }
  const int64_t wide = int64_t{1} << 40;
  for (const int64_t token : {8, 14, 20}) {  // token 2 of documents 1 to 3
    std::fstream file(p + ".bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(token * 8);
    file.write(reinterpret_cast<const char*>(&wide), 8);
  }
  const indexed::TrainingData data = open_training_data(config({p}));
  const BatchLoader loader(data, *data.split(0),
                           {.seq_length = 4, .micro_batch_size = 1, .vocab_size = 905});
  Filled out(4);
  std::string error;
  for (int64_t i = 0; i < loader.num_samples() && error.empty(); ++i) {
    try {
      loader.fill(i, 1, out.arrays());
    } catch (const indexed::FormatError& e) {
      error = e.what();
    }
  }
  EXPECT_THAT(error, HasSubstr("token 2: id 1099511627776: the vocabulary has ids 0 to 904"));
}

TEST_F(DataTest, AFileInsteadOfAPrefixIsRefusedUnderItsFlag) {
  const std::string p = make("p", {6, 6});
  TrainConfig c = config({});
  c.derived.split.clear();
  c.train_data_path = {"1", p};
  c.valid_data_path = {"1", p, "2", p + ".bin"};
  EXPECT_THAT([&] { dataset_prefixes(c); },
              testing::ThrowsMessage<cli::UsageError>("--valid-data-path " + p +
                                                      ".bin: name it without .bin or .idx"));
  c.valid_data_path = {p};
  EXPECT_THAT(dataset_prefixes(c), testing::ElementsAre(p));  // once.
}

TEST(RequestedSamples, AsMegatronCountsThem) {
  TrainConfig config;
  config.eval_interval = 100;
  config.eval_iters = 10;
  config.derived.train_iters = 1000;
  config.derived.train_samples = 32000;
  config.derived.global_batch_size = 32;
  EXPECT_THAT(requested_samples(config), ElementsAre(32000, 3520, 320));
}

}  // namespace
}  // namespace trainer
