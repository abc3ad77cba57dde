// What an evaluation is: the mean loss of forward passes over the samples that come next, once at
// each of its steps, wherever the run is stopped. Held to the losses of training steps that change
// no weight, which are forward passes over the same samples.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

class EvaluationTest : public ProgramTest {
 protected:
  /// Eight steps; after every third, and at the end, an evaluation of two batches. All three splits
  /// are the same data, there is no dropout, and the learning rate is one that no weight can feel.
  Ended still(const std::string& save, const std::vector<std::string>& more) const {
    std::vector<std::string> words = base();
    const std::vector<std::string> own = {"--lr",
                                          "1e-30",
                                          "--lr-warmup-iters",
                                          "0",
                                          "--weight-decay",
                                          "0",
                                          "--hidden-dropout",
                                          "0",
                                          "--attention-dropout",
                                          "0",
                                          "--train-iters",
                                          "8",
                                          "--eval-interval",
                                          "3",
                                          "--eval-iters",
                                          "2",
                                          "--log-interval",
                                          "1",
                                          "--train-data-path",
                                          "d",
                                          "--valid-data-path",
                                          "d",
                                          "--test-data-path",
                                          "d",
                                          "--save",
                                          save,
                                          "--load",
                                          save};
    const auto split = std::ranges::find(words, "--split");
    words.erase(split, split + 2);
    words.insert(words.end(), own.begin(), own.end());
    words.insert(words.end(), more.begin(), more.end());
    return wait(start(words, {}, TRAINER_PROGRAM, false));
  }

  /// The losses of steps, and of evaluations, in the order of a run's metrics.
  struct Losses {
    std::vector<double> steps, evaluations;
  };
  Losses losses(const std::string& save) const {
    Losses out;
    std::ifstream in(folder_ + "/" + save + "/metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("validation"))
        out.evaluations.push_back(record.at("lm_loss"));
      else if (record.contains("lm_loss"))
        out.steps.push_back(record.at("lm_loss"));
    }
    return out;
  }

  /// What evaluations must be: at steps 3 and 6, at the end; and of the test set, which begins
  /// anew.
  static void expect_means(const Losses& run, double tolerance) {
    ASSERT_EQ(run.steps.size(), 8u);
    ASSERT_EQ(run.evaluations.size(), 4u);
    for (const size_t i : {0u, 1u, 2u, 3u}) {
      const size_t first = i == 3 ? 0 : 2 * i;
      EXPECT_NEAR(run.evaluations[i], (run.steps[first] + run.steps[first + 1]) / 2, tolerance)
          << "evaluation " << i;
    }
    EXPECT_GT(std::abs(run.evaluations[0] - run.evaluations[1]), 1e-4) << "the same samples again";
  }
};

TEST_F(EvaluationTest, IsForwardPassesOverTheNextSamples) {
  const Ended one = still("one", {});
  ASSERT_EQ(one.status, 0) << one.err;
  expect_means(losses("one"), 1e-12);
  const Ended two = still("two", {"--nproc-per-node", "2"});
  ASSERT_EQ(two.status, 0) << two.err;
  expect_means(losses("two"), 2e-7);  // a sum in fp32 of two ranks' means
  for (const size_t i : {0u, 1u, 2u, 3u})
    EXPECT_NEAR(losses("two").evaluations[i], losses("one").evaluations[i], 1e-6);
}

TEST_F(EvaluationTest, OfOneBatchIsItsLoss) {
  const Ended one = still("one", {"--eval-iters", "1"});
  ASSERT_EQ(one.status, 0) << one.err;
  const Losses run = losses("one");
  ASSERT_EQ(run.evaluations.size(), 4u);
  for (const size_t i : {0u, 1u, 2u, 3u})
    EXPECT_NEAR(run.evaluations[i], run.steps[i % 3], 1e-12) << "evaluation " << i;
}

TEST_F(EvaluationTest, IsDoneOnceWhereTheRunIsStoppedAtItsStep) {
  ASSERT_EQ(still("whole", {}).status, 0);
  int starts = 0;
  for (int status = 75; status == 75; ++starts) {
    status = still("stopped", {"--exit-interval", "3"}).status;
    ASSERT_LT(starts, 5);
  }
  EXPECT_EQ(starts, 3);  // after steps 3 and 6, and the rest
  EXPECT_EQ(metrics("stopped"), metrics("whole"));
  EXPECT_EQ(losses("stopped").evaluations.size(), 4u);
}

// A run that has evaluated more often than its flags say now has used up the validation samples.
TEST_F(EvaluationTest, StartsOverWhereTheSamplesAreUsedUp) {
  ASSERT_EQ(
      still("run", {"--eval-interval", "1", "--eval-iters", "40", "--exit-interval", "6"}).status,
      75);
  const Ended rest = still("run", {"--eval-iters", "1"});
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(losses("run").evaluations.size(), 6u + 2u);  // the last two at the end
}

// As in Megatron, whatever has been evaluated before.
TEST_F(EvaluationTest, SkipTrainBeginsWithTheFirstSamples) {
  ASSERT_EQ(still("run", {}).status, 0);
  for (int round = 0; round < 3; ++round) {
    const Ended again = still("run", {"--skip-train", "--metrics-file", "again.jsonl"});
    EXPECT_EQ(again.status, 0) << again.err;
  }
  std::istringstream lines(read("again.jsonl"));
  std::vector<double> seen;
  for (std::string line; std::getline(lines, line);)
    seen.push_back(nlohmann::json::parse(line).at("lm_loss"));
  ASSERT_EQ(seen.size(), 6u);
  for (const double loss : seen) EXPECT_NEAR(loss, losses("run").evaluations[0], 1e-12);
}

// Nothing is asked of splits in which some datasets have no document.
TEST_F(EvaluationTest, WithoutEvaluationNoSplitIsNeededForIt) {
  make_dataset("many", 2000, 61);  // d has none for the test.
  for (const Words& data : {Words{"0.5", "many", "0.5", "d"}, Words{"many", "d"}}) {
    Words words = {"--split", "969,30,1", "--eval-iters", "0", "--data-path"};
    words.insert(words.end(), data.begin(), data.end());
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
  }
}

// With -v a run prints its plan of memory, line by line.
TEST_F(EvaluationTest, ThePlanOfMemoryIsOfManyLines) {
  const Ended ended = run({"-v"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, testing::ContainsRegex("\n *gradients"));
}

}  // namespace
}  // namespace trainer
