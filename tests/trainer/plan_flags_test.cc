// The command that plan-training prints is the one that it has planned: flags under other names,
// those that several hosts need, those of a checkpoint, and the length of a run.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <fstream>
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
  // The line counts before a file.
  std::ofstream(folder_ + "/a.toml") << "train-tokens = 4096\n";
  std::ofstream(folder_ + "/b.toml") << "tokens = 4096\n";
  for (const Words& line : {Words{"--config", "a.toml", "--tokens", "8192"},
                            Words{"--config", "b.toml", "--train-tokens", "8192"}})
    EXPECT_THAT(planned(words + line)["best"][0]["command"].get<std::string>(),
                HasSubstr("--train-tokens 8192 "));
}

// The rows of the vocabulary are the trainer's: Pai's, which not every number of ranks divides.
TEST_F(PlanFlagsTest, TheVocabularyIsTheTrainers) {
  const Words words = model() + Words{"--micro-batch-size", "1",     "--as-given",
                                      "--vocab-size",       "50254", "--patch-tokenizer-type",
                                      "Qwen2Tokenizer"};
  const Words two = {"--world-size", "2", "--tensor-model-parallel-size", "2"};
  EXPECT_THAT(plan(words + two + Words{"--extra-vocab-size", "421"}).err,
              HasSubstr("50675 rows, not padded, as in Pai-Megatron-Patch, and "
                        "--tensor-model-parallel-size 2 does not divide them"));
  EXPECT_EQ(plan(words + two + Words{"--extra-vocab-size", "422"}).status, 0);
  const Words null = {"--micro-batch-size", "1",     "--as-given",
                      "--vocab-size",       "50254", "--tokenizer-type",
                      "NullTokenizer"};
  EXPECT_THAT(plan(model() + null + Words{"--world-size", "1"}).err,
              HasSubstr("NullTokenizer: --vocab-size 50254 is ids 0 to 50253, as from "));
}

// 15 steps of 64 samples, 8 of 128, then 192, each of its own length: a pipeline's small steps are
// not as many times shorter as they are smaller.
TEST_F(PlanFlagsTest, ARampUpTakesTheTimeOfItsSteps) {
  const Words shapes[] = {{"--world-size", "2"},
                          {"--world-size", "4", "--pipeline-model-parallel-size", "4",
                           "--pipeline-schedule", "zero-bubble"},
                          {"--world-size", "2", "--pipeline-model-parallel-size", "2",
                           "--num-virtual-stages-per-pipeline-rank", "2"}};
  for (const Words& shape : shapes) {
    const Words words = model() + shape + Words{"--micro-batch-size", "16", "--bf16", "--as-given"};
    const auto step = [&](const char* samples) {
      return planned(words + Words{"--global-batch-size", samples})["best"][0]["step_seconds"]
          .get<double>();
    };
    const double expected = 15 * step("64") + 8 * step("128") + 7 * step("192");
    const Words ramp = {"--global-batch-size", "192", "--rampup-batch-size", "64", "64", "1920",
                        "--train-iters",       "30"};
    const nlohmann::json best = planned(words + ramp)["best"][0];
    EXPECT_NEAR(best["run_seconds"].get<double>(), expected, 2e-3 * expected);
    EXPECT_LT(expected, 0.9 * 30 * best["step_seconds"].get<double>());
  }
}

// Of many sizes some are simulated; the dry run says the same.
TEST_F(PlanFlagsTest, ALongRampUpLiesBetweenItsSteps) {
  const Words words = model() + Words{"--nproc-per-node",
                                      "2",
                                      "--micro-batch-size",
                                      "1",
                                      "--global-batch-size",
                                      "128",
                                      "--bf16"};
  const Words ramp = {"--rampup-batch-size", "2", "2", "6400", "--train-iters", "400"};
  const nlohmann::json best = planned(words + ramp + Words{"--as-given"})["best"][0];
  const double step = best["step_seconds"], run = best["run_seconds"];
  // Twice as long with as many tokens a step: 100 steps of each size of 2 to 128 would take half.
  EXPECT_LT(run, 400 * step);
  EXPECT_GT(run, 0.5 * 400 * step);
  const Ended dry =
      wait(start(words + ramp + Words{"--lr", "1e-4", "--dry-run"}, {}, TRAINER_PROGRAM, false));
  const Ended text = plan(words + ramp + Words{"--as-given"});
  const size_t about = text.out.find("about ", text.out.find("    run  "));
  EXPECT_THAT(dry.out, HasSubstr(text.out.substr(about, text.out.find('\n', about) - about)))
      << dry.err;
}

// The trainer does not start torchrun's ranks again.
TEST_F(PlanFlagsTest, ARestartingRunIsStartedByTheTrainerOnEachHost) {
  const Words words =
      model() + Words{"--world-size", "16", "--max-global-batch-size", "64", "--top", "1"};
  const Words restarts = {"--max-restarts", "3"}, folder = {"--save", "s", "--load", "s"};
  for (const Words& more : {Words{}, Words{"--in-memory-checkpoint", "20"}}) {
    const std::string command = planned(words + restarts + folder + more)["best"][0]["command"];
    EXPECT_THAT(command,
                testing::StartsWith("trainer --nnodes 2 --node-rank $RANK --master-addr "
                                    "$MASTER_ADDR --master-port $MASTER_PORT --nproc-per-node 8 "));
  }
  const nlohmann::json missing = planned(words + restarts)["missing_flags"];
  EXPECT_THAT(missing, testing::IsSupersetOf({"--save", "--load"}));
  // A saved configuration has the flag at its default.
  for (const Words& none : {Words{}, Words{"--max-restarts", "0"}})
    EXPECT_THAT(planned(words + none)["best"][0]["command"].get<std::string>(),
                testing::StartsWith("torchrun "));
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
  EXPECT_THAT(json["missing_flags"], Not(testing::Contains("--num-layers")));
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
  const Ended text = plan(words + Words{"--world-size", "1", "--max-global-batch-size", "8"});
  EXPECT_THAT(text.out, testing::ContainsRegex("--cpu-offload it fits and takes [0-9.]+ times as"));
}

}  // namespace
}  // namespace trainer
