// --sample-order gpt-neox: the arrays of a run equal those that
// tests/reference/neox_order_golden.py makes by GPT-NeoX's rules, where these differ from
// Megatron's.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "libindexed/builder.h"
#include "libindexed/md5.h"
#include "trainer/data/batch_loader.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

std::string md5_of_wide(const indexed::IndexArray& array) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < array.size(); ++i) values.push_back(array[i]);
  return indexed::md5_hex(std::as_bytes(std::span(values)));
}

// The lines of the golden file that this data gives.
std::string lines_of(const std::string& name, const TrainConfig& config) {
  const indexed::TrainingData data = open_training_data(config);
  std::ostringstream out;
  for (const int64_t i : {0, 1}) {
    const indexed::SplitMember& member = data.split(i)->members().front();
    const indexed::SampleIndex& index = member.index;
    out << name << (i == 0 ? " train " : " valid ") << member.identity.num_epochs << ' '
        << index.num_samples() << ' ' << indexed::md5_hex(index.document_index().bytes()) << ' '
        << md5_of_wide(index.sample_index()) << ' '
        << indexed::md5_hex(index.shuffle_index().bytes()) << '\n';
  }
  return out.str();
}

TEST(NeoxOrder, EqualsItsRulesInNumpy) {
  std::string folder = fs::temp_directory_path() / "neox_order_test.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string prefix = folder + "/d";
  {
    indexed::IndexedDatasetBuilder builder(prefix, {.dtype = indexed::DType::uint16});
    for (int i = 0; i < 1000; ++i)
      builder.add_document(std::vector<int32_t>(static_cast<size_t>(1 + i * 7919 % 523), i));
    builder.finish();
  }
  TrainConfig config;
  config.sample_order = "gpt-neox";
  config.data_cache_path = folder + "/cache";  // Megatron's names are for Megatron's order
  config.seq_length = 128;
  config.eval_interval = 1'000'000;
  config.derived.global_batch_size = 1;
  TrainConfig split = config;
  split.data_path = {prefix};
  split.derived.split = "333.4,333.4,333.2";
  split.derived.train_samples = 5000;
  split.eval_iters = 700;
  TrainConfig own = config;
  own.train_data_path = own.valid_data_path = own.test_data_path = {prefix};
  own.derived.train_samples = 2045;
  own.eval_iters = 100;
  std::ostringstream golden;
  golden << std::ifstream(std::string(GOLDEN_DIR) + "/trainer/neox_order.txt").rdbuf();
  EXPECT_EQ(lines_of("split", split) + lines_of("own", own), golden.str());
  EXPECT_FALSE(fs::exists(config.data_cache_path));
  own.train_data_path = {"3", prefix};
  EXPECT_EQ(open_training_data(own).split(0)->num_samples(), 2056);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trainer
