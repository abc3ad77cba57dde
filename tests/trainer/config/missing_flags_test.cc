// The flags without which nothing can begin: all that are missing are in one message.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "tests/trainer/config/small_config.h"

namespace trainer {
namespace {

/// What is said of a whole configuration after `change`.
template <class Change>
std::string without(Change change) {
  TrainConfig config = small_config();
  config.vocab_size = 256;
  change(config);
  return error_of(config);
}

TEST(MissingFlags, AreAllInOneMessage) {
  EXPECT_EQ(without([](TrainConfig&) {}), "");
  EXPECT_EQ(without([](TrainConfig& c) { c.micro_batch_size = 0; }),
            "--micro-batch-size is missing");
  EXPECT_EQ(without([](TrainConfig& c) { c.train_iters.reset(); }),
            "--train-iters (or --train-samples, or --train-tokens) is missing");
  EXPECT_EQ(without([](TrainConfig& c) {
              c.seq_length = 0;
              c.lr.reset();
            }),
            "--seq-length and --lr are missing");
  EXPECT_EQ(without([](TrainConfig& c) {
              c.lr.reset();
              c.vocab_size.reset();
            }),
            "--lr and --vocab-file (or --tokenizer-model, or --vocab-size) are missing");
  EXPECT_EQ(error_of({}),
            "--num-layers, --hidden-size, --num-attention-heads, --seq-length, --micro-batch-size, "
            "--train-iters (or --train-samples, or --train-tokens), --lr, --data-path and "
            "--vocab-file (or --tokenizer-model, or --vocab-size) are missing");
}

TEST(MissingFlags, AreThoseThatTheRunNeeds) {
  const auto no_lr = [](TrainConfig& c) {
    c.lr.reset();
    c.skip_train = true;
  };
  EXPECT_EQ(without(no_lr), "");
  const auto no_data = [](TrainConfig& c) {
    c.data_path.clear();
    c.dry_run = true;
  };
  EXPECT_EQ(without(no_data), "");
  // The checkpoint may name the tokenizer: find_vocabulary() knows, and asks for it.
  EXPECT_EQ(without([](TrainConfig& c) { c.vocab_size.reset(); }), "");
}

TEST(MissingFlags, ARestartWithoutASaveIsNamed) {
  TrainConfig config = small_config();
  config.max_restarts = 3;
  EXPECT_EQ(derive_and_check(config, {}, 1),
            std::vector<std::string>{"--max-restarts changes nothing without --save: nothing is "
                                     "kept to continue"});
  config.save = "s";
  EXPECT_TRUE(derive_and_check(config, {}, 1).empty());
}

}  // namespace
}  // namespace trainer
