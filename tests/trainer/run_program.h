// What the tests of the trainer program share: a folder with a small dataset, and running the
// program in it, alone or under the fault shim.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "libindexed/builder.h"

namespace trainer {

using Words = std::vector<std::string>;

/// The words of a command line, one after the other.
inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// How a run ended: exit status, or 128 + signal; what it printed on either stream.
struct Ended {
  int status = 0;
  std::string out, err;
};

/// A folder with dataset `d`: documents that follow t -> (5 t + 3) mod 61, each ended by 63.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    std::string name = std::filesystem::temp_directory_path() / "trainer_test.XXXXXX";
    folder_ = ::mkdtemp(name.data());
    cache_ = std::filesystem::temp_directory_path() /
             ("cache_of_" + std::filesystem::path(folder_).filename().string());
    make_dataset("d", 200, 61);
  }
  ~ProgramTest() override {
    std::filesystem::remove_all(folder_);
    std::filesystem::remove_all(cache_);
  }

  void make_dataset(const std::string& name, int documents, int32_t modulus) const {
    indexed::IndexedDatasetBuilder builder(folder_ + "/" + name, {.dtype = indexed::DType::uint16});
    for (int32_t d = 0; d < documents; ++d) {
      std::vector<int32_t> tokens;
      for (int32_t t = d % modulus, i = 0; i < 20 + d * 7 % 70; ++i, t = (t * 5 + 3) % modulus) {
        tokens.push_back(t);
      }
      tokens.push_back(63);
      builder.add_document(tokens);
    }
    builder.finish();
  }

  /// The model and run of all tests here; a test adds its own flags, which take precedence.
  static std::vector<std::string> base() {
    return {"--num-layers",
            "2",
            "--hidden-size",
            "32",
            "--num-attention-heads",
            "2",
            "--seq-length",
            "16",
            "--micro-batch-size",
            "2",
            "--global-batch-size",
            "4",
            "--lr",
            "1e-2",
            "--train-iters",
            "12",
            "--lr-decay-style",
            "cosine",
            "--lr-warmup-iters",
            "2",
            "--vocab-size",
            "64",
            "--eod-id",
            "63",
            "--make-vocab-size-divisible-by",
            "64",
            "--split",
            "80,10,10",
            "--log-interval",
            "4",
            "--eval-interval",
            "5",
            "--eval-iters",
            "2",
            "--device",
            "cpu",
            "--cpu-threads",
            "1"};
  }

  /// Starts the program in the folder; wait() ends it. `environment` is added.
  pid_t start(const std::vector<std::string>& more,
              const std::map<std::string, std::string>& environment = {},
              const char* program = TRAINER_PROGRAM, bool with_base = true) const {
    std::vector<std::string> words = {program};
    if (with_base) {
      for (const std::string& word : base()) words.push_back(word);
    }
    if (with_base) {
      words.push_back("--data-path");
      words.insert(words.end(), data_path_.begin(), data_path_.end());
    }
    words.insert(words.end(), more.begin(), more.end());
    std::filesystem::remove(folder_ + "/out" + suffix_);
    const pid_t pid = fork();
    if (pid != 0) return pid;
    if (chdir(folder_.c_str()) != 0) _exit(126);
    setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    const bool redirected = freopen(("out" + suffix_).c_str(), "w", stdout) &&
                            freopen(("err" + suffix_).c_str(), "w", stderr) &&
                            freopen("/dev/null", "r", stdin);
    if (!redirected) _exit(126);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(program, argv.data());
    _exit(127);
  }
  Ended wait(pid_t pid) const {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read("out"),
            read("err")};
  }
  Ended run(const std::vector<std::string>& more,
            const std::map<std::string, std::string>& environment = {}) const {
    return wait(start(more, environment));
  }

  std::string read(const std::string& name) const {
    std::ifstream in(folder_ + "/" + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  /// metrics.jsonl of a run without what depends on the clock.
  std::string metrics(const std::string& save) const {
    std::ifstream in(folder_ + "/" + save + "/metrics.jsonl");
    std::string out;
    for (std::string line; std::getline(in, line);) {
      nlohmann::json record = nlohmann::json::parse(line);
      for (const char* key :
           {"time", "seconds_per_iteration", "seconds_left", "tokens_per_second", "slowest_rank",
            "slowest_rank_cost_seconds", "exposed_communication_seconds", "data_wait_seconds",
            "peak_memory_bytes", "planned_memory_bytes"})
        record.erase(key);
      out += record.dump() + "\n";
    }
    return out;
  }

  /// All tensors of a checkpoint, as the bytes of its files.
  std::string tensors(const std::string& save, int64_t iteration) const {
    char name[32];
    std::snprintf(name, sizeof name, "/iter_%07lld/rank_00000_", static_cast<long long>(iteration));
    return read(save + name + "model.safetensors") + read(save + name + "optimizer.safetensors");
  }

  std::string folder_;
  std::string cache_;  ///< The user's folder of caches, for the programs; beside the folder.
  std::vector<std::string> data_path_ = {"d"};
  std::string suffix_;  ///< Of the files that the next start() prints to.
};

}  // namespace trainer
