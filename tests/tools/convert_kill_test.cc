// SPDX-License-Identifier: MIT
// The converters with --force over another model, killed or failed by the disk at each operation
// that changes a file. What is read afterwards is one whole model with its own tokenizer, or none,
// and the same command again gives the new one. After an error there is one, except in the form for
// transformers. In the form "links" the old weights are Megatron's behind a link, and what it leads
// to never changes.
#include <algorithm>
#include <cerrno>
#include <csignal>

#include "tests/tools/run_tool.h"

namespace tools {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class ConvertKillTest : public ToolTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    make_folder("w");
    for (const char* family : {"llama", "qwen2"}) {
      fs::copy(std::string(GOLDEN_DIR "/convert/families/") + family, path(family));
      std::ofstream(path(family) + "/tokenizer_config.json")
          << "{\"name_or_path\": \"" << family << "\"}";
      std::ofstream(path(family) + "/tokenizer.json")
          << R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";
    }
    ASSERT_EQ(run("w", convert("llama")).err, "");
    fs::rename(path("out"), path("old"));
    if (std::string(GetParam()) != "links") return;
    fs::rename(path("old/release"), path("linked"));
    fs::create_directory_symlink(path("linked"), path("old/release"));
  }

  std::string path(const std::string& name) const { return folder_ + "/w/" + name; }

  // Back through a checkpoint, for the form of transformers is read the same way.
  static Words convert(const char* family) {
    std::string form = GetParam();
    if (form == "hf") return {"megatron-to-hf", "-q", "-f", "-i", family, "-o", "out"};
    if (form == "links") form = "megatron";
    return {"hf-to-megatron", "-q", "-f", "-i", family, "-o", "out", "--to", form};
  }

  // The family of the model that is read from "out"; "none"; or what is mixed there.
  std::string found() const {
    fs::remove_all(path("back"));
    const Ended read = run("w", {"megatron-to-hf", "-q", "-i", "out", "-o", "back"});
    if (read.status != 0) return "none";
    std::string said;
    for (const char* name : {"config.json", "tokenizer_config.json"}) {
      std::ifstream in(path("back/") + name);
      const std::string text(std::istreambuf_iterator<char>(in), {});
      const std::string family = text.find("qwen2") != std::string::npos   ? "qwen2"
                                 : text.find("llama") != std::string::npos ? "llama"
                                                                           : "nothing";
      if (said != family) said += (said.empty() ? "" : " with the tokenizer of ") + family;
    }
    return said;
  }

  void fresh() const {
    fs::remove_all(path("out"));
    fs::copy(path("old"), path("out"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
};

TEST_P(ConvertKillTest, AtEveryOperationOneModelIsWholeOrNone) {
  const auto with = [&](std::map<std::string, std::string> more) {
    more.insert({{"LD_PRELOAD", FAULT_SHIM}, {"FAULT_ROOT", path("out")}});
    return more;
  };
  const auto linked = [&] {
    std::ifstream in(path("linked/mp_rank_00/model_optim_rng.pt"), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string weights = linked();
  fresh();
  ASSERT_EQ(found(), "llama");
  ASSERT_EQ(run("w", convert("qwen2"), with({{"FAULT_COUNT", folder_ + "/count"}})).status, 0);
  ASSERT_EQ(found(), "qwen2");
  long operations = 0;
  std::ifstream(folder_ + "/count", std::ios::binary)
      .read(reinterpret_cast<char*>(&operations), sizeof operations);
  ASSERT_GT(operations, 8);
  std::map<std::string, int> seen;
  for (long at = 1; at <= operations; ++at) {
    for (const bool killed : {true, false}) {
      fresh();
      std::map<std::string, std::string> fault = {{"FAULT_AT", std::to_string(at)}};
      if (!killed) fault.insert({{"FAULT_ERRNO", std::to_string(EIO)}, {"FAULT_TIMES", "1"}});
      const Ended ended = run("w", convert("qwen2"), with(fault));
      const std::string what = found();
      ++seen[what];
      EXPECT_TRUE(what == "llama" || what == "qwen2" || what == "none")
          << what << ", " << (killed ? "killed" : "failed") << " at operation " << at << " of "
          << operations;
      EXPECT_TRUE(ended.status != 0 || what == "qwen2") << what;
      // A conversion that goes on after the error gives the old names back.
      if (!killed && std::string(GetParam()) != "hf") {
        EXPECT_NE(what, "none") << at;
      }
      EXPECT_EQ(run("w", convert("qwen2")).err, "") << at;
      EXPECT_EQ(found(), "qwen2") << at;
      ASSERT_EQ(linked(), weights) << at;
      EXPECT_FALSE(fs::exists(path("out/.model_optim_rng.pt.tmp"))) << at;
    }
  }
  EXPECT_GT(seen["llama"] + seen["none"], 0);
  EXPECT_GT(seen["qwen2"], 0);
}

INSTANTIATE_TEST_SUITE_P(Forms, ConvertKillTest,
                         testing::Values("trainer", "megatron", "links", "hf"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace tools
