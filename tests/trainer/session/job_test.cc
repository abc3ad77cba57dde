// A rank's place among the others: where they meet, who speaks where they do not, and what a start
// finds in the launcher's memory.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <numeric>
#include <vector>

#include "tests/own.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/fields.h"
#include "trainer/session/memory_start.h"
#include "trainer/session/restart.h"
#include "trainer/session/start.h"
#include "trainer/spec/families.h"

namespace trainer {
namespace {

using testing::HasSubstr;

/// What `work` prints with a console.
template <class Work>
std::string printed(const Work& work) {
  testing::internal::CaptureStderr();
  {
    cli::Console console("trainer");
    work(console);
  }
  return testing::internal::GetCapturedStderr();
}

/// Rank `rank` of three on each of two hosts.
rendezvous::Launch place(const std::string& launcher, int rank) {
  return {.launcher = launcher,
          .rank = rank,
          .world_size = 6,
          .local_rank = rank % 3,
          .local_size = 3,
          .node = rank / 3,
          .nodes = 2,
          .address = "n0",
          .port = 29500};
}

TEST(JobTest, TheMeetingPlaceOfTheCommandIsUsedButWhereTheLauncherHasOne) {
  cli::Console console("trainer");
  TrainConfig config;
  const auto met = [&](const std::string& launcher, const std::string& where) {
    config.rendezvous = where;
    const rendezvous::Launch launch = Job(place(launcher, 1), config, console).launch();
    return launch.address + " " + std::to_string(launch.port) + (launch.exact_port ? " exact" : "");
  };
  EXPECT_EQ(met("srun", ""), "n0 29500");
  EXPECT_EQ(met("srun", "n7:4000"), "n7 4000 exact");
  EXPECT_EQ(met("srun", "[fe80::1]:4000"), "fe80::1 4000 exact");
  EXPECT_EQ(met("srun", "file:/tmp/meet"), "n0 29500");
  EXPECT_EQ(met("trainer", "n7:4000"), "n0 29500");
  for (const char* wrong : {"n7", "n7:", "n7:0", "n7:65536", "n7:40x", ":"})
    EXPECT_THROW(met("srun", wrong), cli::UsageError) << wrong;
  EXPECT_NO_THROW(met("srun", "n7:65535"));
  EXPECT_NO_THROW(met("srun", "n7:1"));
}

TEST(JobTest, ASecretIsItsOwnersAlone) {
  tests::OwnFolder own;
  cli::Console console("trainer");
  TrainConfig config;
  config.job_secret_file = own / "secret";
  const auto secret = [&](const std::string& text, mode_t mode) {
    std::ofstream(config.job_secret_file) << text;
    chmod(config.job_secret_file.c_str(), mode);
    return Job({}, config, console).launch().secret;
  };
  EXPECT_EQ(secret("0123456789abcdef\r\n", 0600), "0123456789abcdef");
  EXPECT_THROW(secret("0123456789abcde\n", 0600), cli::UsageError);
  EXPECT_THROW(secret("0123456789abcdef", 0640), cli::UsageError);
  EXPECT_THROW(secret("0123456789abcdef", 0604), cli::UsageError);
}

// Rank 0 says why ranks did not meet; where it was not found, the first other rank of its host and
// the first of each other host say it. Where hosts print apart, one rank of each host always does.
TEST(JobTest, OneRankOfAHostSaysWhyRanksDidNotMeet) {
  TrainConfig config;
  const auto speakers = [&](const std::string& launcher, bool told) {
    std::vector<int> out;
    for (int rank = 0; rank < 6; ++rank) {
      const std::string said = printed([&](cli::Console& console) {
        Job job(place(launcher, rank), config, console);
        EXPECT_EQ(job.unmet({"nobody came", told}), exit_status::kFailed);
      });
      if (said == "trainer: nobody came\n")
        out.push_back(rank);
      else
        EXPECT_EQ(said, "") << rank;
    }
    return out;
  };
  EXPECT_EQ(speakers("srun", false), (std::vector{0, 1, 3}));
  EXPECT_EQ(speakers("srun", true), (std::vector<int>{}));
  EXPECT_EQ(speakers("environment", false), (std::vector{0, 1, 3}));
  EXPECT_EQ(speakers("environment", true), (std::vector{3}));
  EXPECT_EQ(speakers("torchrun", true), (std::vector{3}));
}

// Whatever keeps the others from hearing it.
TEST(JobTest, WhyADeviceWasNotOpenedIsSaidWhereRankZeroIsNotThere) {
  TrainConfig config;
  config.distributed_timeout_minutes = 0.01;
  config.meeting_timeout_seconds = 0.5;
  const std::string said = printed([&](cli::Console& console) {
    rendezvous::Launch launch = place("environment", 3);
    launch.address = "127.0.0.1";
    launch.port = tests::own_ports() + 60;
    launch.exact_port = true;
    EXPECT_EQ(Job(launch, config, console).without_device(std::runtime_error("no driver")),
              exit_status::kFailed);
  });
  EXPECT_THAT(said, testing::StartsWith("trainer: no driver\ntrainer: rank 3 ("));
  EXPECT_THAT(said, testing::HasSubstr("rank 0 was not found within 1 s"));
}

// What was not begun loses nothing: the same command continues, if it loads what it saves.
TEST(JobTest, AStartThatDidNotMeetCanBeRepeatedWhereNothingIsLost) {
  TrainConfig config;
  using rendezvous::MeetingEnd;
  const auto status = [&](int restarts, MeetingEnd end) {
    int out = 0;
    printed([&](cli::Console& console) {
      rendezvous::Launch launch = place("environment", 0);
      launch.restarts = restarts;
      out = Job(launch, config, console).unmet({"nobody came", false, end});
    });
    return out;
  };
  EXPECT_EQ(status(0, MeetingEnd::retryable), exit_status::kFailed);
  config.save = config.load = "s";
  EXPECT_EQ(status(0, MeetingEnd::failed), exit_status::kFailed);
  EXPECT_EQ(status(0, MeetingEnd::retryable), exit_status::kResumable);
  EXPECT_EQ(status(1, MeetingEnd::failed), exit_status::kResumable);
}

/// A checkpoint of one tensor, in memory.
void save_in_memory(MemoryCheckpoints& memory, int64_t iteration) {
  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), static_cast<float>(iteration));
  CheckpointMeta meta;
  meta.state.iteration = iteration;
  memory.save(
      meta,
      {{"model", "matrix", "F32", {8, 8}, Piece::whole({8, 8}), std::as_bytes(std::span(values))}});
}

// Weights of another run begin this one: its own steps, samples and moments begin at nothing.
TEST(FindStartTest, APretrainedCheckpointGivesWeightsAlone) {
  tests::OwnFolder own;
  TrainConfig config;
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 1;
  spec.hidden_size = 8;
  spec.num_attention_heads = 1;
  spec.vocab_size = spec.padded_vocab_size = spec.max_position_embeddings = 8;
  complete(spec);
  std::vector<float> values(64);
  CheckpointMeta meta;
  meta.state.iteration = 6;
  meta.model = model_record(spec);
  CheckpointRoot(own / "p").save(
      meta,
      {{"model", "matrix", "F32", {8, 8}, Piece::whole({8, 8}), std::as_bytes(std::span(values))}},
      6);
  LrSchedule schedule;
  cli::Console silent("trainer");
  silent.set_quiet(true);
  const auto start = [&] { return find_start(config, spec, schedule, silent, std::nullopt); };
  config.pretrained_checkpoint = own / "p";
  Start weights = start();
  ASSERT_TRUE(weights.checkpoint.has_value());
  EXPECT_TRUE(weights.weights_only);
  EXPECT_FALSE(weights.optimizer);
  config.load = own / "none";  // the run's own folder, which has nothing yet.
  EXPECT_TRUE(start().weights_only);
  config.load = own / "p";
  EXPECT_THROW(start(), cli::UsageError) << "a run continues with its moments, and there are none";
  config.no_load_optim = true;
  Start whole = start();
  ASSERT_TRUE(whole.checkpoint.has_value());
  EXPECT_FALSE(whole.weights_only);
  config.load.clear();
  config.pretrained_checkpoint = own / "none";
  EXPECT_THROW(start(), std::runtime_error);
}

class MemoryStartTest : public testing::Test {
 protected:
  MemoryStartTest() {
    config_.in_memory_checkpoint = 2;
    config_.save = own_ / "save";
  }
  /// The iteration that a start takes, or -1, and what it prints.
  std::pair<int64_t, std::string> start(int restarts) {
    std::pair<int64_t, std::string> out;
    out.second = printed([&](cli::Console& console) {
      Job job({.run = "ours", .restarts = restarts, .memory_files = files_.descriptors()}, config_,
              console);
      std::optional<MemoryCheckpoints> memory = memory_of(config_, job);
      ASSERT_TRUE(memory.has_value());
      std::optional<Checkpoint> found = newest_in_memory(*memory, config_, job, console);
      out.first = found ? found->meta().state.iteration : -1;
    });
    return out;
  }

  void save_on_disk(int64_t iteration, bool optimizer = true) const {
    const std::vector<float> values(64);
    CheckpointMeta meta;
    meta.state.iteration = iteration;
    meta.has_optimizer = optimizer;
    meta.run = run_;
    CheckpointRoot(config_.save)
        .save(meta,
              {{"model",
                "matrix",
                "F32",
                {8, 8},
                Piece::whole({8, 8}),
                std::as_bytes(std::span(values))}},
              iteration);
  }

  tests::OwnFolder own_;
  MemoryFiles files_{1};
  TrainConfig config_;
  std::string run_ = "ours";  ///< That saves on disk, and that start() belongs to.
};

TEST_F(MemoryStartTest, ThereIsMemoryWhereTheCommandAndTheLauncherGiveIt) {
  cli::Console console("trainer");
  Job with({.memory_files = files_.descriptors()}, config_, console), without({}, config_, console);
  EXPECT_TRUE(memory_of(config_, with).has_value());
  EXPECT_FALSE(memory_of(config_, without).has_value());
  config_.in_memory_checkpoint.reset();
  EXPECT_FALSE(memory_of(config_, with).has_value());
}

TEST_F(MemoryStartTest, OnlyARestartContinuesFromMemory) {
  MemoryCheckpoints memory(files_.descriptors());
  save_in_memory(memory, 4);
  EXPECT_EQ(start(0), (std::pair<int64_t, std::string>(-1, "")));
  EXPECT_EQ(start(1), (std::pair<int64_t, std::string>(
                          4,
                          "trainer: continuing from step 4 in memory (in memory: step 4, on disk: "
                          "no complete checkpoint)\n")));
}

TEST_F(MemoryStartTest, ANewerOneOnDiskWinsAndWhatIsAboveIsForgotten) {
  MemoryCheckpoints memory(files_.descriptors());
  save_in_memory(memory, 4);
  EXPECT_EQ(whole_saved_iteration(config_, "ours"), -1);
  save_on_disk(6);
  EXPECT_EQ(whole_saved_iteration(config_, "ours"), 6);
  EXPECT_EQ(start(1), (std::pair<int64_t, std::string>(
                          -1,
                          "trainer: continuing from step 6 on disk (in memory: step 4, on disk: "
                          "step 6)\n")));
  save_in_memory(memory, 8);
  EXPECT_EQ(start(1).first, 8);
}

// What --no-save-optim saves is no checkpoint that a run with its optimizer can go on from,
// whatever the first start was told to load.
TEST_F(MemoryStartTest, OneOnDiskWithoutAnOptimizerNeverWins) {
  MemoryCheckpoints memory(files_.descriptors());
  save_in_memory(memory, 4);
  save_on_disk(6, false);
  EXPECT_EQ(whole_saved_iteration(config_, "ours"), -1);
  EXPECT_EQ(start(1), (std::pair<int64_t, std::string>(
                          4,
                          "trainer: continuing from step 4 in memory (in memory: step 4, on disk: "
                          "no complete checkpoint)\n")));
  config_.no_load_optim = true;
  EXPECT_EQ(whole_saved_iteration(config_, "ours"), -1);
  EXPECT_EQ(start(1).first, 4);
}

// Another run's checkpoint is taken neither from the disk nor in place of an older one in memory,
// unless the command itself continues from it, or no launcher says which run this is.
TEST_F(MemoryStartTest, AnotherRunsCheckpointCountsOnlyWhereTheCommandContinuesFromIt) {
  MemoryCheckpoints memory(files_.descriptors());
  save_in_memory(memory, 4);
  run_ = "theirs";
  save_on_disk(6);
  EXPECT_EQ(whole_saved_iteration(config_, "ours"), -1);
  EXPECT_EQ(whole_saved_iteration(config_, "theirs"), 6);
  EXPECT_EQ(whole_saved_iteration(config_, ""), 6);
  EXPECT_EQ(start(1).first, 4);
  const auto later = [&](int restarts) {
    TrainConfig config = config_;
    config.finetune = true;
    config.load = "elsewhere";
    config.ckpt_step = 2;
    config.no_load_optim = true;
    cli::Console console("trainer");
    go_on_after_restart(config, {.run = "ours", .restarts = restarts}, console);
    return config;
  };
  EXPECT_EQ(later(1).load, "elsewhere");
  EXPECT_TRUE(later(1).finetune && later(1).ckpt_step && later(1).no_load_optim);
  config_.load = config_.save;
  EXPECT_EQ(whole_saved_iteration(config_, "ours"), 6);
  for (bool* one : {&config_.finetune, &config_.no_load_optim}) {
    *one = true;
    EXPECT_EQ(whole_saved_iteration(config_, "ours"), -1);
    *one = false;
  }
  run_ = "ours";
  save_on_disk(8);
  EXPECT_EQ(later(0).load, "elsewhere") << "a first start";
  EXPECT_EQ(later(1).load, config_.save);
  EXPECT_FALSE(later(1).finetune || later(1).ckpt_step || later(1).no_load_optim);
  save_on_disk(10, false);
  EXPECT_TRUE(later(1).no_load_optim) << "there is none to load";
}

/// What go_on_after_restart makes of the command of `config` in the start after the first.
TrainConfig later(const TrainConfig& config, const rendezvous::Launch& launch, std::string& said) {
  TrainConfig out = config;
  said = printed([&](cli::Console& console) { go_on_after_restart(out, launch, console); });
  return out;
}

// A job that SLURM has put back into its queue goes on from what its run has saved; every other
// first start without --load begins anew, whatever is in --save.
TEST_F(MemoryStartTest, ARequeuedJobGoesOnFromItsOwn) {
  config_.in_memory_checkpoint.reset();
  rendezvous::Launch launch{.launcher = "torchrun", .run = "ours", .requeued = true};
  std::string said;
  EXPECT_EQ(later(config_, launch, said).load, "");
  run_ = "theirs";
  save_on_disk(60);
  EXPECT_EQ(later(config_, launch, said).load, "");
  EXPECT_EQ(said, "");
  run_ = "ours";
  save_on_disk(30);
  EXPECT_EQ(later(config_, launch, said).load, config_.save);
  EXPECT_THAT(said, HasSubstr("save: SLURM has started this job again: it goes on from what it"));
  launch.run = "";
  EXPECT_EQ(later(config_, launch, said).load, "") << "whose that is, nobody says";
  launch.run = "ours";
  launch.requeued = false;
  EXPECT_EQ(later(config_, launch, said).load, "") << "a first start";
  EXPECT_EQ(said, "");
}

// What --no-save-optim leaves out cannot be loaded: a later start goes on without it.
TEST_F(MemoryStartTest, WhatHasNoOptimizerIsLoadedWithoutOne) {
  config_.in_memory_checkpoint.reset();
  config_.load = "elsewhere";
  config_.finetune = config_.no_save_optim = true;
  save_on_disk(6, false);
  for (const bool requeued : {false, true}) {
    std::string said;
    const TrainConfig config = later(
        config_,
        {.launcher = "torchrun", .run = "ours", .restarts = !requeued, .requeued = requeued}, said);
    EXPECT_EQ(config.load, config_.save);
    EXPECT_FALSE(config.finetune);
    EXPECT_TRUE(config.no_load_optim);
  }
}

// The moments of the checkpoint that a run begins from stay left out until it has saved its own,
// which is never where --no-save-optim leaves them out, too.
TEST_F(MemoryStartTest, MomentsThatTheFirstStartLeftOutStayLeftOut) {
  run_ = "theirs";
  save_on_disk(6);
  config_.load = config_.save;
  config_.no_load_optim = config_.no_save_optim = true;
  const rendezvous::Launch again{.by_trainer = true, .run = "ours", .restarts = 1};
  std::string said;
  const TrainConfig config = later(config_, again, said);
  EXPECT_EQ(said, "");
  EXPECT_EQ(config.load, config_.save);
  EXPECT_TRUE(config.no_load_optim);
}

// Killed between the name of its first checkpoint and the tracker, which names another run's.
TEST_F(MemoryStartTest, AnOwnCheckpointThatTheTrackerDoesNotNameIsTaken) {
  const auto track = [&](const char* step) {
    std::ofstream(config_.save + "/latest_checkpointed_iteration.txt") << step;
  };
  run_ = "theirs";
  save_on_disk(60);
  save_on_disk(20);
  run_ = "ours";
  save_on_disk(10);
  save_on_disk(30);
  track("60");
  EXPECT_EQ(whole_saved_iteration(config_, "ours"), 30);
  EXPECT_EQ(whole_saved_iteration(config_, "nobody's"), -1);
  const rendezvous::Launch again{.by_trainer = true, .run = "ours", .restarts = 1};
  std::string said;
  TrainConfig config = later(config_, again, said);
  EXPECT_EQ(said, "");
  EXPECT_EQ(config.load, config_.save);
  EXPECT_EQ(config.ckpt_step, 30);
  // One that cannot be read is no reason to take another run's.
  std::ofstream(config_.save + "/iter_0000030/meta.json") << "{";
  EXPECT_EQ(later(config_, again, said).ckpt_step, 10);
  track("10");
  config = later(config_, again, said);
  EXPECT_EQ(config.load, config_.save);
  EXPECT_EQ(config.ckpt_step, std::nullopt);
}

// The tracker has changed since the run began: what it names is the run's, although it is gone.
TEST_F(MemoryStartTest, AnOwnCheckpointThatIsGoneIsNotNothing) {
  config_.in_memory_checkpoint.reset();
  run_ = "theirs";
  save_on_disk(60);
  rendezvous::Launch again{.by_trainer = true, .run = "ours", .restarts = 1};
  again.tracker = tracker_state(config_.save);
  std::string said;
  std::filesystem::remove(config_.save + "/iter_0000060/meta.json");
  EXPECT_EQ(later(config_, again, said).load, "");
  EXPECT_THAT(said, HasSubstr("this run has saved nothing there yet: it begins again"));
  run_ = "ours";
  save_on_disk(60);
  std::filesystem::remove(config_.save + "/iter_0000060/meta.json");
  EXPECT_EQ(later(config_, again, said).load, config_.save);
  EXPECT_EQ(said, "");
}

TEST_F(MemoryStartTest, ARecordThatCannotBeReadIsNone) {
  std::filesystem::create_directories(config_.save + "/iter_0000003");
  std::ofstream(config_.save + "/latest_checkpointed_iteration.txt") << "3";
  EXPECT_EQ(whole_saved_iteration(config_, "ours"), -1);
  EXPECT_THAT(start(1).second, HasSubstr("nothing in memory to continue from"));
}

// torchrun starts ranks again that were refused, which does not make the lines theirs.
TEST(MetricsOfOthers, DependOnWhoStartsAgain) {
  using rendezvous::Launch;
  TrainConfig config;
  config.metrics_file = "m.jsonl";
  EXPECT_TRUE(has_metrics_of_others(config, Launch{}, nullptr));
  EXPECT_TRUE(
      has_metrics_of_others(config, Launch{.launcher = "torchrun", .restarts = 1}, nullptr));
  EXPECT_FALSE(
      has_metrics_of_others(config, Launch{.launcher = "trainer", .restarts = 1}, nullptr));
  EXPECT_FALSE(
      has_metrics_of_others(config, Launch{.launcher = "torchrun", .requeued = true}, nullptr));
  config.save = "nowhere";
  const Launch again{.launcher = "trainer", .restarts = 1, .requeued = true};
  EXPECT_TRUE(has_metrics_of_others(config, again, nullptr));
  CheckpointMeta own;
  own.config["metrics-file"] = {"m.jsonl"};
  EXPECT_FALSE(has_metrics_of_others(config, again, &own));
}

}  // namespace
}  // namespace trainer
