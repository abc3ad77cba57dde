// The command that plan-training prints is the one that it has planned: flags under other names,
// those that several hosts need, those of a checkpoint, and the length of a run.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

class PlanFlagsTest : public ProgramTest {
 protected:
  static Words model() {
    return {"--num-layers",          "4",     "--hidden-size", "512",
            "--num-attention-heads", "8",     "--seq-length",  "512",
            "--vocab-size",          "50257", "--gpu",         "h200"};
  }
  Ended plan(const Words& words) { return wait(start(words, {}, PLAN_PROGRAM, false)); }
  nlohmann::json planned(const Words& words) {
    const Ended ended = plan(words + Words{"--json"});
    EXPECT_EQ(ended.status, 0) << ended.err;
    return ended.status == 0 ? nlohmann::json::parse(ended.out) : nlohmann::json();
  }
};

TEST_F(PlanFlagsTest, OlderNamesPlanAndPrintWhatTheirNewOnesDo) {
  const Words words = model() + Words{"--world-size", "2", "--max-global-batch-size", "64"};
  const std::pair<Words, Words> same[] = {
      {{"--activations-checkpoint-method", "uniform"},
       {"--checkpoint-activations", "--recompute-method", "uniform"}},
      {{"--activations-checkpoint-method", "block", "--activations-checkpoint-num-layers", "2"},
       {"--checkpoint-activations", "--recompute-method", "block", "--recompute-num-layers", "2"}},
      {{"--pipeline-model-parallel-size", "2", "--enable-zbh1-pipeline"},
       {"--pipeline-model-parallel-size", "2", "--pipeline-schedule", "zero-bubble"}},
      {{"--window-size", "127,0"}, {"--sliding-window", "128"}},
      {{"--fp8-e4m3"}, {"--fp8-format", "e4m3"}},
      {{"--fp8-hybrid"}, {"--fp8-format", "hybrid"}}};
  for (const auto& [older, newer] : same) {
    const nlohmann::json json = planned(words + older);
    EXPECT_EQ(json, planned(words + newer)) << older.front();
    const std::string command = json["best"][0]["command"];
    for (const std::string& word : newer) EXPECT_THAT(command, HasSubstr(" " + word + " "));
  }
  EXPECT_EQ(planned(words + same[0].first)["best"][0]["recompute"], "full");
}

// Nor does a layout that needs memory add another recomputation.
TEST_F(PlanFlagsTest, AnOlderNameFixesTheRecomputation) {
  Words words = model();
  words[1] = "32", words[3] = "4096", words[5] = "32", words[7] = "2048", words[11] = "a100-40gb";
  const nlohmann::json json =
      planned(words + Words{"--world-size", "8", "--global-batch-size", "64", "--top", "1",
                            "--activations-checkpoint-method", "uniform"});
  EXPECT_THAT(json["best"][0]["layout"], HasSubstr("recompute full"));
}

TEST_F(PlanFlagsTest, TokensHaveOneNumber) {
  const Words words = model() + Words{"--world-size", "1", "--global-batch-size", "8"};
  EXPECT_EQ(plan(words + Words{"--train-tokens", "1000", "--tokens", "2000"}).err,
            "plan-training: --tokens 2000, but --train-tokens 1000: both are the length of the "
            "run\n");
  EXPECT_EQ(plan(words + Words{"--train-tokens", "100000", "--tokens", "100000"}).status, 0);
}

// Steps of a ramp-up are smaller, so shorter: a run takes longer than without one, by what small
// steps cost, and less than as many full steps.
TEST_F(PlanFlagsTest, ARampUpTakesTheTimeOfItsSteps) {
  const Words words = model() + Words{"--world-size", "2", "--global-batch-size", "1024",
                                      "--top",        "1", "--train-samples",     "1000000"};
  const nlohmann::json plain = planned(words)["best"][0],
                       ramp = planned(
                           words + Words{"--rampup-batch-size", "64", "64", "1000000"})["best"][0];
  EXPECT_GT(ramp["run_seconds"], plain["run_seconds"]);
  EXPECT_LT(ramp["run_seconds"].get<double>(), 1.3 * plain["run_seconds"].get<double>());
  const Words flags = words + Words{"--rampup-batch-size", "64", "64", "1000000"};
  const std::string text = plan(flags).out;
  const size_t at = text.find("    run         ");
  ASSERT_NE(at, std::string::npos) << text;
  const size_t about = text.find("about", at);
  const std::string length = text.substr(about, text.find('\n', about) - about);
  // The trainer's dry run of the printed command says the same.
  Words command = model() + Words{"--global-batch-size",
                                  "1024",
                                  "--train-samples",
                                  "1000000",
                                  "--rampup-batch-size",
                                  "64",
                                  "64",
                                  "1000000",
                                  "--lr",
                                  "1e-4",
                                  "--nproc-per-node",
                                  "2",
                                  "--dry-run"};
  for (const nlohmann::json& word : ramp["flags"]) command.push_back(word);
  const Ended dry = wait(start(command, {}, TRAINER_PROGRAM, false));
  EXPECT_THAT(dry.out, testing::ContainsRegex("run +[0-9]+ steps, " + length)) << dry.err;
}

// torchrun's ranks can keep no checkpoint in memory: the trainer starts them itself.
TEST_F(PlanFlagsTest, ARestartingRunIsStartedByTheTrainerOnEachHost) {
  const Words words =
      model() + Words{"--world-size", "16", "--max-global-batch-size", "64", "--save", "s",
                      "--load",       "s",  "--max-restarts",          "3",  "--top",  "1"};
  for (const Words& more : {Words{}, Words{"--in-memory-checkpoint", "20"}}) {
    const std::string command = planned(words + more)["best"][0]["command"];
    EXPECT_THAT(command, testing::StartsWith("RANK=$RANK WORLD_SIZE=2 MASTER_ADDR=$MASTER_ADDR "
                                             "MASTER_PORT=$MASTER_PORT \\\n"));
    EXPECT_THAT(command, HasSubstr("trainer --nproc-per-node 8 "));
    EXPECT_THAT(command, Not(HasSubstr("torchrun")));
  }
}

// A size that the command gives is planned wherever it lies; the search stays within hosts.
TEST_F(PlanFlagsTest, TensorRanksOfSeveralHostsArePlannedWhereGiven) {
  const Words words =
      model() + Words{"--world-size", "8", "--local-world-size", "2", "--global-batch-size", "16"};
  const nlohmann::json wide =
      planned(words + Words{"--tensor-model-parallel-size", "4"})["best"][0];
  EXPECT_EQ(wide["tensor_model_parallel_size"], 4);
  const Words as_given = {
      "--tensor-model-parallel-size", "4", "--micro-batch-size", "4", "--as-given", "--bf16"};
  EXPECT_EQ(planned(words + as_given)["best"][0]["data_parallel_size"], 2);
  EXPECT_LE(planned(words)["best"][0]["tensor_model_parallel_size"], 2);
  EXPECT_THAT(plan(words + Words{"--tensor-model-parallel-size", "3"}).err,
              HasSubstr("--tensor-model-parallel-size 3"));
}

// As the trainer does, the planner takes the model of a checkpoint.
TEST_F(PlanFlagsTest, ACheckpointsModelIsPlanned) {
  const Ended trained = wait(start({"--save", "s"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const nlohmann::json json = planned({"--load", "s", "--use-checkpoint-args", "--world-size", "2",
                                       "--max-global-batch-size", "8", "--gpu", "h200"});
  EXPECT_GT(json["best"].size(), 0u);
  EXPECT_THAT(plan({"--load", "absent", "--use-checkpoint-args", "--world-size", "2",
                    "--max-global-batch-size", "8", "--gpu", "h200"})
                  .err,
              HasSubstr("absent"));
}

// A card whose memory holds the state only on the host: what is missing is said.
TEST_F(PlanFlagsTest, StateOnTheHostLeavesANearestMiss) {
  Words words = model();
  words[1] = "24", words[3] = "5120", words[5] = "40", words[7] = "256", words[11] = "l40s";
  const nlohmann::json json =
      planned(words + Words{"--world-size", "1", "--top", "1", "--max-global-batch-size", "8"});
  EXPECT_EQ(json["best"][0]["cpu_offload"], true);
  ASSERT_TRUE(json.contains("nearest_miss"));
  EXPECT_GT(json["nearest_miss"]["tokens_per_second"], json["best"][0]["tokens_per_second"]);
}

}  // namespace
}  // namespace trainer
