// SPDX-License-Identifier: MIT
// The converters with --force over another model, killed or failed by the disk at each operation
// that changes a file. What is read afterwards is one whole model with its own tokenizer, or none,
// and the same command again gives the new one. After an error there is one. In the form "links"
// the old weights are Megatron's behind a link, and what it leads to never changes. Several in a
// row never lose the old model, and where there is none the same command needs no --force.
#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <random>

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

  static Words without_force(Words words) {
    words.erase(std::find(words.begin(), words.end(), "-f"));
    return words;
  }

  // The variables with which an operation that changes a file in "out" kills, or fails.
  std::map<std::string, std::string> at_operation(long at, bool killed) const {
    std::map<std::string, std::string> fault = {
        {"LD_PRELOAD", FAULT_SHIM}, {"FAULT_ROOT", path("out")}, {"FAULT_AT", std::to_string(at)}};
    if (!killed) fault.insert({{"FAULT_ERRNO", std::to_string(EIO)}, {"FAULT_TIMES", "1"}});
    return fault;
  }

  // The operations of a conversion of `family` into "out" as it is.
  long operations(const Words& words) const {
    const std::string file = folder_ + "/count";
    fs::remove(file);
    EXPECT_EQ(run("w", words,
                  {{"LD_PRELOAD", FAULT_SHIM}, {"FAULT_ROOT", path("out")}, {"FAULT_COUNT", file}})
                  .status,
              0);
    long count = 0;
    std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(&count), sizeof count);
    EXPECT_GT(count, 8);
    return count;
  }

  void expect_nothing_hidden(const std::string& when) const {
    for (const char* name : {".model_optim_rng.pt.tmp", ".megatron-to-hf.tmp", ".tokenizer.tmp",
                             ".replaced", ".replaced.2", ".replaced.done"})
      EXPECT_FALSE(fs::exists(path("out/") + name)) << name << ": " << when;
  }

  void fresh() const {
    fs::remove_all(path("out"));
    fs::copy(path("old"), path("out"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
};

TEST_P(ConvertKillTest, AtEveryOperationOneModelIsWholeOrNone) {
  const auto linked = [&] {
    std::ifstream in(path("linked/mp_rank_00/model_optim_rng.pt"), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string weights = linked();
  fresh();
  ASSERT_EQ(found(), "llama");
  const long operations = this->operations(convert("qwen2"));
  ASSERT_EQ(found(), "qwen2");
  std::map<std::string, int> seen;
  for (long at = 1; at <= operations; ++at) {
    for (const bool killed : {true, false}) {
      fresh();
      const Ended ended = run("w", convert("qwen2"), at_operation(at, killed));
      const std::string what = found();
      ++seen[what];
      EXPECT_TRUE(what == "llama" || what == "qwen2" || what == "none")
          << what << ", " << (killed ? "killed" : "failed") << " at operation " << at << " of "
          << operations;
      EXPECT_TRUE(ended.status != 0 || what == "qwen2") << what;
      // A conversion that goes on after the error gives the old names back.
      if (!killed) {
        EXPECT_NE(what, "none") << at;
        // The trainer's tracker has its name when its folder cannot be put on the disk.
        if (std::string(GetParam()) != "trainer" && ended.status != 0) {
          EXPECT_EQ(what, "llama") << at;
        }
        if (std::string(GetParam()) == "hf" && ended.status != 0) {
          expect_nothing_hidden("failed at operation " + std::to_string(at));
        }
      }
      EXPECT_EQ(run("w", convert("qwen2")).err, "") << at;
      EXPECT_EQ(found(), "qwen2") << at;
      ASSERT_EQ(linked(), weights) << at;
      expect_nothing_hidden("after operation " + std::to_string(at));
    }
  }
  EXPECT_GT(seen["llama"] + seen["none"], 0);
  EXPECT_GT(seen["qwen2"], 0);
}

// Unlike SIGKILL: a finished shard of a large model would take the disk until the next conversion.
TEST_P(ConvertKillTest, ASignalLeavesNothingHidden) {
  fresh();
  const long most = operations(convert("qwen2"));
  int ended_by_it = 0;
  for (long at = 1; at <= most; ++at) {
    fresh();
    std::map<std::string, std::string> fault = at_operation(at, true);
    fault["FAULT_SIGNAL"] = std::to_string(at % 2 == 0 ? SIGTERM : SIGINT);
    ended_by_it += run("w", convert("qwen2"), fault).status > 128;
    std::string hidden;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path("out"))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.') && name != ".trainer.lock") hidden += name + " ";
    }
    EXPECT_EQ(hidden, "") << "operation " << at << " of " << most;
    const std::string what = found();
    EXPECT_TRUE(what == "llama" || what == "qwen2") << what << ", operation " << at;
  }
  EXPECT_GT(ended_by_it, most / 4);
}

// A conversion that is refused because the old model is there has given it all its names back.
TEST_P(ConvertKillTest, TheOldModelSurvivesAnyNumberOfFailures) {
  fresh();
  const long most = operations(convert("qwen2"));
  std::minstd_rand random(7);
  int back = 0;
  for (long at = 1; at <= most; ++at) {
    fresh();
    std::string when = "operation " + std::to_string(at);
    run("w", convert("qwen2"), at_operation(at, true));
    for (int more = 0; more < 3; ++more) {
      const long next = 1 + static_cast<long>(random() % static_cast<unsigned long>(most));
      const bool killed = random() % 2 == 0;
      when += (killed ? ", killed at " : ", failed at ") + std::to_string(next);
      run("w", convert("qwen2"), at_operation(next, killed));
    }
    const Ended ended = run("w", without_force(convert("qwen2")));
    EXPECT_EQ(ended.status, 1) << when;
    EXPECT_THAT(ended.err, testing::HasSubstr("not replaced without --force")) << when;
    const std::string what = found();
    back += what == "llama";
    EXPECT_TRUE(what == "llama" || what == "qwen2") << what << ": " << when;
    EXPECT_EQ(run("w", convert("qwen2")).err, "") << when;
    EXPECT_EQ(found(), "qwen2") << when;
    expect_nothing_hidden(when);
  }
  EXPECT_GT(back, most / 4);
}

TEST_P(ConvertKillTest, WhereThereWasNoModelTheSameCommandNeedsNoForce) {
  const Words words = without_force(convert("qwen2"));
  fs::remove_all(path("out"));
  const long most = operations(words);
  int inputs = 0;
  std::minstd_rand random(11);
  for (long at = 1; at <= most; ++at) {
    for (const bool killed : {true, false}) {
      fs::remove_all(path("out"));
      const Ended ended = run("w", words, at_operation(at, killed));
      const bool whole = fs::exists(path("out/latest_checkpointed_iteration.txt")) ||
                         fs::exists(path("out/config.json"));
      const std::string weights = path("out/release/mp_rank_00/model_optim_rng.pt");
      if (!whole && fs::exists(weights)) {  // as an input it is not removed
        EXPECT_EQ(run("w", {"megatron-to-hf", "-q", "-i", weights, "-o", "out", "--to", "trainer"})
                      .status,
                  2);
        EXPECT_TRUE(fs::exists(weights)) << at;
        ++inputs;
      }
      if (!whole) {
        EXPECT_NE(ended.status, 0) << at;
        const long next = 1 + static_cast<long>(random() % static_cast<unsigned long>(most));
        const std::string when = (killed ? "killed at " : "failed at ") + std::to_string(at) +
                                 ", then at " + std::to_string(next);
        const Ended second = run("w", words, at_operation(next, random() % 2 == 0));
        EXPECT_THAT(second.err, testing::Not(testing::HasSubstr("--force"))) << when;
        const Ended third = run("w", words);
        EXPECT_TRUE(third.err.empty() || third.err.find("not replaced") != std::string::npos)
            << third.err << when;
        if (third.err.empty()) expect_nothing_hidden(when);
      }
      EXPECT_EQ(found(), "qwen2") << at;
    }
  }
  EXPECT_EQ(inputs > 0,
            std::string(GetParam()) == "megatron" || std::string(GetParam()) == "links");
}

INSTANTIATE_TEST_SUITE_P(Forms, ConvertKillTest,
                         testing::Values("trainer", "megatron", "links", "hf"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace tools
