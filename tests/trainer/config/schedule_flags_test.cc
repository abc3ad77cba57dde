// Flags of the learning rate's schedule: where its numbers of samples come from, and which change
// nothing; also others that need a flag which is not there.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/config/small_config.h"

namespace trainer {
namespace {

TEST(ScheduleFlags, NameWhereANumberOfTheScheduleComesFrom) {
  TrainConfig c;
  EXPECT_EQ(schedule_source(c, "lr-decay-samples") + schedule_source(c, "lr-warmup-samples"), "");
  c.train_tokens = 640;
  EXPECT_EQ(schedule_source(c, "lr-decay-samples"), "--train-tokens 640");
  c.train_samples = 20;
  EXPECT_EQ(schedule_source(c, "lr-decay-samples"), "--train-samples 20");
  c.train_samples.reset();
  c.train_iters = 5;
  EXPECT_EQ(schedule_source(c, "lr-decay-samples"), "--train-iters 5");
  EXPECT_EQ(schedule_source(c, "weight-decay-samples"), "--train-iters 5");
  EXPECT_EQ(schedule_source(c, "lr-warmup-samples"), "");
  c.lr_warmup_fraction = 0.25;
  EXPECT_EQ(schedule_source(c, "lr-warmup-samples"), "--lr-warmup-fraction 0.25");
  c.lr_wsd_decay_iters = 2;
  c.lr_decay_iters = 4;
  EXPECT_EQ(schedule_source(c, "lr-wsd-decay-samples"), "--lr-wsd-decay-iters 2");
  EXPECT_EQ(schedule_source(c, "lr-decay-samples"), "--lr-decay-iters 4");
  EXPECT_EQ(schedule_source(c, "weight-decay-samples"), "--train-iters 5");
  c.lr_wsd_decay_samples = c.lr_decay_samples = 9;
  EXPECT_EQ(schedule_source(c, "lr-wsd-decay-samples") + schedule_source(c, "lr-decay-samples"),
            "");
  EXPECT_EQ(schedule_source(c, "lr-decay-style"), "");
}

TEST(ScheduleFlags, ThatChangeNothingAreNamed) {
  const auto notes = [](TrainConfig config, const Given& given) {
    return derive_and_check(config, given, 1);
  };
  TrainConfig idle = small_config();
  idle.lr_warmup_init = 1e-5;
  idle.lr_wsd_decay_iters = 2;
  idle.lr_wsd_decay_style = "cosine";
  idle.tensorboard_log_interval = 2;
  idle.log_timers_to_tensorboard = true;
  idle.no_load_optim = idle.no_load_rng = true;
  const Given all = {"lr-warmup-init", "lr-wsd-decay-iters",       "lr-wsd-decay-style",
                     "no-load-optim",  "tensorboard-log-interval", "log-timers-to-tensorboard",
                     "no-load-rng"};
  EXPECT_THAT(
      notes(idle, all),
      testing::ElementsAre("--lr-warmup-init changes nothing without a warm-up",
                           "--lr-wsd-decay-style changes nothing without --lr-decay-style WSD",
                           "--lr-wsd-decay-iters changes nothing without --lr-decay-style WSD",
                           "--no-load-optim changes nothing in a start without --load",
                           "--no-load-rng changes nothing in a start without --load",
                           "--tensorboard-log-interval changes nothing without --tensorboard-dir",
                           "--log-timers-to-tensorboard changes nothing without "
                           "--tensorboard-dir"));
  idle.lr_warmup_iters = 2;
  idle.lr_decay_style = "WSD";
  idle.tensorboard_dir = "t";
  idle.save = "s";
  idle.max_restarts = 1;  // a restart loads.
  EXPECT_TRUE(notes(idle, all).empty());
}

}  // namespace
}  // namespace trainer
