// SPDX-License-Identifier: MIT
// Each program, while another process cuts one of its inputs short: one line with the file's name,
// status 1, and no temporary or finished output left. Two cuts: to one page, which raises a signal;
// and by a few bytes, which does not, because the kernel shows zeros to the end of the last page.
// The cut is made by shorten_shim.cc.
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

  /// The same for a cut by one byte, after the program has mapped the file, or where `how` is
  /// SHORTEN_READ, read from it.
  void expect_refused(const std::vector<std::string>& words, const std::string& cut,
                      const std::string& how = "SHORTEN") const {
    const auto before = names();
    const Ended ended =
        run("w", words, {{"LD_PRELOAD", SHORTEN_SHIM}, {how, cut}, {"SHORTEN_BY", "1"}});
    EXPECT_EQ(ended.status, 1) << words[0];
    EXPECT_THAT(ended.err, MatchesRegex(words[0] + ": [^\n]*" + cut +
                                        ": [^\n]*(cut short|checksum differs)[^\n]*\n"));
    EXPECT_EQ(names(), before) << words[0] << ": nothing is left";
  }

  /// A model of transformers as the folder "hf".
  void make_model() const {
    const auto from = std::filesystem::path(GOLDEN_DIR) / "convert/families/gpt2";
    std::filesystem::remove_all(folder_ + "/w/hf");
    std::filesystem::copy(from, folder_ + "/w/hf");
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

/// A short run of the trainer.
std::vector<std::string> train(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"trainer",
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
                                    "--vocab-size",
                                    "2048",
                                    "--eod-id",
                                    "0",
                                    "--split",
                                    "1,0,0",
                                    "--device",
                                    "cpu",
                                    "--cpu-threads",
                                    "1",
                                    "--data-path",
                                    "d_text_document"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(ShrinkTest, Trainer) { expect_named(train({"--train-iters", "500"}), ".bin"); }

TEST_F(ShrinkTest, Converter) {
  std::filesystem::copy(GOLDEN_DIR "/convert/torch_dist/gpt2_layers_apart", folder_ + "/w/m");
  expect_named({"megatron-to-hf", "-q", "--input", "m", "--output", "out", "--vocab-size", "128"},
               "__0_0.distcp");
}

// Of what the last page has lost, nothing may be in an output.
TEST_F(ShrinkTest, InsideTheLastPageOfADataset) {
  expect_refused({"inspect-dataset", "peek", "--document", "3999", "d_text_document"}, ".bin");
  SetUp();
  expect_refused({"shuffle-index", "-q", "--rewrite", "out", "--data-path", "d_text_document"},
                 ".bin");
  SetUp();
  expect_refused({"merge-datasets", "-q", "--output-prefix", "out", "d_text_document"}, ".bin");
  SetUp();
  expect_refused({"merge-datasets", "-q", "--output-prefix", "out", "d_text_document"}, ".idx");
}

TEST_F(ShrinkTest, InsideTheLastPageOfATrainersInput) {
  const Ended first = run("w", train({"--train-iters", "2", "--save", "c"}));
  ASSERT_EQ(first.status, 0) << first.err;
  const std::vector<std::string> more = {
      "--train-iters", "4", "--save", "c", "--load", "c", "--override-opt_param-scheduler"};
  expect_refused(train(more), ".bin");
  SetUp();
  ASSERT_EQ(run("w", train({"--train-iters", "2", "--save", "c"})).status, 0);
  expect_refused(train(more), "model.safetensors");
}

// The run ends at the next save: what it has learned from zeros is not saved, and it does not go on
// to learn more of them.
TEST_F(ShrinkTest, InsideTheLastPageOfADatasetInTraining) {
  const pid_t pid = start("w", train({"--train-iters", "100000", "--save-interval", "20", "--save",
                                      "c", "--keep-last", "1", "--log-interval", "100000"}));
  const std::string bin = folder_ + "/w/d_text_document.bin";
  const std::string tracker = folder_ + "/w/c/latest_checkpointed_iteration.txt";
  for (int i = 0; i < 20'000 && !std::filesystem::exists(tracker); ++i) usleep(1000);
  std::filesystem::resize_file(bin, std::filesystem::file_size(bin) - 1);
  const Ended ended = wait(pid);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, MatchesRegex("([^\n]*not written; training continues[^\n]*\n)?"
                                      "trainer: [^\n]*\\.bin: the file was cut short [^\n]*\n"));
}

TEST_F(ShrinkTest, InsideTheLastPageOfAModel) {
  make_model();
  expect_refused({"hf-to-megatron", "-q", "--input", "hf", "--output", "out"}, "model.safetensors");
  make_model();
  expect_refused({"hf-to-megatron", "-q", "--to", "megatron", "--input", "hf", "--output", "out"},
                 "model.safetensors");
  std::filesystem::copy(GOLDEN_DIR "/convert/torch_dist/gpt2_layers_apart", folder_ + "/w/m");
  expect_refused({"megatron-to-hf", "-q", "--input", "m", "--output", "hf2", "--vocab-size", "128"},
                 "__0_0.distcp");
}

TEST_F(ShrinkTest, TextThatEndsEarly) {
  const std::vector<std::string> extract = {"json-extract", "-q", "-o", "out.jsonl",
                                            "corpus.jsonl"};
  expect_refused(extract, "corpus.jsonl", "SHORTEN_READ");
  SetUp();
  expect_refused({"json-extract", "-q", "-o", "out.jsonl", "--workers", "2", "corpus.jsonl"},
                 "corpus.jsonl", "SHORTEN_READ");
  SetUp();
  expect_refused(tokenize({"--input", "corpus.jsonl", "--output-prefix", "e"}), "corpus.jsonl",
                 "SHORTEN_READ");
  SetUp();
  expect_refused({"near-dedup", "-q", "-o", "out.jsonl", "corpus.jsonl"}, "corpus.jsonl",
                 "SHORTEN_READ");
}

}  // namespace
}  // namespace tools
