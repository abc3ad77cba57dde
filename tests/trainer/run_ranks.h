// What the tests of many ranks as processes share: a run that fits any layout, ranks under a
// launcher's variables, a launcher's ranks and its files in memory, and the results of a run.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "tests/own.h"
#include "tests/trainer/run_program.h"

namespace trainer {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

class ManyTest : public ProgramTest {
 protected:
  /// cpu, or the value of TRAINER_TEST_DEVICE; with cuda every rank of these tests has its own GPU.
  static std::string device() {
    const char* wish = std::getenv("TRAINER_TEST_DEVICE");
    return wish ? wish : "cpu";
  }
  /// Ranks of the largest runs: four, or two where TRAINER_TEST_RANKS says so.
  static unsigned most_ranks() {
    const char* wish = std::getenv("TRAINER_TEST_RANKS");
    return wish && std::string(wish) == "2" ? 2 : 4;
  }
  /// Where one machine plays two hosts, host `node` sees half of the GPUs.
  static Variables gpus_of(int node) {
    if (device() != "cuda") return {};
    std::string list;
    for (unsigned gpu = 0; gpu < most_ranks() / 2; ++gpu)
      list +=
          (gpu ? "," : "") + std::to_string(static_cast<unsigned>(node) * most_ranks() / 2 + gpu);
    return {{"CUDA_VISIBLE_DEVICES", list}};
  }
  /// Without dropout a run's losses do not depend on the layout by more than rounding. Where many
  /// runs share GPUs, ranks are silent for longer: 10 s were too few for a first evaluation.
  static Words plain(const Words& more) {
    Words words = {"--device", device(), "--hidden-dropout", "0", "--attention-dropout", "0",
                   "--hang-timeout-seconds", device() == "cpu" ? "10" : "30",
                   "--distributed-timeout-minutes", "1", "--num-attention-heads", "4",
                   // The same padded vocabulary for any number of tensor-parallel ranks here.
                   "--make-vocab-size-divisible-by", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  /// Starts `ranks` processes as a launcher would, each with the variables that `of` gives it, and
  /// waits for all. What rank i prints is in out.i and err.i.
  std::vector<Ended> under_launcher(int ranks, const Words& words,
                                    const std::function<Variables(int)>& of) {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      suffix_ = "." + std::to_string(rank);
      pids.push_back(start(words, of(rank)));
    }
    std::vector<Ended> ended;
    for (int rank = 0; rank < ranks; ++rank) {
      const Ended one = wait(pids[static_cast<size_t>(rank)]);
      const std::string suffix = "." + std::to_string(rank);
      ended.push_back({one.status, read("out" + suffix), read("err" + suffix)});
    }
    suffix_.clear();
    return ended;
  }

  static Variables torchrun(int rank, int world, int port) {
    return {{"TORCHELASTIC_RUN_ID", "test"},
            {"RANK", std::to_string(rank)},
            {"LOCAL_RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(world)},
            {"LOCAL_WORLD_SIZE", std::to_string(world)},
            {"GROUP_RANK", "0"},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(port)}};
  }
  static int port() { return tests::own_ports(); }

  /// Processes that `launcher` has started.
  static std::vector<pid_t> children(pid_t launcher) {
    std::ifstream in("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) +
                     "/children");
    std::vector<pid_t> out;
    for (pid_t pid; in >> pid;) out.push_back(pid);
    return out;
  }
  /// Waits until a run has printed `text`, at most two minutes.
  void wait_for_output(const std::string& text, const std::string& file = "out") const {
    for (int i = 0; i < 12000 && read(file).find(text) == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_THAT(read(file), testing::HasSubstr(text));
  }
  /// A number that the environment asks for, such as more rounds or another seed.
  static unsigned from_environment(const char* name, unsigned otherwise) {
    const char* text = std::getenv(name);
    return text ? static_cast<unsigned>(std::atoi(text)) : otherwise;
  }
  /// A launcher's files in memory, in the order in which it opened them.
  static std::vector<std::string> memory_of(pid_t launcher) {
    std::map<int, std::string> found;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(launcher) + "/fd")) {
      std::error_code none;
      const std::string target = std::filesystem::read_symlink(entry.path(), none).string();
      if (target.starts_with("/memfd:gristmill"))
        found[std::stoi(entry.path().filename().string())] = entry.path().string();
    }
    std::vector<std::string> out;
    for (const auto& [number, path] : found) out.push_back(path);
    return out;
  }
  static void flip_last_bit(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    char byte = 0;
    const off_t last = lseek(fd, 0, SEEK_END) - 1;
    EXPECT_EQ(pread(fd, &byte, 1, last), 1);
    byte = static_cast<char>(byte ^ 1);
    EXPECT_EQ(pwrite(fd, &byte, 1, last), 1);
    close(fd);
  }
  /// Every rank's file of a checkpoint, by name.
  std::map<std::string, std::string> shards(const std::string& save, int iteration) const {
    char name[32];
    std::snprintf(name, sizeof name, "%s/iter_%07d", save.c_str(), iteration);
    std::map<std::string, std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/" + name)) {
      const std::string file = entry.path().filename().string();
      if (file.ends_with(".safetensors")) out[file] = read(std::string(name) + "/" + file);
    }
    return out;
  }
  std::vector<double> losses(const std::string& file) const {
    std::vector<double> out;
    std::ifstream in(folder_ + "/" + file);
    for (std::string line; std::getline(in, line);)
      out.push_back(nlohmann::json::parse(line).at("lm_loss"));
    return out;
  }
};

}  // namespace trainer
