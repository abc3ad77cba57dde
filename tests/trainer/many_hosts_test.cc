// --max-restarts with several hosts, each a launcher of this machine: ranks and whole hosts die at
// any moment, come back or do not, are told to stop. What continues ends in the bytes of an
// undisturbed run, what ends says why on both hosts, and nothing is left behind.
//
// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "tests/trainer/run_hosts.h"

namespace trainer {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class ManyHostsTest : public HostsTest {};

// One rank, one host's or all ranks, at random moments, several times: in starts, meetings, steps,
// evaluations and saves. MANY_FAULT_ROUNDS and MANY_FAULT_SEED ask for more and for others.
TEST_F(ManyHostsTest, KilledRanksOfEitherHostGoOnToTheSameBits) {
  const unsigned rounds = from_environment("MANY_FAULT_ROUNDS", 3),
                 seed = from_environment("MANY_FAULT_SEED", 1);
  ASSERT_THAT(run_hosts(words("whole")), testing::Each(0)) << both();
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed + round));
    std::mt19937 random(seed + round);
    const std::string save = "save" + std::to_string(round);
    const Hosts hosts = {start_host(0, words(save)), start_host(1, words(save))};
    for (int kills = 0; kills < 3; ++kills) {
      if (kills == 0) wait_for_output("iteration", "out.0");
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 900));
      const size_t host = (round + static_cast<unsigned>(kills)) % 2;
      const std::vector<pid_t> ranks = ranks_of(hosts[host]);
      if (ranks.size() < ranks_a_host()) break;  // the run is over.
      const unsigned long one = random() % (ranks_a_host() + 1);
      for (unsigned rank = 0; rank < ranks.size(); ++rank)
        if (one == ranks_a_host() || one == rank) kill(ranks[rank], SIGKILL);
    }
    EXPECT_EQ(wait(hosts[0]).status, 0) << both();
    EXPECT_EQ(wait(hosts[1]).status, 0) << both();
    EXPECT_THAT(read("err.0"), HasSubstr(restarted("0", "1 of 9")));
    EXPECT_THAT(read("err.1"), HasSubstr(restarted("1", "1 of 9")));
    expect_same(save);
  }
}

// A rank dies at a certain message or operation on files, counted anew in each start, so that every
// start dies again, one or two saves further on.
TEST_F(ManyHostsTest, ARankThatDiesInEveryStartGoesOnFromSaveToSave) {
  ASSERT_THAT(run_hosts(words("whole")), testing::Each(0)) << both();
  for (const int victim : {0, 1, 2, 3}) {
    SCOPED_TRACE(victim);
    const std::string save = "save" + std::to_string(victim);
    EXPECT_THAT(
        run_hosts(words(save, {"--save-interval", "120", "--keep-last", "1"}),
                  {{"LD_PRELOAD", FAULT_SHIM},
                   {"FAULT_ROOT", std::filesystem::canonical(folder_).string() + "/" + save},
                   {"FAULT_RANK", std::to_string(victim)},
                   {"FAULT_FROM", "iter_"},
                   {"FAULT_AT", "80"}}),
        testing::Each(0))
        << both();
    EXPECT_THAT(read("err.0"), HasSubstr("restart 1 of 9"));
    expect_same(save);
  }
}

// SIGKILL of a host's launcher ends its ranks too; the host is started again by the same line.
TEST_F(ManyHostsTest, AHostThatDiesAndComesBackJoins) {
  const unsigned rounds = from_environment("MANY_FAULT_ROUNDS", 4),
                 seed = from_environment("MANY_FAULT_SEED", 1);
  ASSERT_THAT(run_hosts(words("whole")), testing::Each(0)) << both();
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed + round));
    std::mt19937 random(seed + round);
    const std::string save = "save" + std::to_string(round);
    Hosts hosts = {start_host(0, words(save)), start_host(1, words(save))};
    const int victim = static_cast<int>(round % 2);
    wait_for_output("iteration", "out.0");
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 600));
    const auto at = static_cast<size_t>(victim);
    kill(hosts[at], SIGKILL);
    EXPECT_EQ(wait(hosts[at]).status, 128 + SIGKILL);
    // Sometimes it is back before the other host has noticed.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 2 == 0 ? 0 : 1500));
    hosts[at] = start_host(victim, words(save), {}, ".again");
    EXPECT_EQ(wait(hosts[0]).status, 0) << both() << read("err.0.again");
    EXPECT_EQ(wait(hosts[1]).status, 0) << both() << read("err.1.again");
    const std::string other = std::to_string(1 - victim);
    EXPECT_THAT(read("err." + other), HasSubstr(restarted(other, "1 of 9")));
    expect_same(save);
  }
}

TEST_F(ManyHostsTest, AHostThatDoesNotComeBackIsNamedWithinTheBound) {
  const Words endless = {"--train-iters",
                         "1000000",
                         "--rejoin-timeout-minutes",
                         "0.12",
                         "--meeting-timeout-seconds",
                         "7"};
  for (const int victim : {1, 0}) {
    SCOPED_TRACE(victim);
    const std::string save = "save" + std::to_string(victim);
    const Hosts hosts = {start_host(0, words(save, endless)), start_host(1, words(save, endless))};
    wait_for_output("successfully saved checkpoint", "out.0");
    kill(hosts[static_cast<size_t>(victim)], SIGKILL);
    wait(hosts[static_cast<size_t>(victim)]);
    const auto begin = std::chrono::steady_clock::now();
    const int other = 1 - victim;
    EXPECT_EQ(wait(hosts[static_cast<size_t>(other)]).status, 75) << both();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25));
    if (victim == 1)
      EXPECT_THAT(read("err.0"),
                  AllOf(ContainsRegex("rank [23] \\([^)]*\\): in (step|phase) .*: its connection "
                                      "closed: killed, or crashed"),
                        HasSubstr("trainer: node 0 of 2: restart 1 of 9 with 2 ranks\n"),
                        HasSubstr("trainer: ranks 2, 3 of 4: not back: waiting, at most 7 s\n"),
                        HasSubstr("trainer: ranks 2, 3 of 4 did not come within 7 s; there are "
                                  "rank 0 (")));
    else
      EXPECT_THAT(read("err.1"),
                  AllOf(HasSubstr("trainer: node 1 of 2: restart 1 of 9 with 2 ranks\n"),
                        HasSubstr("rank 0 is not back: waiting for it, at most 7 s: 127.0.0.1"),
                        ContainsRegex("rank 2 \\([^)]*\\): rank 0 was not found within 7 s")));
    const std::string text = read("err." + std::to_string(other)), waits = "not back: waiting";
    EXPECT_EQ(text.find(waits), text.rfind(waits)) << "said more than once: " << text;
    EXPECT_EQ(orphans(), 0);
  }
}

// A signal to one host ends both with a checkpoint; one that waits for another host ends at once.
TEST_F(ManyHostsTest, StopSignalsEndBothHostsAndAWait) {
  ASSERT_THAT(run_hosts(words("whole")), testing::Each(0)) << both();
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const std::string save = "save" + std::to_string(signal);
    const Hosts hosts = {start_host(0, words(save)), start_host(1, words(save))};
    wait_for_output("iteration", "out.0");
    kill(hosts[signal == SIGTERM ? 1 : 0], signal);
    EXPECT_EQ(wait(hosts[0]).status, 75) << both();
    EXPECT_EQ(wait(hosts[1]).status, 75) << both();
    EXPECT_THAT(both(), Not(HasSubstr("restart 1")));
    EXPECT_THAT(run_hosts(words(save)), testing::Each(0)) << both();
    expect_same(save);
  }
  for (const int waits : {0, 1}) {
    const std::string save = "wait" + std::to_string(waits);
    const Hosts hosts = {start_host(0, words(save)), start_host(1, words(save))};
    wait_for_output("iteration", "out.0");
    kill(hosts[static_cast<size_t>(1 - waits)], SIGKILL);
    wait(hosts[static_cast<size_t>(1 - waits)]);
    wait_for_output("waiting", "err." + std::to_string(waits));
    const auto begin = std::chrono::steady_clock::now();
    kill(hosts[static_cast<size_t>(waits)], SIGTERM);
    EXPECT_EQ(wait(hosts[static_cast<size_t>(waits)]).status, 75) << both();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_THAT(read("err." + std::to_string(waits)),
                HasSubstr("SIGTERM: stopped while it waited for the others"));
    EXPECT_THAT(run_hosts(words(save)), testing::Each(0)) << both();
    expect_same(save);
  }
}

// A signal to one host before all have met: the other is told, and both can be continued. It has 8
// s to come, which a busy machine may not give it.
TEST_F(ManyHostsTest, AStopBeforeAllHaveMetEndsBothHosts) {
  const Words bounded = {"--distributed-timeout-minutes", "0.5"};
  for (const int stops : {0, 1}) {
    SCOPED_TRACE(stops);
    bool told = false;
    for (int tries = 0; tries < 3 && !told; ++tries) {
      const std::string save = "early" + std::to_string(stops) + std::to_string(tries);
      Hosts hosts{};
      hosts[static_cast<size_t>(stops)] = start_host(stops, words(save, bounded));
      ASSERT_EQ(ranks_of(hosts[static_cast<size_t>(stops)]).size(), ranks_a_host()) << both();
      kill(hosts[static_cast<size_t>(stops)], SIGTERM);
      hosts[static_cast<size_t>(1 - stops)] = start_host(1 - stops, words(save, bounded));
      const std::array<int, 2> statuses = wait_hosts(hosts);
      EXPECT_EQ(statuses[static_cast<size_t>(stops)], 75) << both();
      told = statuses[static_cast<size_t>(1 - stops)] == 75;
      EXPECT_EQ(
          read("err." + std::to_string(1 - stops)).find("SIGTERM: stopped ") != std::string::npos,
          told)
          << both();
      EXPECT_EQ(orphans(), 0);
    }
    EXPECT_TRUE(told) << both();
  }
}

// Without progress the restarts are used up, and both hosts end.
TEST_F(ManyHostsTest, WithoutProgressTheRestartsAreUsedUp) {
  const std::string save = "save";
  EXPECT_THAT(run_hosts(words(save, {"--max-restarts", "2", "--rejoin-timeout-minutes", "0.05",
                                     "--meeting-timeout-seconds", "3"}),
                        {{"LD_PRELOAD", FAULT_SHIM},
                         {"FAULT_ROOT", std::filesystem::canonical(folder_).string() + "/" + save},
                         {"FAULT_RANK", "3"},
                         {"FAULT_AT", "3"}}),
              testing::Each(75))
      << both();
  for (const char* file : {"err.0", "err.1"})
    EXPECT_THAT(read(file),
                AllOf(HasSubstr("restart 2 of 2 with 2 ranks"), Not(HasSubstr("restart 3"))));
  EXPECT_EQ(orphans(), 0);
  // What the killed saves have left goes with the next one.
  ASSERT_THAT(run_hosts(words("whole")), testing::Each(0)) << both();
  ASSERT_THAT(run_hosts(words(save)), testing::Each(0)) << both();
  expect_same(save);
}

// One host was started again, and so has more restarts left than the other, which ends: so does it,
// at once, and says for whose sake.
TEST_F(ManyHostsTest, AHostWithoutRestartsEndsTheOther) {
  for (const int victim : {1, 0}) {
    SCOPED_TRACE(victim);
    const std::string save = "save" + std::to_string(victim);
    const Words of = words(save, {"--max-restarts", "2"});
    const Variables fault = {
        {"LD_PRELOAD", FAULT_SHIM},
        {"FAULT_ROOT", std::filesystem::canonical(folder_).string() + "/" + save},
        {"FAULT_RANK", "3"},
        {"FAULT_AT", "3"}};
    Hosts hosts = {start_host(0, of, fault), start_host(1, of, fault)};
    const int other = 1 - victim;
    // In the second start's steps, which the loss of a host ends.
    const auto in_steps = [&] {
      const std::string text = read("out.0"), first = "iteration       10/";
      return text.find(first) != text.rfind(first);
    };
    for (int i = 0; i < 6000 && !in_steps(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(hosts[static_cast<size_t>(victim)], SIGKILL);
    wait(hosts[static_cast<size_t>(victim)]);
    hosts[static_cast<size_t>(victim)] = start_host(victim, of, fault, ".again");
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(wait_hosts(hosts), testing::Each(75)) << both();
    // Well before the ten minutes of --rejoin-timeout-minutes.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    const std::string line = "node " + std::to_string(other) +
                             " of 2: no restart is left: 2 without a newer checkpoint between them";
    EXPECT_THAT(read("err." + std::to_string(other)), HasSubstr("trainer: " + line + "\n"));
    EXPECT_THAT(read("err." + std::to_string(victim) + ".again"),
                ContainsRegex("trainer: rank " + std::to_string(2 * other) +
                              " \\([^)]*\\): " + line + "; its own messages say why\n"));
    EXPECT_EQ(orphans(), 0);
  }
}

TEST_F(ManyHostsTest, WhatCannotWorkIsRefusedByNameOnBothHosts) {
  const auto refused = [&](Words more) {
    more.insert(more.end(), {"--micro-batch-size", "1"});
    const std::array<int, 2> statuses = run_hosts(plain(more));
    EXPECT_THAT(statuses, testing::Each(2)) << both();
    return read("err.0");
  };
  EXPECT_THAT(refused({"--nproc-per-node", "2", "--max-restarts", "2", "--save", "s"}),
              HasSubstr("--max-restarts 2 with 2 hosts needs --save and --load of one folder"));
  EXPECT_THAT(refused({"--nproc-per-node", "2", "--max-restarts", "2", "--save", "s", "--load", "s",
                       "--finetune"}),
              HasSubstr("--max-restarts 2 with 2 hosts needs --save and --load of one folder"));
  EXPECT_THAT(refused({"--nproc-per-node", "2", "--max-restarts", "2", "--save", "s", "--load", "s",
                       "--allow-fewer-devices"}),
              HasSubstr("--allow-fewer-devices: with several hosts every device is needed"));
  const Ended idle =
      run(plain({"--max-restarts", "2", "--save", "s", "--load", "s"}), torchrun(0, 1, port()));
  EXPECT_EQ(idle.status, 0) << idle.err;
  EXPECT_THAT(idle.err, HasSubstr("--max-restarts changes nothing: torchrun starts the ranks"));
}

/// Two hosts with names of their own, each of which has its own folder under the same name.
class OwnFoldersTest : public HostsTest {
 protected:
  OwnFoldersTest() {
    std::filesystem::create_directory(folder_ + "/b");
    for (const char* file : {"/d.bin", "/d.idx"})
      std::filesystem::copy(folder_ + file, folder_ + "/b" + file);
  }
  std::array<int, 2> run_apart(const Words& words) {
    const auto named = [](const char* name) {
      return Variables{{"LD_PRELOAD", FAULT_SHIM}, {"FAULT_HOST", name}};
    };
    const std::string first = folder_;
    Hosts hosts = {start_host(0, words, named("ahost")), -1};
    folder_ = first + "/b";
    hosts[1] = start_host(1, words, named("bhost"));
    folder_ = first;
    return wait_hosts(hosts);
  }
  static Words saving(const Words& more) {
    Words all = {"--nproc-per-node", "1",    "--save",          "save",
                 "--load",           "save", "--save-interval", "4"};
    all.insert(all.end(), more.begin(), more.end());
    return plain(all);
  }
  /// That both hosts say why `rank` ended the run.
  void expect_said(const std::string& why) const {
    EXPECT_THAT(read("err.0"), HasSubstr("trainer: rank 1 (bhost, cpu): " + why + "\n"));
    EXPECT_THAT(read("b/err.1"), HasSubstr("trainer: rank 0 (ahost, cpu) ended the run: rank 1 "
                                           "(bhost, cpu): " +
                                           why + "\n"));
  }
};

// Nothing is trained that no save could keep, and no restart would help.
TEST_F(OwnFoldersTest, ASaveFolderThatHostsDoNotShareIsNamedOnBothBeforeTheFirstStep) {
  EXPECT_THAT(run_apart(saving({"--max-restarts", "3"})), testing::Each(1))
      << read("err.0") << read("b/err.1");
  expect_said(
      "save: is not the folder that rank 0 (ahost, cpu) has there: --save must be one folder for "
      "all hosts");
  EXPECT_THAT(read("out.0"), Not(HasSubstr("iteration")));
  EXPECT_THAT(read("err.0") + read("b/err.1"), Not(HasSubstr("restart 1")));
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/save"))
    EXPECT_FALSE(entry.path().filename().string().ends_with(".tmp")) << entry.path();
}

// A host that comes back without the folder that all share.
TEST_F(OwnFoldersTest, AHostThatBeginsFromAnotherCheckpointIsNamedOnBoth) {
  ASSERT_THAT(run_hosts(saving({"--exit-interval", "4"})), testing::Each(75)) << both();
  EXPECT_THAT(run_apart(saving({})), testing::Each(1)) << read("err.0") << read("b/err.1");
  expect_said(
      "save: this rank begins without a checkpoint, rank 0 (ahost, cpu) from step 4: --load must "
      "lead all hosts to one checkpoint");
  EXPECT_THAT(read("out.0"), Not(HasSubstr("iteration        5/")));
  // One of the same step, but of another run.
  ASSERT_NE(run(plain({"--seed", "7", "--save", "b/save", "--exit-interval", "4"})).status, 0);
  ASSERT_TRUE(std::filesystem::exists(folder_ + "/b/save/iter_0000004")) << read("err");
  EXPECT_THAT(run_apart(saving({})), testing::Each(1)) << read("err.0") << read("b/err.1");
  expect_said(
      "save: this rank begins from step 4, rank 0 (ahost, cpu) from other weights of that step: "
      "--load must lead all hosts to one checkpoint");
}

// A host whose rank 0 is elsewhere does not end with an error and without a word.
TEST_F(OwnFoldersTest, WhyTheLastCheckpointWasNotWrittenIsSaidOnBothHosts) {
  const Hosts hosts = {
      start_host(0, saving({}),
                 {{"LD_PRELOAD", FAULT_SHIM},
                  {"FAULT_HOST", "ahost"},
                  {"FAULT_ROOT", std::filesystem::canonical(folder_).string() + "/save"},
                  {"FAULT_FROM", "/.iter_0000012"},
                  {"FAULT_AT", "1"},
                  {"FAULT_ERRNO", std::to_string(ENOSPC)}}),
      start_host(1, saving({}), {{"LD_PRELOAD", FAULT_SHIM}, {"FAULT_HOST", "bhost"}})};
  EXPECT_THAT(wait_hosts(hosts), testing::Each(1)) << both();
  const std::string why =
      "trainer: rank 0 (ahost, cpu): save/.iter_0000012.tmp: no space left on device: the "
      "checkpoint of step 12 was not written\n";
  EXPECT_THAT(read("err.0"), HasSubstr(why));
  EXPECT_THAT(read("err.1"), HasSubstr(why));
}

// One rank for each host: its process is a launcher then, too.
TEST_F(ManyHostsTest, AHostWithOneRankGoesOn) {
  const Words one = {"--nproc-per-node", "1", "--micro-batch-size", "2"};
  ASSERT_THAT(run_hosts(words("whole", one)), testing::Each(0)) << both();
  const Hosts hosts = {start_host(0, words("save", one)), start_host(1, words("save", one))};
  wait_for_output("iteration", "out.0");
  kill(ranks_of(hosts[1], 1).at(0), SIGKILL);
  EXPECT_EQ(wait(hosts[0]).status, 0) << both();
  EXPECT_EQ(wait(hosts[1]).status, 0) << both();
  EXPECT_THAT(read("err.1"), HasSubstr("node 1 of 2: restart 1 of 9 with 1 rank\n"));
  expect_same("save");
}

// A rank dies when it would tell its launcher that the run is over. Rank 1 is told so when it comes
// again; before rank 0 has said so it is not, and all come again.
TEST_F(ManyHostsTest, AKillAtTheVeryEndMakesNobodyWait) {
  const Words one = {"--nproc-per-node", "1", "--micro-batch-size", "2", "--max-restarts", "1"};
  ASSERT_THAT(run_hosts(words("whole", one)), testing::Each(0)) << both();
  for (const int victim : {1, 0}) {
    SCOPED_TRACE(victim);
    const std::string save = "save" + std::to_string(victim);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(run_hosts(words(save, one), {{"LD_PRELOAD", FAULT_SHIM},
                                             {"FAULT_ROOT", "/memfd:trainer-end"},
                                             {"FAULT_RANK", std::to_string(victim)},
                                             {"FAULT_AT", "1"}}),
                testing::Each(victim == 1 ? 0 : 75))
        << both();
    // Starts on GPUs take longest: 67 s for the three of the second case, beside other tests.
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(device() == "cpu" ? 60 : 240));
    EXPECT_THAT(read("err.1"), HasSubstr("node 1 of 2: restart 1 of 1 with 1 rank\n"));
    if (victim == 1) {
      EXPECT_THAT(read("err.1"), HasSubstr("trainer: the run was over when the ranks of this host "
                                           "were lost\n"));
      EXPECT_THAT(read("err.0"), Not(HasSubstr("restart 1 of 1")));
    } else {
      EXPECT_THAT(run_hosts(words(save, one)), testing::Each(0)) << both();
    }
    expect_same(save);
  }
}

}  // namespace
}  // namespace trainer
