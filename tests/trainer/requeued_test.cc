// Jobs that SLURM has put back into its queue, under torchrun: whose checkpoints in --save are the
// run's own, and what it loads of them.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <utility>

#include "tests/trainer/run_ranks.h"

namespace trainer {
namespace {

using testing::HasSubstr;
class RequeuedTest : public ManyTest {
 protected:
  /// As torchrun starts one rank on each of `hosts` hosts; `jobs`: of SLURM, as each host knows it.
  std::vector<Ended> elastic(const std::vector<std::string>& jobs, int restarts,
                             const Words& words) {
    const int hosts = static_cast<int>(jobs.size()), at = port();
    return under_launcher(hosts, plain(words), [&](int rank) {
      Variables variables = torchrun(rank, hosts, at);
      variables["TORCHELASTIC_RESTART_COUNT"] = std::to_string(restarts);
      variables["LOCAL_RANK"] = "0";
      variables["LOCAL_WORLD_SIZE"] = "1";
      variables["GROUP_RANK"] = std::to_string(rank);
      if (const std::string& job = jobs[static_cast<size_t>(rank)]; !job.empty())
        variables["SLURM_JOB_ID"] = job;
      return variables;
    });
  }
};

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

// A job of `--nnodes 1:2` whose hosts srun has not reached.
TEST_F(RequeuedTest, ARunIsTheSameOnOneHostAndOnTwo) {
  ASSERT_EQ(run(plain({"--save", "base"})).status, 0);
  const Words four = {"--load",          "base", "--finetune",      "--save", "s",
                      "--save-interval", "4",    "--exit-interval", "4"};
  for (const bool second_knows : {true, false}) {
    std::filesystem::remove_all(folder_ + "/s");
    const std::string second = second_knows ? "7" : "";
    const auto goes_on = [&](const std::vector<std::string>& jobs, int restarts, int from) {
      const std::vector<Ended> ended = elastic(jobs, restarts, four);
      EXPECT_THAT(ended[0].out, HasSubstr("checkpoint from s/iter_000000" + std::to_string(from)))
          << ended[0].err;
    };
    EXPECT_THAT(elastic({"7"}, 0, four)[0].out, HasSubstr("checkpoint from base/"));
    goes_on({"7", second}, 1, 4);
    goes_on({"7"}, 2, 8);
  }
}

// Whose checkpoint that is cannot be known: neither is it taken, nor does the run begin again.
TEST_F(RequeuedTest, WhereOnlyOneStartKnowsItsJobNothingIsTaken) {
  ASSERT_EQ(run(plain({"--save", "base"})).status, 0);
  const Words words = {"--load", "base", "--finetune", "--save", "s"};
  const auto refused = [&](const std::vector<std::string>& jobs, const char* why) {
    for (const Ended& one : elastic(jobs, 1, words)) EXPECT_EQ(one.status, 1) << one.err;
    EXPECT_THAT(read("err.0"), HasSubstr("s/iter_0000012: saved under the same --rdzv-id "));
    EXPECT_THAT(read("err.0"), HasSubstr(why));
  };
  elastic({"7"}, 0, words);
  refused({""}, "in a SLURM job, and no rank of this start knows its own (SLURM_JOB_ID)");
  refused({"", ""}, "in a SLURM job, and no rank of this start knows its own (SLURM_JOB_ID)");
  EXPECT_THAT(elastic({"8"}, 1, words)[0].out, HasSubstr("checkpoint from base/"));
  std::filesystem::remove_all(folder_ + "/s");
  elastic({""}, 0, words);
  refused({"7"}, "where no rank knew a SLURM job, and this start has one (SLURM_JOB_ID)");
  refused({"", "7"}, "where no rank knew a SLURM job, and this start has one (SLURM_JOB_ID)");
  Words going_on = words;
  going_on[1] = "s", going_on.erase(going_on.begin() + 2);
  EXPECT_THAT(elastic({"7"}, 1, going_on)[0].out, HasSubstr("checkpoint from s/"));
}

}  // namespace
}  // namespace trainer
