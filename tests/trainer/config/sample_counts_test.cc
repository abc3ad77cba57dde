// Numbers of the command line whose product is a number of samples.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <limits>
#include <utility>

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

/// The definition of steps_for and samples_after: step by step.
int64_t stepped(const BatchSchedule& schedule, int64_t samples, int64_t steps, bool count) {
  int64_t taken = 0, consumed = 0;
  while (taken < steps && schedule.global_batch_size(consumed) <= samples - consumed) {
    consumed += schedule.global_batch_size(consumed);
    ++taken;
  }
  return count ? taken : consumed;
}

BatchSchedule ramp(int64_t full, int64_t start, int64_t increment, int64_t samples) {
  TrainConfig config;
  config.micro_batch_size = config.derived.data_parallel_size = 1;
  config.derived.global_batch_size = full;
  config.derived.rampup_start = start;
  config.derived.rampup_increment = increment;
  config.derived.rampup_samples = samples;
  return BatchSchedule(config);
}

TEST(BatchSchedule, CountsAsStepByStep) {
  for (const int64_t start : {1, 2, 5}) {
    for (const int64_t increment : {1, 3, 7}) {
      for (const int64_t increments : {0, 1, 2, 5}) {
        for (const int64_t samples : {0, 1, 2, 7, 59, 60, 61, 100, 333, 1000}) {
          const BatchSchedule schedule =
              ramp(start + increments * increment, start, increment, samples);
          for (int64_t n = 0; n < 1500; n += 1 + n / 20) {
            EXPECT_EQ(schedule.steps_for(n), stepped(schedule, n, kMost, true)) << n;
            EXPECT_EQ(schedule.samples_after(n), stepped(schedule, kMost, n, false)) << n;
            // Of the steps from `n` on, those of all less those before.
            std::map<int64_t, int64_t> counts = schedule.steps_by_microbatches(n + 30);
            for (const auto& [size, steps] : schedule.steps_by_microbatches(n))
              if ((counts[size] -= steps) == 0) counts.erase(size);
            EXPECT_EQ(schedule.steps_by_microbatches(30, schedule.samples_after(n)), counts) << n;
          }
        }
      }
    }
  }
}

// In steps of one size at a time: one by one they would take hours.
TEST(BatchSchedule, CountsALongRamp) {
  const int64_t ten_17 = 100'000'000'000'000'000;
  const BatchSchedule longest = ramp(4, 1, 1, ten_17);
  EXPECT_EQ(longest.samples_after(300'000'000'000), 300'000'000'000);
  EXPECT_EQ(longest.steps_for(300'000'000'000), 300'000'000'000);
  const BatchSchedule two = ramp(2, 1, 1, 1'000'000'000'000);
  EXPECT_EQ(two.samples_after(100'000'000'000), 100'000'000'000);
  EXPECT_EQ(two.samples_after(1'000'000'000'010), 1'000'000'000'000 + 2 * 10);
  EXPECT_EQ(two.steps_for(1'000'000'000'021), 1'000'000'000'010);
  EXPECT_GT(ramp(2, 1, 1, kMost).steps_for(kMost), kMost - 2000) << "a double decides the last";
  TrainConfig config = small_config();
  config.micro_batch_size = 1;
  config.rampup_batch_size = {"1", "1", "100000000000000000"};
  config.global_batch_size = 1'000'000'000'000;
  config.train_iters = 1000;
  config.eval_iters = 0;
  EXPECT_EQ(error_of(config), "");
}

// The last steps of the decay, those of a ramp with the samples that they have.
TEST(Derive, WsdDecaysInTheLastSteps) {
  const auto samples = [](int64_t steps, auto change) {
    TrainConfig config = small_config();
    config.micro_batch_size = 2;
    config.global_batch_size = 8;
    config.train_iters = 10;
    config.lr_decay_style = "WSD";
    config.lr_wsd_decay_iters = steps;
    change(config);
    derive_and_check(config, {}, 1);
    const TrainConfig::Derived& d = config.derived;
    return std::pair(d.lr_decay_samples - d.lr_wsd_decay_samples, d.lr_wsd_decay_samples);
  };
  const auto ramp_up = [](TrainConfig& c) { c.rampup_batch_size = {"2", "2", "24"}; };
  // Steps begin after 0, 2, 4, 6, 8, 12, 16, 22, 28 and 36 samples; the last one ends at 44.
  EXPECT_EQ(samples(2, ramp_up), std::pair(28.0, 16.0));
  EXPECT_EQ(samples(5, ramp_up), std::pair(12.0, 32.0));
  EXPECT_EQ(samples(9, ramp_up), std::pair(2.0, 42.0));
  EXPECT_EQ(samples(3, [&](TrainConfig& c) { ramp_up(c), c.lr_decay_iters = 6; }),
            std::pair(6.0, 10.0));
  EXPECT_EQ(samples(3, [](TrainConfig&) {}), std::pair(56.0, 24.0));
  EXPECT_EQ(samples(12, [](TrainConfig&) {}), std::pair(-16.0, 96.0));
}

}  // namespace
}  // namespace trainer
