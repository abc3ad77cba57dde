// Jobs that SLURM has put back into its queue, under torchrun: whose checkpoints in --save are the
// run's own, and what it loads of them.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <utility>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

class RequeuedTest : public ProgramTest {};

// A requeued job under torchrun goes on from the weights that --no-save-optim has saved, as it
// would after a restart of its ranks.
TEST_F(RequeuedTest, ARequeuedJobWithoutAnOptimizerGoesOn) {
  ASSERT_EQ(run({"--save", "base"}).status, 0);
  const Words words = {
      "--load",          "base", "--finetune",      "--save", "s", "--no-save-optim",
      "--save-interval", "4",    "--exit-interval", "4"};
  Variables job = {{"TORCHELASTIC_RUN_ID", "mine"},
                   {"RANK", "0"},
                   {"LOCAL_RANK", "0"},
                   {"WORLD_SIZE", "1"},
                   {"SLURM_JOB_ID", "7"},
                   {"SLURM_RESTART_COUNT", "0"}};
  EXPECT_EQ(run(words, job).status, 1) << read("err");
  EXPECT_THAT(read("out"), HasSubstr("base/iter_0000012 "));
  for (const auto& [count, status] :
       {std::pair("SLURM_RESTART_COUNT", 1), std::pair("TORCHELASTIC_RESTART_COUNT", 0)}) {
    job[count] = "1";
    EXPECT_EQ(run(words, job).status, status) << read("err");
    EXPECT_THAT(read("err"), HasSubstr(": has no optimizer: its states start from zero"));
  }
  EXPECT_EQ(read("s/latest_checkpointed_iteration.txt"), "12");
}

// An id that every job of a tutorial has names no run: another job's result is not this one's.
TEST_F(RequeuedTest, AnotherJobsRunOfTheSameIdIsAnother) {
  ASSERT_EQ(run({"--save", "base"}).status, 0);
  Variables job = {{"TORCHELASTIC_RUN_ID", "100"},
                   {"RANK", "0"},
                   {"LOCAL_RANK", "0"},
                   {"WORLD_SIZE", "1"},
                   {"SLURM_JOB_ID", "7"}};
  ASSERT_EQ(run({"--save", "s"}, job).status, 0) << read("err");
  const Words tuning = {"--load", "base", "--finetune", "--save", "s", "--seed", "5"};
  job["SLURM_RESTART_COUNT"] = "1";
  EXPECT_EQ(run(tuning, job).status, 0) << read("err");
  EXPECT_THAT(read("out"), HasSubstr("loaded checkpoint from s/iter_0000012 "));
  job["SLURM_JOB_ID"] = "8";
  EXPECT_EQ(run(tuning, job).status, 0) << read("err");
  EXPECT_THAT(read("out"), HasSubstr("loaded checkpoint from base/iter_0000012 "));
  EXPECT_THAT(read("out"), HasSubstr(" iteration       12/      12 |"));
}

}  // namespace
}  // namespace trainer
