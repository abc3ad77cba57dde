// --dry-run against the run itself: it reads the same checkpoint and the same data, says the same
// of them, refuses what the run refuses, and writes nothing.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class DryRunTest : public ProgramTest {
 protected:
  static std::string last_line(const std::string& text) {
    const size_t end = text.find_last_not_of('\n');
    return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      if (entry.path().filename() != "out" && entry.path().filename() != "err")
        out.push_back(entry.path());
    std::ranges::sort(out);
    return out;
  }
};

TEST_F(DryRunTest, LooksAtTheData) {
  EXPECT_THAT(run({"--dry-run"}).out,
              ContainsRegex("data        [0-9,]+ tokens; the run reads 768, "));
  const Ended missing = run({"--dry-run", "--data-path", "nowhere"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.out, HasSubstr("data        nowhere.idx: "));
  EXPECT_THAT(missing.out, HasSubstr("run         12 steps, about "));
  const Ended evaluates = run({"--dry-run", "--skip-train"});
  EXPECT_EQ(evaluates.status, 0) << evaluates.err;
  EXPECT_THAT(evaluates.out, ContainsRegex("data        [0-9,]+ tokens\n"));
  EXPECT_THAT(evaluates.out, Not(HasSubstr("\nrun ")));
}

// A last, partial step is not taken: 50 samples are 12 steps of 4.
TEST_F(DryRunTest, CountsWholeSteps) {
  Words words = base();
  const auto iters = std::ranges::find(words, "--train-iters");
  words.erase(iters, iters + 2);
  const auto warmup = std::ranges::find(words, "--lr-warmup-iters");
  words.erase(warmup, warmup + 2);
  const Ended dry =
      wait(start(words + Words{"--train-samples", "50", "--data-path", "d", "--dry-run"}, {},
                 TRAINER_PROGRAM, false));
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("the run reads 768, "));
  EXPECT_THAT(dry.out, HasSubstr("run         12 steps, about "));
}

// What is left to do, and what is said of the checkpoint: as by the run.
TEST_F(DryRunTest, GoesOnFromACheckpoint) {
  ASSERT_EQ(run({"--save", "s", "--load", "s", "--exit-interval", "4"}).status, 75);
  const Words again = {"--save", "s", "--load", "s", "--seed", "9", "--clip-grad", "0.5"};
  const Ended dry = run(again + Words{"--dry-run"});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("start       s/iter_0000004, step 4\n"));
  EXPECT_THAT(dry.out, HasSubstr("the run reads 768, "));
  EXPECT_THAT(dry.out, HasSubstr("run         8 of 12 steps, about "));
  EXPECT_THAT(dry.err, HasSubstr("--seed was 1234, is 9: samples will come in another order"));
  EXPECT_THAT(dry.err, HasSubstr("--clip-grad was 1, is 0.5: from here on the command's counts"));
  EXPECT_EQ(run(again).err, dry.err);
  const Ended weights = run({"--dry-run", "--pretrained-checkpoint", "s"});
  EXPECT_THAT(weights.out, HasSubstr("start       s/iter_0000012, step 12: its weights alone\n"));
  EXPECT_THAT(weights.out, HasSubstr("run         12 steps, about "));
  const Ended behind = run({"--dry-run", "--save", "s"});
  EXPECT_THAT(behind.err, HasSubstr("s: has checkpoints up to step 12, this run begins at step 0"));
}

TEST_F(DryRunTest, RefusesWhatTheRunRefuses) {
  ASSERT_EQ(run({"--save", "s", "--no-save-optim", "--exit-interval", "4"}).status, 1);
  ASSERT_EQ(run({"--save", "whole", "--exit-interval", "4"}).status, 1);
  make_dataset("e", 1, 61);
  for (const Words& words : {
           Words{"--data-path", "d", "e", "--train-iters", "2000", "--eval-iters", "0"},
           Words{"--split", "0,50,50"},
           Words{"--split", "100,0,0", "--data-path", "0.5", "d", "0.5", "nowhere"},
           Words{"--vocab-size", "62", "--eod-id", "61"},
           Words{"--load", "s"},
           Words{"--load", "whole", "--hidden-size", "64"},
           Words{"--load", "whole", "--lr", "1e-3"},
           Words{"--load", "whole", "--optimizer", "muon"},
           Words{"--pretrained-checkpoint", "nowhere"},
           Words{"--load", "nowhere", "--exit-on-missing-checkpoint"},
       }) {
    const Ended real = run(words), dry = run(words + Words{"--dry-run"});
    const std::string reason = last_line(real.err).substr(sizeof "trainer: " - 1);
    EXPECT_NE(real.status, 0) << words.back();
    EXPECT_EQ(dry.status, real.status) << reason;
    EXPECT_THAT(dry.out + dry.err, HasSubstr(reason));
  }
}

TEST_F(DryRunTest, LooksAtTheDiskOfSave) {
  const Ended there = run({"--dry-run", "--save", "not/yet"});
  EXPECT_EQ(there.status, 0) << there.err;
  EXPECT_THAT(there.out,
              ContainsRegex("\ncheckpoint  [0-9.]+ KiB on disk \\([0-9.]+ .iB free\\), "));
  const Ended below = run({"--dry-run", "--save", "d.idx/s"});
  EXPECT_EQ(below.status, 0);
  EXPECT_THAT(below.out, ContainsRegex("on disk \\(.*/d.idx: not a directory\\), and as much"));
  const Ended large =
      run({"--dry-run", "--save", "s", "--num-layers", "2000", "--hidden-size", "16384",
           "--num-attention-heads", "128", "--gpu", "h200", "--device", "auto"});
  EXPECT_THAT(large.out, ContainsRegex("TiB on disk \\(does not fit: [0-9.]+ .iB free\\), and"));
}

TEST_F(DryRunTest, WritesNothing) {
  const std::vector<std::string> before = names();
  const Words words = {"--data-path", "1", "d",         "--data-cache-path", "cache",
                       "--save",      "s", "--dry-run", "--tensorboard-dir", "board"};
  EXPECT_EQ(run(words).status, 0) << read("err");
  EXPECT_EQ(names(), before);
}

}  // namespace
}  // namespace trainer
