// SPDX-License-Identifier: MIT
// Each program that maps files, while another process cuts one short: one line with the file's name
// and the place, status 1, and no temporary left. The cut is made by shorten_shim.cc.
#include <gmock/gmock.h>

#include "tests/tools/run_tool.h"

namespace tools {
namespace {

using ::testing::MatchesRegex;

class ShrinkTest : public ToolTest {
 protected:
  void SetUp() override {
    make_folder("w");
    std::ofstream text(folder_ + "/w/corpus.jsonl");
    for (int i = 0; i < 4000; ++i)
      text << R"({"text": "the cat sat on the mat and the dog ran )" << i << "\"}\n";
    text.close();
    const Ended ended =
        run("w", tokenize({"--append-eod", "--input", "corpus.jsonl", "--output-prefix", "d"}));
    ASSERT_EQ(ended.status, 0) << ended.err;
  }

  /// Runs the program while the file whose name ends in `cut` is cut; compares how it ends.
  void expect_named(const std::vector<std::string>& words, const std::string& cut) const {
    const auto before = names();
    const Ended ended = run("w", words, {{"LD_PRELOAD", SHORTEN_SHIM}, {"SHORTEN", cut}});
    EXPECT_EQ(ended.status, 1) << words[0];
    EXPECT_THAT(ended.err,
                MatchesRegex(words[0] + ": [^\n]*" + cut +
                             ": byte [0-9]+: the file was cut short to 4096 bytes while it was "
                             "read\n"));
    EXPECT_EQ(names(), before) << words[0] << ": nothing is left";
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    // A converter's mark stays, as after a kill: it tells the next run which files are its own.
    for (const auto& [name, bytes] : files("w"))
      if (!name.ends_with(".unfinished")) found.push_back(name);
    return found;
  }
};

TEST_F(ShrinkTest, DatasetTools) {
  expect_named({"inspect-dataset", "peek", "--document", "3999", "d_text_document"}, ".idx");
  SetUp();
  expect_named({"inspect-dataset", "peek", "--document", "3999", "d_text_document"}, ".bin");
  SetUp();
  expect_named({"shuffle-index", "-q", "--rewrite", "out", "--data-path", "d_text_document"},
               ".bin");
  SetUp();
  expect_named({"shuffle-index", "-q", "--data-cache-path", "c", "--split", "1,0,0", "--seq-length",
                "16", "--samples", "900,0,0", "--tokenizer-type", "NullTokenizer", "--vocab-size",
                "1000", "--data-path", "d_text_document"},
               ".idx");
}

TEST_F(ShrinkTest, Trainer) {
  expect_named({"trainer",
                "--num-layers",
                "1",
                "--hidden-size",
                "32",
                "--num-attention-heads",
                "2",
                "--seq-length",
                "16",
                "--micro-batch-size",
                "2",
                "--global-batch-size",
                "2",
                "--lr",
                "1e-2",
                "--train-iters",
                "500",
                "--vocab-size",
                "1024",
                "--eod-id",
                "0",
                "--split",
                "1,0,0",
                "--device",
                "cpu",
                "--cpu-threads",
                "1",
                "--data-path",
                "d_text_document"},
               ".bin");
}

TEST_F(ShrinkTest, Converter) {
  std::filesystem::copy(GOLDEN_DIR "/convert/torch_dist/gpt2_layers_apart", folder_ + "/w/m");
  expect_named({"megatron-to-hf", "-q", "--input", "m", "--output", "out", "--vocab-size", "128"},
               "__0_0.distcp");
}

}  // namespace
}  // namespace tools
