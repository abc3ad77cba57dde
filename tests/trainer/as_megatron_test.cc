// What the program takes over from Megatron's rules for resuming and for positions, and where a
// whole run is what counts: samples of the run, evaluations alone.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class AsMegatronTest : public ProgramTest {
 protected:
  /// The run of all tests without its --train-iters.
  Ended by_samples(const Words& more) const {
    Words words = base();
    const auto at = std::ranges::find(words, "--train-iters");
    words.erase(at, at + 2);
    words.insert(words.end(), {"--data-path", "d", "--lr-warmup-iters", "0"});
    words.insert(words.end(), more.begin(), more.end());
    return wait(start(words, {}, TRAINER_PROGRAM, false));
  }

  /// A field of the interval of an iteration in a file of metrics.
  double field(const std::string& file, int iteration, const char* name) const {
    std::istringstream in(read(file));
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.at("iteration") == iteration && record.contains("grad_norm"))
        return record.at(name);
    }
    ADD_FAILURE() << file << " has no iteration " << iteration;
    return -1;
  }
};

// Megatron would count all steps as if they had the new size.
TEST_F(AsMegatronTest, SamplesAreThoseOfTheWholeRun) {
  const Words samples = {"--train-samples", "48", "--lr-warmup-samples", "8",
                         "--log-interval",  "1"};
  const auto with = [&](const std::string& save, const Words& more) {
    Words words = samples;
    words.insert(words.end(), {"--save", save, "--load", save});
    words.insert(words.end(), more.begin(), more.end());
    return by_samples(words);
  };
  ASSERT_EQ(by_samples({"--train-samples", "48", "--lr-warmup-samples", "8", "--log-interval", "1",
                        "--save", "whole"})
                .status,
            0);
  for (const auto& [size, last, consumed] :
       {std::tuple{"8", 8, 44}, {"4", 12, 48}, {"2", 19, 48}}) {
    const std::string save = std::string("s") + size, file = save + "/metrics.jsonl";
    ASSERT_EQ(with(save, {"--exit-interval", "5"}).status, 75);
    const Ended ended = with(save, {"--global-batch-size", size});
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(read(save + "/latest_checkpointed_iteration.txt"), std::to_string(last));
    EXPECT_EQ(field(file, last, "consumed_train_samples"), consumed);
    EXPECT_EQ(field(file, last, "train_iters"), last);
    // The schedule is one of samples: 28 of them are consumed.
    const int at = 5 + 8 / std::stoi(size);
    EXPECT_EQ(field(file, at, "learning_rate"), field("whole/metrics.jsonl", 7, "learning_rate"));
  }
  const Ended tokens = by_samples({"--train-tokens", "641", "--save", "t", "--load", "t",
                                   "--exit-interval", "5", "--lr-decay-samples", "48"});
  ASSERT_EQ(tokens.status, 75) << tokens.err;  // 41 samples
  EXPECT_EQ(by_samples({"--train-tokens", "641", "--save", "t", "--load", "t", "--lr-decay-samples",
                        "48", "--global-batch-size", "8", "--override-opt_param-scheduler"})
                .status,
            0)
      << read("err");
  EXPECT_EQ(read("t/latest_checkpointed_iteration.txt"), "8");
  // Weighted data are as many samples as the run asks for: 20, and two steps of 16.
  const auto weighted = [&](const Words& more) {
    Words words = {"--data-path",
                   "1",
                   "d",
                   "--train-tokens",
                   "641",
                   "--save",
                   "w",
                   "--load",
                   "w",
                   "--lr-decay-samples",
                   "48",
                   "--override-opt_param-scheduler",
                   "--log-interval",
                   "1"};
    words.insert(words.end(), more.begin(), more.end());
    return by_samples(words);
  };
  ASSERT_EQ(weighted({"--exit-interval", "5"}).status, 75) << read("err");
  const Ended larger = weighted({"--global-batch-size", "16"});
  EXPECT_EQ(larger.status, 0) << larger.err;
  EXPECT_EQ(field("w/metrics.jsonl", 7, "consumed_train_samples"), 52);
}

// Megatron loads the schedule's position with the optimizer.
TEST_F(AsMegatronTest, WithoutTheOptimizerTheScheduleBeginsAnew) {
  ASSERT_EQ(run({"--save", "a", "--save-interval", "6", "--log-interval", "1"}).status, 0);
  const std::string all = "a/metrics.jsonl";
  ASSERT_NE(field(all, 8, "learning_rate"), field(all, 2, "learning_rate"));
  ASSERT_EQ(run({"--load", "a", "--ckpt-step", "6", "--no-load-optim", "--log-interval", "1",
                 "--save", "b"})
                .status,
            0)
      << read("err");
  for (const int step : {1, 2, 6})
    EXPECT_EQ(field("b/metrics.jsonl", 6 + step, "learning_rate"),
              field(all, step, "learning_rate"));
  // A run that never saves an optimizer goes on in its own schedule.
  const Words lean = {"--save",          "lean",           "--load", "lean", "--no-save-optim",
                      "--no-load-optim", "--log-interval", "1"};
  Words first = lean;
  first.insert(first.end(), {"--exit-interval", "6"});
  ASSERT_EQ(run(first).status, 75) << read("err");
  ASSERT_EQ(run(lean).status, 0) << read("err");
  for (const int step : {6, 7, 11})
    EXPECT_EQ(field("lean/metrics.jsonl", step, "learning_rate"),
              field(all, step, "learning_rate"));
}

// megatron-core looks up learned positions only; rotary ones run through the sample.
TEST_F(AsMegatronTest, OnlyLearnedPositionsAreReset) {
  const char* note = "--reset-position-ids changes nothing: positions are ";
  for (const std::string kind : {"learned_absolute", "rope"}) {
    const Words words = {"--position-embedding-type", kind, "--save"};
    Words plain = words, reset = words;
    plain.push_back(kind + "_plain");
    reset.insert(reset.end(), {kind + "_reset", "--reset-position-ids"});
    ASSERT_EQ(run(plain).status, 0);
    const Ended ended = run(reset);
    ASSERT_EQ(ended.status, 0) << ended.err;
    const bool same = metrics(kind + "_plain") == metrics(kind + "_reset");
    EXPECT_EQ(same, kind == "rope");
    EXPECT_EQ(ended.err.find(note) != std::string::npos, kind == "rope") << ended.err;
  }
}

// A run that only evaluates adds to a file, and takes nothing from it.
TEST_F(AsMegatronTest, EvaluationsAloneAreMetricsToo) {
  const auto lines = [&](const std::string& file) { return std::ranges::count(read(file), '\n'); };
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  const std::string trained = read("s/metrics.jsonl");
  ASSERT_EQ(run({"--load", "s", "--save", "s", "--skip-train"}).status, 0);
  EXPECT_EQ(read("s/metrics.jsonl"), trained) << "only where it is asked for";
  for (const int count : {2, 4}) {
    const Ended ended = run({"--load", "s", "--skip-train", "--metrics-file", "e.jsonl"});
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(lines("e.jsonl"), count);
    EXPECT_THAT(read("e.jsonl"), HasSubstr("{\"validation\": \"iteration 12 on test set\""));
    EXPECT_THAT(ended.err, Not(HasSubstr("e.jsonl")));
  }
  ASSERT_EQ(
      run({"--load", "s", "--ckpt-step", "6", "--skip-train", "--metrics-file", "s/metrics.jsonl"})
          .status,
      0);
  EXPECT_EQ(read("s/metrics.jsonl").substr(0, trained.size()), trained);
  EXPECT_THAT(read("s/metrics.jsonl"), HasSubstr("\"iteration 6 on test set\""));
}

// The line that tells of heads that share is for a command that may mean Megatron's other reading;
// a checkpoint's own number can be read in one way only. And a run past its end says so.
TEST_F(AsMegatronTest, WhatTheCheckpointSaysIsNotAsked) {
  const Ended begun = run({"--num-query-groups", "1", "--save", "s"});
  ASSERT_EQ(begun.status, 0) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("--num-query-groups 1: heads share"));
  const Ended past = run({"--load", "s", "--use-checkpoint-args", "--train-iters", "9",
                          "--override-opt_param-scheduler"});
  EXPECT_EQ(past.status, 0);
  EXPECT_THAT(past.err, Not(HasSubstr("heads share")));
  EXPECT_THAT(past.err,
              HasSubstr("trainer: the checkpoint is of step 12, this command's last one is 9: "
                        "nothing is trained\n"));
}

// The order of samples and the schedule have their own lines.
TEST_F(AsMegatronTest, SettingsThatChangeWithAResumeAreSaid) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  const Words again = {"--load", "s", "--ckpt-step", "6"};
  EXPECT_THAT(run(again).err, Not(HasSubstr(", is ")));
  Words other = again;
  other.insert(other.end(),
               {"--adam-beta2", "0.5", "--eod-mask-loss", "--log-interval", "1", "--lr", "1e-2"});
  const Ended ended = run(other);
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err,
              HasSubstr("trainer: --adam-beta2 was 0.999, is 0.5; --eod-mask-loss was false, "
                        "is true: from here on the command's counts\n"));
  EXPECT_THAT(run(again + Words{"--exp-avg-dtype", "bf16", "--fp8-format", "e4m3"}).err,
              HasSubstr("--fp8-format was off, is e4m3; --exp-avg-dtype was fp32, is bf16: from"));
  for (const Words& idle : {Words{"--muon-momentum", "0.5"}, Words{"--fp8-recipe", "tensorwise"}})
    EXPECT_THAT(run(again + idle).err, Not(HasSubstr(", is "))) << idle[0];
}

// Before the type of a tokenizer said how many tokens there are, --vocab-size did: what was trained
// so keeps its rows.
TEST_F(AsMegatronTest, RowsOfAnEarlierVocabularyStay) {
  std::string tokens;
  for (int id = 0; id < 64; ++id)
    tokens += std::string(id ? "," : "{") + "\"t" + std::to_string(id) + "\":" + std::to_string(id);
  std::ofstream(folder_ + "/v.json") << tokens << "}";
  std::ofstream(folder_ + "/m.txt") << "#version: 0.2\n";
  const auto named = [](const Words& more) {
    Words words = {"--save", "rows",         "--load", "rows",         "--vocab-file",
                   "v.json", "--merge-file", "m.txt",  "--vocab-size", "200"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Ended first = run(named({"--exit-interval", "6"}));
  ASSERT_EQ(first.status, 75) << first.err;
  const Ended second = run(named({"--tokenizer-type", "GPT2BPETokenizer"}));
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.err,
              HasSubstr("--vocab-size 200 changes nothing: GPT2BPETokenizer has 64 tokens"));
  EXPECT_THAT(second.err, HasSubstr("vocabulary padded to 256 as in "));
  EXPECT_THAT(second.err, HasSubstr("this command alone would pad it to 64"));
}

TEST_F(AsMegatronTest, ZeroIsNoInterval) {
  const Ended ended = run({"--save", "s", "--exit-duration-in-mins", "0", "--exit-interval", "0",
                           "--save-interval", "0", "--eval-iters", "-1"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(read("s/latest_checkpointed_iteration.txt"), "12");
  EXPECT_THAT(ended.out, Not(HasSubstr("validation loss")));
}

// Data of NullTokenizer before megatron-core 0.18: its end of documents is --vocab-size.
TEST_F(AsMegatronTest, NullTokenizersIdOfEarlierReleasesIsExplained) {
  const Ended ended =
      run({"--tokenizer-type", "NullTokenizer", "--vocab-size", "63", "--eod-id", "62"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("NullTokenizer: --vocab-size 63 is ids 0 to 62, as from "));
  EXPECT_THAT(ended.err,
              HasSubstr(": id 63: the vocabulary has ids 0 to 62; before megatron-core 0.18, "
                        "NullTokenizer has it, too: give --vocab-size 64"));
}

}  // namespace
}  // namespace trainer
