// A resume says that it reads the samples in another order than its checkpoint's run would have.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

class SampleOrderTest : public ProgramTest {
 protected:
  static Words saving(const std::string& save, const Words& more) {
    Words words = {"--save", save, "--load", save};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

// More epochs, another seed, another dataset under the same name: each is another order, and is
// said. More steps within an epoch, or the same data elsewhere, are not.
TEST_F(SampleOrderTest, AnotherIsSaid) {
  ASSERT_EQ(run(saving("first", {"--exit-interval", "4"})).status, 75) << read("err");
  const auto note_of = [&](const Words& more) {
    std::filesystem::remove_all(folder_ + "/again");
    std::filesystem::copy(folder_ + "/first", folder_ + "/again",
                          std::filesystem::copy_options::recursive);
    Words words = {"--exit-interval", "5", "--override-opt_param-scheduler"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(run(saving("again", words)).status, 75) << read("err");
    const std::string err = read("err");
    return err.find("samples will come in another order") == std::string::npos ? "" : err;
  };
  EXPECT_EQ(note_of({}), "");
  EXPECT_EQ(note_of({"--train-iters", "13"}), "");
  EXPECT_THAT(note_of({"--train-iters", "1000000"}),
              HasSubstr("--train-iters was 12, is 1000000: "));
  EXPECT_THAT(note_of({"--train-iters", "1000000", "--sample-order", "gpt-neox"}),
              HasSubstr("--sample-order was megatron, is gpt-neox; "));
  EXPECT_THAT(note_of({"--seed", "7"}), HasSubstr("--seed was "));
  for (const char* end : {".bin", ".idx"})
    std::filesystem::copy(folder_ + "/d" + end, folder_ + "/moved" + end);
  EXPECT_EQ(note_of({"--data-path", "moved"}), "");
}

// The samples so far may be the same ones, in the same order, and those to come others.
TEST_F(SampleOrderTest, AnotherToComeIsSaid) {
  make_dataset("e", 80, 37);
  const auto note_of = [&](std::vector<std::string> words, const Words& more) {
    data_path_ = {"0.3", "d", "0.7", "e"};
    std::filesystem::remove_all(folder_ + "/run");
    EXPECT_EQ(run(saving("run", {"--exit-interval", "1"})).status, 75) << read("err");
    data_path_ = std::move(words);
    EXPECT_EQ(run(saving("run", more)).status, 0) << read("err");
    const std::string err = read("err");
    return err.find("samples will come in another order") == std::string::npos ? "" : err;
  };
  EXPECT_EQ(note_of({"0.3", "d", "0.7", "e"}, {}), "");
  EXPECT_EQ(
      note_of({"0.3", "d", "0.7", "e"}, {"--train-iters", "15", "--override-opt_param-scheduler"}),
      "");
  EXPECT_THAT(note_of({"0.4", "d", "0.6", "e"}, {}),
              HasSubstr("--data-path was 0.3 d 0.7 e, is 0.4 d 0.6 e: "));
  EXPECT_THAT(note_of({"0.7", "e", "0.3", "d"}, {}), HasSubstr("is 0.7 e 0.3 d: "));
}

}  // namespace
}  // namespace trainer
