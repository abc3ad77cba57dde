// Numbers of the command line whose product is a number of samples.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <limits>

#include "tests/trainer/config/small_config.h"

namespace trainer {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Steps and evaluations are counted in samples, in 63 bits.
TEST(Derive, RefusesMoreSamplesThanCanBeCounted) {
  const auto with = [](auto change) {
    TrainConfig config = small_config();
    config.global_batch_size = 64;
    change(config);
    return error_of(config);
  };
  using C = TrainConfig;
  const std::string beyond = " times --global-batch-size 64 is more than 9223372036854775807";
  EXPECT_EQ(with([](C& c) { c.train_iters = kMost / 64, c.eval_iters = 0; }), "");
  EXPECT_EQ(with([](C& c) { c.train_iters = kMost / 64 + 1; }),
            "--train-iters 144115188075855872" + beyond);
  EXPECT_EQ(with([](C& c) { c.eval_iters = kMost / 2; }),
            "--eval-iters 4611686018427387903" + beyond);
  EXPECT_EQ(with([](C& c) { c.train_iters = 50, c.eval_interval = 1, c.eval_iters = kMost / 128; }),
            "samples of --eval-iters 4611686018427387840 times evaluations 51 is more than "
            "9223372036854775807");
  EXPECT_EQ(with([](C& c) { c.lr_decay_iters = kMost / 2; }),
            "--lr-decay-iters 4611686018427387903" + beyond);
  EXPECT_EQ(with([](C& c) { c.lr_warmup_iters = kMost / 2; }),
            "--lr-warmup-iters 4611686018427387903" + beyond);
  EXPECT_EQ(with([](C& c) { c.lr_decay_style = "WSD", c.lr_wsd_decay_iters = kMost / 2; }),
            "--lr-wsd-decay-iters 4611686018427387903" + beyond);
  const auto tokens = [](C& c) {
    c.train_iters.reset(), c.train_tokens = kMost, c.seq_length = 1, c.eval_iters = 0;
  };
  EXPECT_EQ(with(tokens), "steps of --train-tokens 144115188075855872" + beyond);
  EXPECT_EQ(with([&](C& c) { tokens(c), c.train_tokens = kMost - 63; }), "");
  EXPECT_EQ(with([](C& c) { c.global_batch_size.reset(), c.gradient_accumulation_steps = kMost; }),
            "gradient_accumulation_steps 9223372036854775807 times samples of a step 2 is more "
            "than 9223372036854775807");
}

}  // namespace
}  // namespace trainer
