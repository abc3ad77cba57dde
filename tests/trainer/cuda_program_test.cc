// The programs on a GPU: checkpoints written during replayed steps, stopping and resuming bit for
// bit, fp16's skipped steps in the log, numbers that are not finite, and generated text. The same
// on a CPU, and everything that does not depend on the device: ../program_test.cc,
// ../resume_test.cc.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include "tests/trainer/run_program.h"
#include "trainer/ops/cuda/cuda.h"

namespace trainer {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

class CudaProgram : public ProgramTest {
 protected:
  void SetUp() override {
    if (ops::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
  static std::vector<std::string> flags(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--device",         "cuda", "--attention-dropout", "0.1",
                                      "--hidden-dropout", "0.1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(CudaProgram, StoppedAndStartedAgainIsTheSameRun) {
  for (const char* precision : {"--bf16", "--fp16"}) {
    const std::vector<std::string> run_flags = {precision, "--save-interval", "5",
                                                "--initial-loss-scale", "65536"};
    const auto saving = [&](const std::string& save, const std::vector<std::string>& more) {
      std::vector<std::string> words = run_flags;
      words.insert(words.end(), {"--save", save, "--load", save});
      words.insert(words.end(), more.begin(), more.end());
      return flags(words);
    };
    const std::string whole = std::string("whole") + precision;
    const Ended ended = run(saving(whole, {}));
    ASSERT_EQ(ended.status, 0) << ended.err;
    const std::string stopped = std::string("stopped") + precision;
    ASSERT_EQ(run(saving(stopped, {"--exit-interval", "5"})).status, 75);
    ASSERT_EQ(run(saving(stopped, {})).status, 0);
    const std::string plain = std::string("plain") + precision;
    ASSERT_EQ(run(saving(plain, {"--cuda-graph", "0"})).status, 0);
    for (const std::string& other : {stopped, plain}) {
      EXPECT_EQ(metrics(other), metrics(whole)) << other;
      EXPECT_TRUE(tensors(other, 12) == tensors(whole, 12)) << other;
    }
    const std::string killed = std::string("killed") + precision;
    const pid_t pid = start(saving(killed, {}));
    for (int i = 0; i < 2000; ++i) {  // as soon as the first checkpoint exists
      if (std::filesystem::exists(folder_ + "/" + killed + "/latest_checkpointed_iteration.txt"))
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(pid, SIGKILL);
    wait(pid);
    ASSERT_EQ(run(saving(killed, {})).status, 0);
    EXPECT_TRUE(tensors(killed, 12) == tensors(whole, 12)) << killed;
  }
}

TEST_F(CudaProgram, SkippedStepsAreCountedUnderFp16) {
  const Ended ended = run(flags({"--fp16", "--train-iters", "40", "--log-interval", "40"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, ContainsRegex("number of skipped iterations: +[1-9][0-9]* \\|"));
  EXPECT_THAT(ended.out, ContainsRegex("number of nan iterations: +0 \\|"));
}

TEST_F(CudaProgram, NotFiniteUnderBf16StopsBeforeItIsApplied) {
  const Ended ended =
      run(flags({"--bf16", "--lr", "1e30", "--lr-warmup-iters", "0", "--save", "s"}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err,
              ContainsRegex("trainer: step [0-9]+: gradient of [a-z_0-9.]+ is not finite "
                            ".*nothing of this step was applied; its samples are of d: "
                            "documents [0-9]+"));
}

TEST_F(CudaProgram, GenerateGoesOnAsTheDataDid) {
  const auto letter = [](int t) { return static_cast<char>(t == 0 ? '!' : '"' + t); };
  nlohmann::json vocab = {{"<|endoftext|>", 63}};
  for (int t = 0; t < 63; ++t) vocab[std::string(1, letter(t))] = t;
  std::ofstream(folder_ + "/vocab.json") << vocab.dump();
  std::ofstream(folder_ + "/merges.txt") << "#version: 0.2\n";
  const Ended trained = run({"--device", "cuda", "--bf16", "--train-iters", "300",
                             "--hidden-dropout", "0", "--attention-dropout", "0", "--save", "s",
                             "--vocab-file", "vocab.json", "--merge-file", "merges.txt"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  std::string expected;
  for (int i = 0, t = 7; i < 12; ++i, t = (t * 5 + 3) % 61) expected += letter(t);
  for (const char* device : {"cuda", "cpu"}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      if (std::string(device) == "cpu" && std::string(dtype) == "bf16") continue;
      const Ended greedy =
          wait(start({"--load", "s", "--prompt", expected.substr(0, 2), "--max-new-tokens", "10",
                      "--greedy", "--device", device, "--dtype", dtype},
                     {}, GENERATE_PROGRAM, false));
      EXPECT_EQ(greedy.status, 0) << greedy.err;
      EXPECT_EQ(greedy.out, expected + "\n") << device << " " << dtype;
    }
  }
}

}  // namespace
}  // namespace trainer
