// --in-memory-checkpoint with several hosts, each a launcher of this machine: a host that is lost
// with its memory gets its ranks' files back from the next one, at any moment of steps and copies;
// damage is found and read around; where both copies are lost, the disk serves, and a line says so.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <random>

#include "tests/trainer/run_hosts.h"

namespace trainer {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

class MemoryHostsTest : public HostsTest {
 protected:
  /// One checkpoint on disk, at the end, and one in memory every three steps.
  static Words in_memory(const std::string& save, const Words& more = {}) {
    Words all = words(save, {"--save-interval", "1000", "--in-memory-checkpoint", "3"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Rank 0's messages, of both starts of its host.
  std::string rank_zero() const { return read("err.0") + read("err.0.again"); }
  /// Waits until both hosts have the checkpoint of an iteration in memory.
  static void wait_for_copy(const Hosts& hosts, int iteration) {
    const std::string wanted = "\"iteration\": " + std::to_string(iteration) + ",";
    const auto has = [&](pid_t host) {
      const std::vector<std::string> files = memory_of(host);
      return files.size() == 18 && (contains(files[0], wanted) || contains(files[9], wanted));
    };
    for (int i = 0; i < 60000 && !(has(hosts[0]) && has(hosts[1])); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_TRUE(has(hosts[0]) && has(hosts[1]));
  }
  static bool contains(const std::string& path, const std::string& wanted) {
    std::ifstream in(path);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    return text.find(wanted) != std::string::npos;
  }
};

// Either host in turn, killed with its memory at a random moment, once or twice.
TEST_F(MemoryHostsTest, AHostThatIsLostGetsItsMemoryBackFromTheOther) {
  const unsigned rounds = from_environment("MANY_FAULT_ROUNDS", 2),
                 seed = from_environment("MANY_FAULT_SEED", 1);
  const std::vector<Words> layouts = {
      {},
      {"--tensor-model-parallel-size", "2", "--sequence-parallel"},
      {"--pipeline-model-parallel-size", "4", "--num-layers", "4"},
      {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"}};
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed + round));
    std::mt19937 random(seed + round);
    const Words& layout = layouts[round % layouts.size()];
    const std::string save = "save" + std::to_string(round);
    std::filesystem::remove_all(folder_ + "/whole");
    ASSERT_THAT(run_hosts(words("whole", layout)), Each(0)) << both();
    const size_t victim = (seed + round) % 2;
    Hosts hosts = {start_host(0, in_memory(save, layout)), start_host(1, in_memory(save, layout))};
    wait_for_output("iteration       10/", "out.0");
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
    kill(hosts[victim], SIGKILL);
    EXPECT_EQ(wait(hosts[victim]).status, 128 + SIGKILL);
    hosts[victim] = start_host(static_cast<int>(victim), in_memory(save, layout), {}, ".again");
    EXPECT_THAT(wait_hosts(hosts), Each(0)) << both() << read("err.0.again");
    EXPECT_THAT(rank_zero(),
                ContainsRegex("continuing from step ([0-9]+) in memory \\(in memory: step "
                              "[0-9]+, on disk: no complete checkpoint\\)"));
    expect_same(save);
  }
}

// Ranks die, then a host: between them no copy was made, so the first restart must have given back
// what the second one needs.
TEST_F(MemoryHostsTest, AfterARestartEachHostHasWhatTheOtherMayLose) {
  const Words more = {"--in-memory-checkpoint", "450"};
  ASSERT_THAT(run_hosts(words("whole")), Each(0)) << both();
  Hosts hosts = {start_host(0, in_memory("save", more)), start_host(1, in_memory("save", more))};
  wait_for_copy(hosts, 450);
  for (const size_t victim : {1, 0}) {
    kill(hosts[victim], SIGKILL);
    wait(hosts[victim]);
    hosts[victim] = start_host(static_cast<int>(victim), in_memory("save", more), {}, ".again");
    if (victim == 1) wait_for_output("continuing from step 450 in memory", "err.0");
  }
  EXPECT_THAT(wait_hosts(hosts), Each(0)) << both() << read("err.0.again");
  EXPECT_THAT(read("err.0.again"), HasSubstr("continuing from step 450 in memory"));
  expect_same("save");
}

// A rank dies at each of some operations on memory, of its own files and of the copies that it
// receives; counted anew in each start, so every start dies again.
TEST_F(MemoryHostsTest, AtAnyMomentOfACopyTheRunGoesOnToTheSameBits) {
  const unsigned seed = from_environment("MANY_FAULT_SEED", 1);
  const bool all = from_environment("MANY_FAULT_EVERY", 0) != 0;
  ASSERT_THAT(run_hosts(words("whole")), Each(0)) << both();
  const Variables shim = {{"LD_PRELOAD", FAULT_SHIM}, {"FAULT_ROOT", "/memfd:gristmill"}};
  Variables counts = shim;
  counts["FAULT_COUNT"] = folder_ + "/count";
  const Words rare = {"--in-memory-checkpoint", "90"};  // six copies
  ASSERT_THAT(run_hosts(in_memory("counted", rare), counts), Each(0)) << both();
  for (const int victim : {0, 1, 2, 3}) {
    long operations = 0;
    const std::string text = read("count." + std::to_string(victim));
    ASSERT_EQ(text.size(), sizeof operations);
    std::memcpy(&operations, text.data(), sizeof operations);
    const unsigned each = static_cast<unsigned>(operations) / 6;
    ASSERT_GT(each, 10u);
    const unsigned stride = all ? 1 : each;
    for (unsigned at = each + 1 + (all ? 0 : (seed * 5 + static_cast<unsigned>(victim) * 3) % each);
         at <= 2 * each; at += stride) {
      SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed) + ", rank " + std::to_string(victim) +
                   ", operation " + std::to_string(at) + ", of a copy " + std::to_string(each));
      std::filesystem::remove_all(folder_ + "/save");
      Variables fault = shim;
      fault["FAULT_AT"] = std::to_string(at);
      fault["FAULT_RANK"] = std::to_string(victim);
      ASSERT_THAT(run_hosts(in_memory("save", rare), fault), Each(0)) << both();
      EXPECT_THAT(read("err.0"),
                  ContainsRegex("continuing from step [0-9]+ in memory \\(in memory: step [0-9]+, "
                                "on disk: no complete checkpoint"));
      expect_same("save");
    }
  }
}

// Random kills of ranks and hosts in a row, with a copy after every step.
TEST_F(MemoryHostsTest, KilledAtRandomMomentsSeveralTimes) {
  const unsigned rounds = from_environment("MANY_FAULT_ROUNDS", 1),
                 seed = from_environment("MANY_FAULT_SEED", 1);
  ASSERT_THAT(run_hosts(words("whole")), Each(0)) << both();
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed + round));
    std::mt19937 random(seed + round);
    const std::string save = "save" + std::to_string(round);
    const Words every = {"--in-memory-checkpoint", "1", "--save-interval", "200"};
    Hosts hosts = {start_host(0, in_memory(save, every)), start_host(1, in_memory(save, every))};
    wait_for_output("iteration", "out.0");
    for (int kills = 0; kills < 4; ++kills) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 900));
      const size_t victim = random() % 2;
      const std::vector<pid_t> ranks = ranks_of(hosts[victim], 1, 100);
      if (ranks.empty()) break;  // the run is over.
      if (kills % 2 == 0) {
        for (const pid_t rank : ranks) kill(rank, SIGKILL);
        continue;
      }
      kill(hosts[victim], SIGKILL);
      wait(hosts[victim]);
      const std::string again = ".again" + std::to_string(kills);
      hosts[victim] =
          start_host(static_cast<int>(victim), in_memory(save, every), {}, again.c_str());
    }
    EXPECT_THAT(wait_hosts(hosts), Each(0)) << both();
    expect_same(save);
  }
}

TEST_F(MemoryHostsTest, WhereBothHostsAreLostTheDiskServes) {
  ASSERT_THAT(run_hosts(words("whole")), Each(0)) << both();
  const Words more = {"--save-interval", "180"};
  Hosts hosts = {start_host(0, in_memory("save", more)), start_host(1, in_memory("save", more))};
  wait_for_output("successfully saved checkpoint at iteration 180 ", "out.0");
  for (const size_t victim : {0, 1}) kill(hosts[victim], SIGKILL);
  for (const size_t victim : {0, 1}) wait(hosts[victim]);
  for (const int node : {0, 1})
    hosts[static_cast<size_t>(node)] = start_host(node, in_memory("save", more));
  EXPECT_THAT(wait_hosts(hosts), Each(0)) << both();
  EXPECT_THAT(both(), Not(HasSubstr("in memory (in memory")));
  EXPECT_THAT(read("out.0"), HasSubstr("successfully loaded checkpoint from save/iter_"));
  expect_same("save");
}

// The disk has a newer checkpoint than the memory of either host.
TEST_F(MemoryHostsTest, TheNewestOfDiskAndMemoryIsTaken) {
  ASSERT_THAT(run_hosts(words("whole")), Each(0)) << both();
  const Words more = {"--in-memory-checkpoint", "250", "--save-interval", "180"};
  Hosts hosts = {start_host(0, in_memory("save", more)), start_host(1, in_memory("save", more))};
  wait_for_output("successfully saved checkpoint at iteration 360 ", "out.0");
  kill(ranks_of(hosts[1]).at(0), SIGKILL);
  EXPECT_THAT(wait_hosts(hosts), Each(0)) << both();
  EXPECT_THAT(
      read("err.0"),
      HasSubstr("continuing from step 360 on disk (in memory: step 250, on disk: step 360)"));
  expect_same("save");
}

// Three hosts with a rank each: one is lost, and its files come around the ring; then two that are
// neighbours, and nobody has the files of the first.
TEST_F(MemoryHostsTest, ThreeHostsFormARing) {
  const Words three = {"--nproc-per-node",    "1", "--micro-batch-size", "1",
                       "--global-batch-size", "6"};
  const auto start_all = [&](const Words& of) {
    return std::vector<pid_t>{start_host(0, of, {{"WORLD_SIZE", "3"}}),
                              start_host(1, of, {{"WORLD_SIZE", "3"}}),
                              start_host(2, of, {{"WORLD_SIZE", "3"}})};
  };
  const auto statuses = [&](const std::vector<pid_t>& hosts) {
    std::vector<int> out;
    for (const pid_t host : hosts) out.push_back(wait(host).status);
    return out;
  };
  ASSERT_THAT(statuses(start_all(words("whole", three))), Each(0)) << both();
  for (const std::vector<size_t>& victims : {std::vector<size_t>{0}, {1, 2}}) {
    const std::string save = "save" + std::to_string(victims.size()) + std::to_string(victims[0]);
    SCOPED_TRACE(save);
    std::filesystem::remove(folder_ + "/err.0.again");
    Words of = in_memory(save, three);
    std::vector<pid_t> hosts = start_all(of);
    wait_for_output("iteration       20/", "out.0");
    for (const size_t victim : victims) kill(hosts[victim], SIGKILL);
    for (const size_t victim : victims) {
      wait(hosts[victim]);
      hosts[victim] = start_host(static_cast<int>(victim), of, {{"WORLD_SIZE", "3"}}, ".again");
    }
    EXPECT_THAT(statuses(hosts), Each(0)) << both() << read("err.0.again");
    if (victims.size() == 1)
      EXPECT_THAT(rank_zero(), ContainsRegex("continuing from step [0-9]+ in memory"));
    else
      EXPECT_THAT(rank_zero(),
                  AllOf(ContainsRegex("the checkpoint of step [0-9]+ in memory is not used: the "
                                      "files of rank 1 are lost"),
                        HasSubstr("nothing in memory to continue from (in memory: "
                                  "step ")));
    expect_same(save);
  }
}

// A bit of a rank's own files is changed, and of the copy that its partner has: the other one is
// read, and only where both are damaged the one before.
TEST_F(MemoryHostsTest, DamageIsFoundAndReadAround) {
  ASSERT_THAT(run_hosts(words("whole")), Each(0)) << both();
  // All wait in the steps after the copy of step 450.
  const Words more = {"--in-memory-checkpoint", "225"};
  for (const int damaged : {1, 2, 3}) {  // own, copy, both
    SCOPED_TRACE(damaged);
    const std::string save = "save" + std::to_string(damaged);
    const Hosts hosts = {start_host(0, in_memory(save, more)),
                         start_host(1, in_memory(save, more))};
    wait_for_copy(hosts, 450);
    for (const pid_t host : hosts)
      for (const pid_t rank : children(host)) kill(rank, SIGSTOP);
    // Of each of two slots: the record, own ranks' files, the partner's.
    const std::vector<std::string> own = memory_of(hosts[1]), copy = memory_of(hosts[0]);
    ASSERT_EQ(own.size(), 18u);
    const auto has = [](const std::string& path) { return contains(path, "\"iteration\": 450,"); };
    // Rank 2's weights: first of its host's own, first of the partner's copies.
    if (damaged & 1) flip_last_bit(own[has(own[0]) ? 1 : 10]);
    if (damaged & 2) flip_last_bit(copy[has(copy[0]) ? 5 : 14]);
    for (const pid_t host : hosts)
      for (const pid_t rank : children(host)) kill(rank, SIGKILL);
    EXPECT_THAT(wait_hosts(hosts), Each(0)) << both();
    EXPECT_THAT(read("err.0"), HasSubstr("rank_00002_model.safetensors: "));
    EXPECT_THAT(read("err.0"), HasSubstr("checksum differs: damaged"));
    if (damaged < 3)
      EXPECT_THAT(read("err.0"), HasSubstr("continuing from step 450 in memory"));
    else
      EXPECT_THAT(read("err.0"),
                  AllOf(HasSubstr("the checkpoint of step 450 in memory is not used: the files of "
                                  "rank 2 are lost"),
                        HasSubstr("continuing from step 225 in memory")));
    expect_same(save);
  }
}

TEST_F(MemoryHostsTest, ThePlanSaysWhatItTakes) {
  const Ended plan =
      run(plain({"--in-memory-checkpoint", "4", "--max-restarts", "1", "--save", "s", "--load", "s",
                 "--dry-run", "--nproc-per-node", "2", "--micro-batch-size", "1"}),
          {{"RANK", "0"},
           {"WORLD_SIZE", "2"},
           {"MASTER_ADDR", "127.0.0.1"},
           {"MASTER_PORT", std::to_string(port())}});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.out, ContainsRegex("in memory   a checkpoint every 4 steps, two are kept, each "
                                      "also on the next host: [0-9.]+ [KM]iB of host memory"));
}

}  // namespace
}  // namespace trainer
