// What the tests of several hosts share: hosts of this machine, each a launcher with two ranks (on
// a machine of two GPUs, one), and what a run of them must leave and must not leave.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "tests/trainer/run_ranks.h"

namespace trainer {

/// See the room card.
class HostsTest : public ManyTest {
 protected:
  using Hosts = std::array<pid_t, 2>;  ///< Launchers.
  /// Ranks of each host: two, or one where two hosts share two GPUs.
  static unsigned ranks_a_host() { return most_ranks() / 2; }
  /// What a host says that starts its ranks again.
  static std::string restarted(const std::string& node, const std::string& count) {
    return "node " + node + " of 2: restart " + count + " with " +
           (ranks_a_host() == 1 ? "1 rank\n" : "2 ranks\n");
  }
  /// Two hosts with these ranks each, and a checkpoint every 60 of 600 steps.
  static Words words(const std::string& save, const Words& more = {}) {
    Words all = plain({"--nproc-per-node",
                       std::to_string(ranks_a_host()),
                       "--use-distributed-optimizer",
                       "--micro-batch-size",
                       "1",
                       "--save",
                       save,
                       "--load",
                       save,
                       "--save-interval",
                       "60",
                       "--keep-last",
                       "2",
                       "--train-iters",
                       "600",
                       "--log-interval",
                       "10",
                       "--eval-interval",
                       "150",
                       "--max-restarts",
                       "9"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Starts host `node`; what it prints is in err.NODE, or in err.NODE.again.
  pid_t start_host(int node, const Words& words, Variables more = {}, const char* again = "") {
    more.insert({{"RANK", std::to_string(node)},
                 {"WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "127.0.0.1"},
                 {"MASTER_PORT", std::to_string(port())}});
    more.merge(gpus_of(node));
    suffix_ = "." + std::to_string(node) + again;
    const pid_t pid = start(words, more);
    suffix_.clear();
    return pid;
  }
  /// Both hosts from their start to their end.
  std::array<int, 2> run_hosts(const Words& words, const Variables& more = {}) {
    return wait_hosts({start_host(0, words, more), start_host(1, words, more)});
  }
  std::array<int, 2> wait_hosts(const Hosts& hosts) const {
    return {wait(hosts[0]).status, wait(hosts[1]).status};
  }
  /// A launcher's ranks, once it has started so many.
  static std::vector<pid_t> ranks_of(pid_t launcher, size_t count = ranks_a_host(),
                                     int looks = 3000) {
    std::vector<pid_t> ranks;
    for (int i = 0; i < looks && (ranks = children(launcher)).size() < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return ranks;
  }
  /// Processes of this test that are still there.
  int orphans() const {
    int found = 0;
    std::error_code none;
    const std::filesystem::path here = std::filesystem::canonical(folder_);
    for (const auto& entry : std::filesystem::directory_iterator("/proc", none))
      found += std::filesystem::read_symlink(entry.path() / "cwd", none) == here;
    return found;
  }
  void expect_nothing_left(const std::string& save) const {
    for (int i = 0; i < 200 && orphans() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(orphans(), 0);
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/" + save)) {
      const std::string name = entry.path().filename().string();
      EXPECT_FALSE(name.ends_with(".tmp") || name.starts_with(".iter")) << name;
    }
  }
  void expect_same(const std::string& save) const {
    EXPECT_EQ(metrics(save), metrics("whole"));
    EXPECT_TRUE(shards(save, 600) == shards("whole", 600)) << "other weights or moments";
    expect_nothing_left(save);
  }
  std::string both() const { return "host 0: " + read("err.0") + "host 1: " + read("err.1"); }
};

}  // namespace trainer
