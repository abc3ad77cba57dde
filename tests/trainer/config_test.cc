// What follows from a configuration, what is refused, and the ramp-up of the global batch; the
// worked numbers are Megatron's own rules done by hand. Whole command lines of tutorials are in
// tutorials_test.cc.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tools/cli/parse.h"
#include "tools/cli/text.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

TrainConfig small_config() {
  TrainConfig config;
  config.num_layers = 2;
  config.hidden_size = 64;
  config.num_attention_heads = 4;
  config.seq_length = 32;
  config.micro_batch_size = 2;
  config.train_iters = 10;
  config.lr = 1e-3;
  config.data_path = {"d"};
  return config;
}

std::string error_of(TrainConfig config, int64_t world_size = 1) {
  try {
    derive_and_check(config, {}, world_size);
    return "";
  } catch (const cli::UsageError& error) {
    return error.what();
  }
}

TEST(FlagTable, NamesAreUniqueAndEveryRowHasHelp) {
  TrainConfig config;
  std::set<std::string_view> names;
  for (const cli::Row& row : cli::bind_rows(flag_table(), config)) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const std::string_view alias : row.aliases)
      EXPECT_TRUE(names.insert(alias).second) << alias;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_EQ(row.arity == cli::Arity::none, row.value.empty()) << row.name;
  }
  EXPECT_GT(names.size(), 200u);
}

TEST(FlagTable, EffectiveConfigReadsBackToItself) {
  TrainConfig config = small_config();
  config.rampup_batch_size = {"2", "2", "100"};
  config.global_batch_size = 8;
  config.adam_eps = 1e-7;
  config.bias_gelu_fusion = false;
  config.save = "a folder/with \"quotes\"";
  config.data_path = {"0.3", "a", "0.7", "b"};
  const std::string text = effective_config(config);
  TrainConfig copy;
  cli::Parsed parsed;
  cli::read_config(cli::bind_rows(flag_table(), copy), text, "saved", parsed);
  EXPECT_EQ(effective_config(copy), text);
  EXPECT_EQ(copy.data_path, config.data_path);
  EXPECT_EQ(copy.save, config.save);
  EXPECT_FALSE(copy.bias_gelu_fusion);
}

TEST(Derive, RefusesWhatCannotBeHonoured) {
  const auto with = [](auto change) {
    TrainConfig config = small_config();
    change(config);
    return error_of(config);
  };
  EXPECT_EQ(with([](TrainConfig& c) { c.num_layers.reset(); }), "--num-layers is missing");
  EXPECT_EQ(with([](TrainConfig& c) { c.num_attention_heads = 5; }),
            "--num-attention-heads 5 does not divide --hidden-size 64");
  EXPECT_EQ(with([](TrainConfig& c) { c.num_query_groups = 3; }),
            "--num-query-groups 3 does not divide --num-attention-heads 4");
  EXPECT_EQ(with([](TrainConfig& c) { c.max_position_embeddings = 16; }),
            "--max-position-embeddings 16 is less than --seq-length 32");
  EXPECT_EQ(
      with([](TrainConfig& c) { c.global_batch_size = 5; }),
      "--global-batch-size 5 is no multiple of --micro-batch-size 2 times data-parallel size 1");
  EXPECT_EQ(with([](TrainConfig& c) { c.train_samples = 5; }),
            "--train-iters and --train-samples exclude each other");
  EXPECT_EQ(with([](TrainConfig& c) { c.lr.reset(); }), "--lr is missing");
  EXPECT_EQ(with([](TrainConfig& c) { c.min_lr = 1; }), "--min-lr 1 is above --lr 0.001");
  EXPECT_EQ(with([](TrainConfig& c) { c.fp16 = c.bf16 = true; }),
            "--fp16 and --bf16 exclude each other");
  EXPECT_EQ(with([](TrainConfig& c) { c.lr_decay_style = "WSD"; }),
            "--lr-decay-style WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples");
  EXPECT_EQ(with([](TrainConfig& c) { c.recompute_method = "block"; }),
            "--recompute-method needs --recompute-granularity full");
  EXPECT_EQ(with([](TrainConfig& c) { c.data_path.clear(); }), "--data-path is missing");
  EXPECT_THAT(with([](TrainConfig& c) { c.cpu_offload = true; }),
              testing::HasSubstr("--cpu-offload is not known"));
  EXPECT_EQ(with([](TrainConfig& c) { c.valid_data_path = {"v"}; }),
            "--train-data-path and its like exclude --data-path and --split");
  EXPECT_EQ(
      with([](TrainConfig& c) { c.pipeline_model_parallel_size = 2; }),
      "--pipeline-model-parallel-size 2 needs 2 devices; this trainer runs on one: permitted is 1");
  EXPECT_EQ(with([](TrainConfig& c) { c.lr_warmup_iters = 10; }),
            "warm-up of 20 samples is not shorter than the decay of 20 samples");
  EXPECT_EQ(error_of(small_config(), 4),
            "the launcher started 4 processes; this trainer runs as one");
  EXPECT_EQ(error_of(small_config()), "");
}

TEST(Derive, LengthInSamplesAndTokens) {
  TrainConfig config = small_config();
  config.global_batch_size = 4;
  config.train_iters.reset();
  config.train_samples = 103;
  derive_and_check(config, {}, 1);
  EXPECT_EQ(config.derived.train_iters, 25);
  EXPECT_EQ(config.derived.train_samples, 103);
  config.train_samples.reset();
  config.train_tokens = 32 * 100 + 1;  // 101 samples: the 26th step reaches them.
  derive_and_check(config, {}, 1);
  EXPECT_EQ(config.derived.train_iters, 26);
  EXPECT_EQ(config.derived.train_samples, 104);
}

// start 4, increment 4, 60 samples to a full batch of 16: three increments of 20 samples each.
TEST(BatchSchedule, RampsAsMegatronDoes) {
  TrainConfig config = small_config();
  config.global_batch_size = 16;
  config.rampup_batch_size = {"4", "4", "60"};
  config.train_iters.reset();
  config.train_samples = 200;
  derive_and_check(config, {}, 1);
  const BatchSchedule schedule(config);
  std::vector<int64_t> sizes;
  int64_t consumed = 0;
  for (int step = 0; step < 12; ++step) {
    EXPECT_EQ(schedule.samples_after(step), consumed);
    sizes.push_back(schedule.global_batch_size(consumed));
    EXPECT_EQ(schedule.num_microbatches(consumed) * 2, sizes.back());
    consumed += sizes.back();
  }
  EXPECT_THAT(sizes, testing::ElementsAre(4, 4, 4, 4, 4, 8, 8, 8, 12, 12, 16, 16));
  // 68 samples in ten steps of the ramp, then 8 whole batches of 16 in the remaining 132.
  EXPECT_EQ(config.derived.train_iters, 10 + (200 - 68) / 16);
}

TEST(BatchSchedule, RampRefusesWhatDoesNotFit) {
  TrainConfig config = small_config();
  config.global_batch_size = 16;
  config.rampup_batch_size = {"4", "5", "60"};
  EXPECT_EQ(error_of(config),
            "--rampup-batch-size 4 5 does not reach --global-batch-size 16 in whole increments");
  config.rampup_batch_size = {"1", "3", "60"};
  EXPECT_EQ(error_of(config),
            "--rampup-batch-size passes through 1, no multiple of --micro-batch-size 2 times "
            "data-parallel size 1");
  config.rampup_batch_size = {"4", "4"};
  EXPECT_EQ(error_of(config), "--rampup-batch-size takes three numbers: START INCREMENT SAMPLES");
}

TEST(Vocabulary, PadsToAMultiple) {
  const TrainConfig config = small_config();
  EXPECT_EQ(pad_vocab_size(config, 50257), 50304);
  EXPECT_EQ(pad_vocab_size(config, 50304), 50304);
  EXPECT_EQ(pad_vocab_size(config, 1), 128);
}

}  // namespace
}  // namespace trainer
