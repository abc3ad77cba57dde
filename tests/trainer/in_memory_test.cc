// --in-memory-checkpoint: ranks that die at any moment before, in and after a copy, one or all,
// once and again, continue by themselves from memory to the bytes of an undisturbed run; and what
// happens where the memory does not serve.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <random>

#include "tests/trainer/run_ranks.h"

namespace trainer {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class InMemoryTest : public ManyTest {
 protected:
  /// A run of 30 steps with one checkpoint on disk at its end and, as asked, others in memory.
  static Words words(const std::string& save, const Words& more) {
    Words all = plain({"--train-iters", "30", "--micro-batch-size", "1", "--save", save,
                       "--log-interval", "3", "--eval-interval", "10"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static Words in_memory(const std::string& save, const Words& layout, const Words& more = {}) {
    Words all = words(save, layout);
    all.insert(all.end(), {"--in-memory-checkpoint", "4", "--max-restarts", "50"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Runs that do not end by themselves: steps without end, and copies.
  static Words endless(const std::string& save, const Words& more) {
    return in_memory(save, {"--nproc-per-node", "2"}, [&] {
      Words all = {"--train-iters", "1000000", "--eval-iters", "0"};
      all.insert(all.end(), more.begin(), more.end());
      return all;
    }());
  }
  void expect_same(const std::string& save, const std::string& whole) const {
    EXPECT_EQ(metrics(save), metrics(whole));
    EXPECT_TRUE(shards(save, 30) == shards(whole, 30)) << "other weights or moments";
  }
  static int count(const std::string& text, const std::string& what) {
    int found = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++found;
    return found;
  }
  /// How many operations on memory a copy of a rank has; the undisturbed run stays as "counted".
  unsigned operations_of_a_copy(const Words& layout, int rank) const {
    std::filesystem::remove_all(folder_ + "/counted");
    const Ended ended = run(in_memory("counted", layout), {{"LD_PRELOAD", FAULT_SHIM},
                                                           {"FAULT_ROOT", "/memfd:gristmill"},
                                                           {"FAULT_COUNT", folder_ + "/count"}});
    EXPECT_EQ(ended.status, 0) << ended.err;
    const std::string text = read("count." + std::to_string(rank));
    long operations = 0;
    EXPECT_EQ(text.size(), sizeof operations);
    std::memcpy(&operations, text.data(), std::min(text.size(), sizeof operations));
    EXPECT_EQ(operations % 7, 0) << "seven copies";
    return static_cast<unsigned>(operations) / 7;
  }
  void lose_every_save_of_step_8() const {
    const Ended ended =
        run(in_memory("save", {"--nproc-per-node", "2"},
                      {"--max-restarts", "4", "--save-interval", "8", "--no-async-save"}),
            {{"LD_PRELOAD", FAULT_SHIM},
             {"FAULT_ROOT", std::filesystem::canonical(folder_).string() + "/save"},
             {"FAULT_FROM", ".iter_0000008.tmp/meta.json"},
             {"FAULT_RANK", "0"},
             {"FAULT_DELAY", "500"},
             {"FAULT_AT", "1"}});
    EXPECT_EQ(ended.status, 1) << ended.err;
    EXPECT_EQ(count(ended.err, "restart 4 of 4"), 1) << ended.err;
    EXPECT_GT(count(ended.err, "continuing from step 8 in memory (in memory: step 8, on disk: no "),
              0)
        << ended.err;
    EXPECT_EQ(count(ended.err, "give --load save"), 0) << "nothing of this run is there";
  }
  static bool is_stopped(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    in >> number >> name >> state;
    return state == "T";
  }
  static pid_t wait_for_a_stop(pid_t launcher) {
    for (int i = 0; i < 6000; ++i) {
      for (const pid_t rank : children(launcher))
        if (is_stopped(rank)) return rank;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "no rank has stopped";
    return 0;
  }
  /// Later starts stop at the same operation.
  Ended wait_and_kill_the_stopped(pid_t launcher) const {
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(launcher), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0) {
      for (const pid_t rank : children(launcher))
        if (is_stopped(rank)) kill(rank, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return wait(launcher);
  }
};

// Every operation on memory of a copy, for each rank alone and all at once; operations are counted
// anew in each start, so a start dies in the same place one or two copies further on, or at once
// again. MANY_FAULT_EVERY=1 takes every operation; otherwise some, others with each
// MANY_FAULT_SEED.
TEST_F(InMemoryTest, AtAnyMomentOfACopyTheRunGoesOnToTheSameBits) {
  const unsigned seed = from_environment("MANY_FAULT_SEED", 1);
  const bool all = from_environment("MANY_FAULT_EVERY", 0) != 0;
  const std::vector<Words> layouts = {
      {"--nproc-per-node", "1"},
      {"--nproc-per-node", "2", "--use-distributed-optimizer"},
      {"--nproc-per-node", "2", "--tensor-model-parallel-size", "2", "--sequence-parallel"},
      {"--nproc-per-node", "2", "--pipeline-model-parallel-size", "2"}};
  for (size_t l = 0; l < layouts.size(); ++l) {
    const Words& layout = layouts[l];
    const int ranks = std::stoi(layout[1]);
    const std::string whole = "whole" + std::to_string(l);
    ASSERT_EQ(run(words(whole, layout)).status, 0) << read("err");
    const Variables shim = {{"LD_PRELOAD", FAULT_SHIM}, {"FAULT_ROOT", "/memfd:gristmill"}};
    for (int victim = 0; victim <= (ranks == 1 ? 0 : ranks); ++victim) {
      // Where all die, none dies in its first copy.
      unsigned each = 0;
      for (int rank = 0; rank < ranks; ++rank)
        if (victim == rank || victim == ranks)
          each = std::max(each, operations_of_a_copy(layout, rank));
      expect_same("counted", whole);
      ASSERT_GT(each, 10u);
      // In the second copy and in the first of the third: progress in every start.
      const unsigned stride = all ? 1 : each;
      for (unsigned at = each + 1 + (all ? 0 : seed * 5 % each); at <= 3 * each; at += stride) {
        SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed) + ", layout " + std::to_string(l) +
                     ", rank " + std::to_string(victim) + ", operation " + std::to_string(at) +
                     ", of a copy " + std::to_string(each));
        const std::string save = "save";
        std::filesystem::remove_all(folder_ + "/" + save);
        Variables fault = shim;
        fault["FAULT_AT"] = std::to_string(at);
        if (victim < ranks) fault["FAULT_RANK"] = std::to_string(victim);
        const Ended ended = run(in_memory(save, layout), fault);
        ASSERT_EQ(ended.status, 0) << ended.err;
        EXPECT_GT(count(ended.err, " of 50 with "), 1) << ended.err;
        EXPECT_THAT(ended.err, ContainsRegex("continuing from step [0-9]+ in memory \\(in memory: "
                                             "step [0-9]+, on disk: no complete checkpoint"));
        expect_same(save, whole);
      }
    }
  }
}

// One rank, or all, killed at random moments, three times in a row, with a copy after every step.
TEST_F(InMemoryTest, KilledAtRandomMomentsAndTwiceInARow) {
  const unsigned rounds = from_environment("MANY_FAULT_ROUNDS", 2),
                 seed = from_environment("MANY_FAULT_SEED", 1);
  const Words layout = {"--nproc-per-node",
                        "2",
                        "--use-distributed-optimizer",
                        "--train-iters",
                        "600",
                        "--save-interval",
                        "200",
                        "--log-interval",
                        "10",
                        "--eval-interval",
                        "1000"};
  ASSERT_EQ(run(words("whole", layout)).status, 0) << read("err");
  for (unsigned round = 0; round < rounds; ++round) {
    std::mt19937 random(seed + round);
    SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed + round));
    const std::string save = "save" + std::to_string(round);
    const pid_t launcher = start(in_memory(save, layout, {"--in-memory-checkpoint", "1"}));
    for (int kills = 0; kills < 3; ++kills) {
      wait_for_output("iteration");
      std::this_thread::sleep_for(std::chrono::milliseconds(kills == 2 ? 0 : random() % 500));
      const std::vector<pid_t> ranks = children(launcher);
      const unsigned long one = random() % 3;
      for (unsigned rank = 0; rank < ranks.size(); ++rank)
        if (one == 2 || one == rank) kill(ranks[rank], SIGKILL);
      // The next kill may come before the ranks have met again, or long after.
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 900));
    }
    const Ended ended = wait(launcher);
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_GT(count(ended.err, "restart "), 0) << ended.err;
    EXPECT_EQ(metrics(save), metrics("whole"));
    EXPECT_TRUE(shards(save, 600) == shards("whole", 600)) << "other weights or moments";
  }
}

// Rank 0 dies at the end of the save on disk of step 8, half a second later, when that step is in
// memory. A restart makes this save again (and dies again), and does not leave it out, although
// another run has left a checkpoint of that step.
TEST_F(InMemoryTest, ASaveOnDiskThatWasLostIsMadeUpFor) {
  for (const bool another : {false, true}) {
    SCOPED_TRACE(another);
    const Words theirs = {"--nproc-per-node", "2", "--seed", "99", "--exit-interval", "8"};
    ASSERT_TRUE(!another || run(words("save", theirs)).status == 1) << read("err");
    lose_every_save_of_step_8();
  }
}
// What --no-save-optim leaves out on disk is in memory, and a newer checkpoint on disk without it
// is not taken.
TEST_F(InMemoryTest, HoldsWhatTheDiskIsNotToHold) {
  const Words layout = {"--nproc-per-node", "2", "--no-save-optim", "--no-save-rng",
                        "--save-interval",  "4"};
  ASSERT_EQ(run(words("whole", layout)).status, 0) << read("err");
  const unsigned each = operations_of_a_copy(layout, 1);
  const Ended ended = run(in_memory("save", layout, {"--in-memory-checkpoint", "5"}),
                          {{"LD_PRELOAD", FAULT_SHIM},
                           {"FAULT_ROOT", "/memfd:gristmill"},
                           {"FAULT_RANK", "1"},
                           {"FAULT_AT", std::to_string(each + 1)}});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("continuing from step 5 in memory"));
  EXPECT_THAT(ended.err, Not(HasSubstr(" on disk (")));
  expect_same("save", "whole");
}

// --no-load-optim is said of the checkpoint that the first start loads: a later one loads the
// moments that the run itself has saved.
TEST_F(InMemoryTest, WhatTheFirstStartLeavesOutLaterOnesLoad) {
  ASSERT_EQ(run(words("base", {"--exit-interval", "2", "--nproc-per-node", "2"})).status, 1)
      << read("err");
  const Words layout = {"--nproc-per-node",
                        "2",
                        "--load",
                        "base",
                        "--no-load-optim",
                        "--save-interval",
                        "100",
                        "--extra-save-iters",
                        "12",
                        "--no-async-save"};
  ASSERT_EQ(run(words("whole", layout)).status, 0) << read("err");
  const unsigned each = operations_of_a_copy(layout, 1);
  // Killed in the copy of step 16, for which step 24 waits: no later save comes before.
  const Ended ended = run(in_memory("save", layout, {"--in-memory-checkpoint", "8"}),
                          {{"LD_PRELOAD", FAULT_SHIM},
                           {"FAULT_ROOT", "/memfd:gristmill"},
                           {"FAULT_RANK", "1"},
                           {"FAULT_AT", std::to_string(each + 1)}});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("continuing from step 12 on disk (in memory: step 8, "));
  expect_same("save", "whole");
}

// The newer one is taken and named; a copy that is damaged in memory is not, and the one before is.
TEST_F(InMemoryTest, TheNewestOfDiskAndMemoryIsTaken) {
  const auto kill_after = [&](pid_t launcher, const std::string& text) {
    wait_for_output(text);
    kill(children(launcher).at(1), SIGKILL);
    for (int i = 0; i < 1000 && read("err").find("continuing from") == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string said = read("err");
    kill(launcher, SIGKILL);
    wait(launcher);
    return said;
  };
  EXPECT_THAT(
      kill_after(
          start(endless("disk", {"--save-interval", "10", "--in-memory-checkpoint", "1000"})),
          "successfully saved checkpoint at iteration 20 "),
      ContainsRegex("continuing from step [2-9]0 on disk \\(in memory: no checkpoint, on disk"));
  EXPECT_THAT(
      kill_after(start(endless("memory", {"--save-interval", "10", "--in-memory-checkpoint", "1"})),
                 "iteration       30/"),
      ContainsRegex("continuing from step [0-9]+ in memory \\(in memory: step [0-9]+, on "
                    "disk: step [0-9]+\\)"));
  // The launcher is lost too: no memory is left, and the same command starts from the disk.
  const pid_t launcher = start(endless("disk", {"--load", "disk"}));
  wait_for_output("successfully loaded checkpoint from disk/iter_");
  kill(launcher, SIGKILL);
  EXPECT_THAT(wait(launcher).err, Not(HasSubstr("continuing from")));
}

TEST_F(InMemoryTest, TheFirstCompleteOneIsSaidAndALongWait) {
  const Words layout = {"--nproc-per-node", "2"};
  const Ended quick = run(in_memory("quick", layout));
  EXPECT_EQ(quick.status, 0) << quick.err;
  EXPECT_EQ(count(quick.out, "the checkpoint of step "), 1) << quick.out;
  EXPECT_THAT(quick.out, HasSubstr("the checkpoint of step 4 is complete in memory, "));
  // One rank's copy takes two seconds more: SIGCONT changes nothing.
  const Ended slow = run(in_memory("slow", layout), {{"LD_PRELOAD", FAULT_SHIM},
                                                     {"FAULT_ROOT", "/memfd:gristmill"},
                                                     {"FAULT_RANK", "1"},
                                                     {"FAULT_SIGNAL", std::to_string(SIGCONT)},
                                                     {"FAULT_DELAY", "2000"},
                                                     {"FAULT_AT", "1"}});
  EXPECT_EQ(slow.status, 0) << slow.err;
  EXPECT_THAT(slow.out, ContainsRegex("the checkpoint of step 4 is complete in memory, [0-9]+ s "));
  EXPECT_THAT(slow.err,
              ContainsRegex("--in-memory-checkpoint 4: training waited [0-9]+ s at step 8 "
                            "for the copy of step 4, which took [0-9]+ s; the first two "));
}

// A rank stops in its third copy; a bit of the second is changed, and it is killed. One rank alone
// has stopped before it touches the first copy, and continues from that; of two, the other one has
// begun to overwrite it, and the disk is left.
TEST_F(InMemoryTest, DamagedMemoryIsNotUsed) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    // A copy is written beside the steps: no save may come while the third is.
    Words layout = {"--nproc-per-node", std::to_string(ranks), "--save-interval", "100"};
    if (ranks == 2) layout.insert(layout.end(), {"--extra-save-iters", "6"});
    const std::string whole = "whole" + std::to_string(ranks),
                      save = "save" + std::to_string(ranks);
    ASSERT_EQ(run(words(whole, layout)).status, 0) << read("err");
    const unsigned each = operations_of_a_copy(layout, ranks - 1);
    const pid_t launcher =
        start(in_memory(save, layout, {"--hang-timeout-seconds", "60", "--no-async-save"}),
              {{"LD_PRELOAD", FAULT_SHIM},
               {"FAULT_ROOT", "/memfd:gristmill"},
               {"FAULT_RANK", std::to_string(ranks - 1)},
               {"FAULT_SIGNAL", std::to_string(SIGSTOP)},
               {"FAULT_AT", std::to_string(2 * each + 1)}});
    const pid_t victim = wait_for_a_stop(launcher);
    const std::vector<std::string> files = memory_of(launcher);
    const size_t half = files.size() / 2;
    ASSERT_EQ(half, static_cast<size_t>(2 * ranks + 1));
    const auto has = [&](size_t i, const char* text) {
      std::ifstream in(files[i]);
      const std::string record(std::istreambuf_iterator<char>(in), {});
      return record.find(text) != std::string::npos;
    };
    if (ranks == 1) {
      ASSERT_TRUE(has(0, "\"iteration\": 4,"));
    }
    const std::string taken =
        ranks == 2 ? "continuing from step 6 on disk" : "continuing from step 4 in memory";
    ASSERT_TRUE(has(half, "\"iteration\": 8,"));
    flip_last_bit(files[half + 1]);
    kill(victim, SIGKILL);
    const Ended ended = wait_and_kill_the_stopped(launcher);
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(ended.err,
                AllOf(ContainsRegex("trainer: memory:/iter_0000008/rank_00000_model.safetensors: "
                                    ".*checksum differs: damaged: the checkpoint of step 8 in "
                                    "memory is not used"),
                      HasSubstr(taken + " (in memory: step 8, on disk: " +
                                (ranks == 1 ? "no complete checkpoint)" : "step 6)"))));
    expect_same(save, whole);
  }
}

TEST_F(InMemoryTest, WhatCannotBeHonouredIsRefused) {
  const auto refused = [&](const Words& more, const Variables& variables = {}) {
    const Ended ended = run(plain(more), variables);
    EXPECT_EQ(ended.status, 2);
    return ended.err;
  };
  EXPECT_THAT(refused({"--in-memory-checkpoint", "4", "--save", "s"}),
              HasSubstr("--in-memory-checkpoint 4 needs --max-restarts"));
  EXPECT_THAT(refused({"--in-memory-checkpoint", "4", "--max-restarts", "1"}),
              HasSubstr("--in-memory-checkpoint 4 needs --save"));
  EXPECT_THAT(refused({"--in-memory-checkpoint", "4", "--max-restarts", "1", "--save", "s"},
                      torchrun(0, 1, port())),
              HasSubstr("these were started by torchrun"));
  const Ended plan = run(plain({"--in-memory-checkpoint", "4", "--max-restarts", "1", "--save", "s",
                                "--dry-run", "--nproc-per-node", "2"}));
  EXPECT_THAT(plan.out, ContainsRegex("in memory   a checkpoint every 4 steps, two are kept: "
                                      "[0-9.]+ [KM]iB of host memory over all ranks"));
}

}  // namespace
}  // namespace trainer
