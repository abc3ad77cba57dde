// Ranks that are lost, as processes of the trainer program: killed or stopped at any moment, cut
// off from the others, lost for good. The others end in time, one line names the lost rank, and the
// run continues to the bytes of an undisturbed run.
//
// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <regex>
#include <set>

#include "tests/trainer/run_ranks.h"

namespace trainer {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class LostRankTest : public ManyTest {
 protected:
  /// Two ranks that save every ten steps.
  static Words saving_each_ten(const Words& more) {
    Words all = plain({"--nproc-per-node", "2", "--train-iters", "60", "--log-interval", "1",
                       "--eval-interval", "1000", "--save-interval", "10",
                       "--tensor-model-parallel-size", "2"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// Makes rank 1 die at its `at`th operation on files in `save`, counted anew in each start.
  Variables rank_1_dies(const std::string& save, const char* at) const {
    return {{"LD_PRELOAD", FAULT_SHIM},
            {"FAULT_ROOT", std::filesystem::canonical(folder_).string() + "/" + save},
            {"FAULT_RANK", "1"},
            {"FAULT_AT", at}};
  }
  /// Two by two ranks that divide everything possible, with saves and evaluations.
  static Words divided(const std::string& save) {
    return plain({"--nproc-per-node", std::to_string(most_ranks()), "--tensor-model-parallel-size",
                  "2", "--sequence-parallel", "--use-distributed-optimizer", "--micro-batch-size",
                  "1", "--save-interval", "4", "--keep-last", "1", "--save", save, "--load", save});
  }
  /// How many operations and messages each rank of an undisturbed run has; the run stays as `save`.
  std::vector<unsigned> count_operations(const Words& words) const {
    std::vector<unsigned> counts;
    const Ended whole = run(words, {{"LD_PRELOAD", FAULT_SHIM},
                                    {"FAULT_ROOT", std::filesystem::canonical(folder_).string()},
                                    {"FAULT_MESSAGES", "1"},
                                    {"FAULT_COUNT", folder_ + "/count"}});
    EXPECT_EQ(whole.status, 0) << whole.err;
    for (int rank = 0; rank < static_cast<int>(most_ranks()); ++rank) {
      const std::string count = read("count." + std::to_string(rank));
      long operations = 0;
      EXPECT_EQ(count.size(), sizeof operations);
      std::memcpy(&operations, count.data(), std::min(count.size(), sizeof operations));
      EXPECT_GT(operations, 10);
      counts.push_back(static_cast<unsigned>(operations));
    }
    return counts;
  }
};

// From the process's first instruction to its end, during rendezvous, steps, evaluations and saves:
// moments are counted in messages and operations on files, so that a busy machine changes nothing.
// MANY_FAULT_ROUNDS and MANY_FAULT_SEED ask for more and for others.
TEST_F(LostRankTest, AtAnyMomentTheSameCommandGoesOnToTheSameBits) {
  const unsigned rounds = from_environment("MANY_FAULT_ROUNDS", 5),
                 seed = from_environment("MANY_FAULT_SEED", 1);
  const std::vector<unsigned> counts = count_operations(divided("whole"));
  unsigned lost = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    std::mt19937 random(seed + round);
    const unsigned victim = (seed + round) % most_ranks();
    const int signal = (seed + round) % 3 == 0 ? SIGSTOP : SIGKILL;
    // Each round in another fifth of the run; one in ten in the meeting.
    const unsigned part = counts[victim] / 5, begin = round % 5 * part;
    const unsigned at =
        1 + (round % 10 == 0 ? random() % 8 : begin + random() % std::max(1u, part));
    const std::string save = "save" + std::to_string(round);
    SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed + round) + ": rank " +
                 std::to_string(victim) + ", signal " + std::to_string(signal) + " at operation " +
                 std::to_string(at) + " of " + std::to_string(counts[victim]));
    const Ended first =
        run(divided(save), {{"LD_PRELOAD", FAULT_SHIM},
                            {"FAULT_ROOT", std::filesystem::canonical(folder_).string()},
                            {"FAULT_MESSAGES", "1"},
                            {"FAULT_RANK", std::to_string(victim)},
                            {"FAULT_SIGNAL", std::to_string(signal)},
                            {"FAULT_AT", std::to_string(at)}});
    if (first.status != 0) {
      ++lost;
      const std::string rank = "trainer: rank " + std::to_string(victim);
      // A rank that hangs before it has connected counts as one that did not come.
      EXPECT_THAT(first.status, AnyOf(75, signal == SIGSTOP ? 1 : 75)) << first.err;
      EXPECT_THAT(
          first.err,
          AnyOf(ContainsRegex(rank + " \\([^,]+, [^)]+\\): in (step|phase) "),
                HasSubstr(rank + ": killed by signal"),
                HasSubstr(rank + " of " + std::to_string(most_ranks()) + " did not come within"),
                ContainsRegex("rank 1 \\([^,]+, [^)]+\\): rank 0 was not found")));
    }
    const Ended second = run(divided(save));
    ASSERT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(metrics(save), metrics("whole"));
    EXPECT_TRUE(shards(save, 12) == shards("whole", 12)) << "other weights or moments";
  }
  EXPECT_GT(lost, rounds / 2);
}

// Four ranks, of which one device fails at each start: two, the largest number that divides the
// batch, continue from the last checkpoint to the bytes of a run of two from there.
TEST_F(LostRankTest, ADeviceThatIsGoneIsGoneOnWithoutWhereThatIsAllowed) {
  if (most_ranks() < 4) GTEST_SKIP() << "needs four ranks";
  const auto words = [](const std::string& save, const char* ranks, const Words& more) {
    Words all =
        plain({"--nproc-per-node", ranks, "--use-distributed-optimizer", "--micro-batch-size", "1",
               "--save-interval", "4", "--save", save, "--load", save});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(run(words("one", "4", {"--exit-interval", "4"})).status, 75) << read("err");
  std::filesystem::copy(folder_ + "/one", folder_ + "/two",
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy(folder_ + "/one", folder_ + "/three",
                        std::filesystem::copy_options::recursive);
  const std::map<std::string, std::string> broken = {
      {"LD_PRELOAD", FAULT_SHIM},
      {"FAULT_ROOT", std::filesystem::canonical(folder_).string()},
      {"FAULT_DEVICE", "1"},
      {"FAULT_AT", "1"}};
  const Ended fewer =
      run(words("one", "4", {"--max-restarts", "3", "--allow-fewer-devices"}), broken);
  EXPECT_EQ(fewer.status, 0) << fewer.err;
  EXPECT_THAT(fewer.err, AllOf(HasSubstr("restart 1 of 3 with 4 ranks"),
                               HasSubstr("device 1: gone: continuing with devices 0, 2\n"),
                               HasSubstr("restart 2 of 3 with 2 ranks")));
  ASSERT_EQ(run(words("two", "2", {})).status, 0) << read("err");
  EXPECT_EQ(metrics("one"), metrics("two"));
  EXPECT_TRUE(shards("one", 12) == shards("two", 12)) << "other weights or moments";

  const Ended all = run(words("three", "4", {"--max-restarts", "2"}), broken);
  EXPECT_EQ(all.status, 75) << all.err;
  EXPECT_THAT(all.err,
              AllOf(HasSubstr("restart 2 of 2 with 4 ranks"), testing::Not(HasSubstr("gone"))));
}

// A rank of two or four dies or hangs at an operation on files during its saves. The others end,
// one line names it, and the same command again ends in the bytes of an undisturbed run.
// MANY_FAULT_ROUNDS and MANY_FAULT_SEED ask for more and for others.
TEST_F(LostRankTest, InASaveTheSameCommandGoesOnToTheSameBits) {
  const unsigned rounds = from_environment("MANY_FAULT_ROUNDS", 4),
                 seed = from_environment("MANY_FAULT_SEED", 1);
  const auto words = [&](unsigned ranks, const std::string& save) {
    Words all = {"--nproc-per-node",
                 std::to_string(ranks),
                 "--micro-batch-size",
                 "1",
                 "--use-distributed-optimizer",
                 "--save",
                 save,
                 "--load",
                 save,
                 "--save-interval",
                 "4",
                 "--keep-last",
                 "1"};
    if (ranks == most_ranks()) all.insert(all.end(), {"--tensor-model-parallel-size", "2"});
    return plain(all);
  };
  for (const unsigned ranks : std::set<unsigned>{2, most_ranks()})
    ASSERT_EQ(run(words(ranks, "whole" + std::to_string(ranks))).status, 0) << read("err");
  int lost = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    std::mt19937 random(seed + round);
    const unsigned ranks = round % 3 == 2 ? most_ranks() : 2, victim = round % ranks;
    // Rank 0 also names folders and writes what there is once.
    const unsigned at = 1 + static_cast<unsigned>(random() % (victim == 0 ? 50 : 24));
    const int signal = random() % 3 == 0 ? SIGSTOP : SIGKILL;
    const std::string save = "save" + std::to_string(round),
                      whole = "whole" + std::to_string(ranks);
    SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed + round) + ": rank " +
                 std::to_string(victim) + " of " + std::to_string(ranks) + ", signal " +
                 std::to_string(signal) + " at operation " + std::to_string(at));
    Variables fault = {{"LD_PRELOAD", FAULT_SHIM},
                       {"FAULT_ROOT", std::filesystem::canonical(folder_).string() + "/" + save},
                       {"FAULT_RANK", std::to_string(victim)},
                       {"FAULT_SIGNAL", std::to_string(signal)},
                       {"FAULT_AT", std::to_string(at)}};
    // On a GPU a rank makes the folder and opens gemm_choices.txt there before the ranks meet. One
    // that stops so early did not come, and the status is 1: these operations are not counted.
    if (device() == "cuda") fault["FAULT_FROM"] = victim == 0 ? "/.trainer.lock" : "/.iter_";
    const Ended first = run(words(ranks, save), fault);
    if (first.status != 0) {
      ++lost;
      EXPECT_EQ(first.status, 75) << first.err;
      EXPECT_THAT(first.err,
                  ContainsRegex("trainer: rank " + std::to_string(victim) +
                                " \\([^,]+, [^)]+\\): in (step [0-9]+|phase [a-z]+ at step "
                                "[0-9]+)"));
    }
    const Ended second = run(words(ranks, save));
    ASSERT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(metrics(save), metrics(whole));
    EXPECT_TRUE(shards(save, 12) == shards(whole, 12)) << "other weights or moments";
  }
  EXPECT_GT(lost, 0);
}

// A rank that dies or hangs between two steps: ranks in NCCL's kernels, too, end.
TEST_F(LostRankTest, InStepsTheOthersEndInTime) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const std::string save = signal == SIGKILL ? "killed" : "stopped";
    Words words = divided(save);
    words.insert(words.end(), {"--train-iters", "1000000", "--save-interval", "10",
                               "--log-interval", "1", "--eval-interval", "1000000"});
    const pid_t launcher = start(words);
    wait_for_output("successfully saved checkpoint");
    const std::vector<pid_t> ranks = children(launcher);
    ASSERT_EQ(ranks.size(), most_ranks());
    const unsigned victim = most_ranks() / 2;
    kill(ranks[victim], signal);
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended = wait(launcher);
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(signal == SIGKILL ? 30 : 60));
    EXPECT_EQ(ended.status, 75) << ended.err;
    EXPECT_THAT(ended.err, ContainsRegex("trainer: rank " + std::to_string(victim) +
                                         " \\([^)]+\\): in (step|phase) "));
  }
}

// Rank 1 of two dies at its 80th operation on files, counted anew in each start: a save has about
// 50, so every start gets one save further.
TEST_F(LostRankTest, RestartsGoOnByThemselves) {
  ASSERT_EQ(run(saving_each_ten({"--save", "whole"})).status, 0);
  const auto killed = [&](const std::string& save, const char* restarts, const char* at) {
    return run(saving_each_ten({"--save", save, "--max-restarts", restarts}),
               rank_1_dies(save, at));
  };
  // A newer checkpoint gives the restarts back.
  const Ended ended = killed("killed", "1", "80");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, ContainsRegex("restart 1 of 1 with 2 ranks(.|\n)*restart 1 of 1 with"));
  EXPECT_EQ(metrics("killed"), metrics("whole"));
  // The same command would start over, so 75 would be wrong.
  const pid_t launcher =
      start(saving_each_ten({"--save", "given up", "--max-restarts", "1", "--train-iters",
                             "1000000", "--save-interval", "2000"}));
  wait_for_output("successfully saved checkpoint");
  kill(children(launcher).at(1), SIGKILL);
  while (read("err").find("restart 1 of 1") == std::string::npos || children(launcher).empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(children(launcher).at(0), SIGKILL);
  const Ended given_up = wait(launcher);
  EXPECT_EQ(given_up.status, 1) << given_up.err;
  EXPECT_THAT(given_up.err, testing::EndsWith("give --load 'given up'\n"));
  // A restart could load nothing that is saved, which is said before the first step.
  const Ended lean =
      run(saving_each_ten({"--save", "lean", "--no-save-optim", "--max-restarts", "1"}));
  EXPECT_EQ(lean.status, 2);
  EXPECT_THAT(lean.err, HasSubstr("--max-restarts 1 with --no-save-optim: a restart would find no "
                                  "optimizer in --save: give --no-load-optim too, or "));
  const Ended nothing = killed("nothing", "2", "20");
  EXPECT_EQ(nothing.status, 1) << nothing.err;
  EXPECT_THAT(nothing.err, ContainsRegex("restart 1 of 2 with(.|\n)*restart 2 of 2 with"));
  EXPECT_THAT(nothing.err, testing::EndsWith("no restart is left: 2 without a newer checkpoint "
                                             "between them\n"));
}

// --save has another run's checkpoints, whose steps are higher than any that this run saves. Rank 1
// dies in its first save, or in its second, counted anew in each start.
TEST_F(LostRankTest, ARestartTakesOnlyWhatItsRunHasSaved) {
  std::string left = "other";
  const auto killed = [&](const Words& more, const char* at) {
    std::filesystem::remove_all(folder_ + "/save");
    std::filesystem::copy(folder_ + "/" + left, folder_ + "/save",
                          std::filesystem::copy_options::recursive);
    Words all = saving_each_ten({"--save", "save", "--max-restarts", "1"});
    all.insert(all.end(), more.begin(), more.end());
    return run(all, rank_1_dies("save", at));
  };
  // What the starts have loaded, and the losses of a step in them.
  const auto found = [&](const std::string& pattern) {
    const std::string out = read("out");
    const std::regex expression(pattern);
    std::vector<std::string> all;
    for (std::sregex_iterator at(out.begin(), out.end(), expression), end; at != end; ++at)
      all.push_back((*at)[1]);
    return all;
  };
  const std::string loaded = "loaded checkpoint from ([^\n]*)\n";
  using testing::ElementsAre;
  using testing::IsEmpty;
  ASSERT_EQ(run(saving_each_ten({"--save", "other", "--seed", "99"})).status, 0) << read("err");

  const Ended anew = killed({}, "20");
  EXPECT_EQ(anew.status, 1) << anew.err;
  EXPECT_THAT(anew.err, HasSubstr("save: this run has saved nothing there yet: it begins again\n"));
  EXPECT_THAT(found(loaded), IsEmpty());

  // The tracker names what is gone; no checkpoint there is this run's.
  left = "cut";
  std::filesystem::copy(folder_ + "/other", folder_ + "/cut",
                        std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(folder_ + "/cut/iter_0000060");
  const Ended cut = killed({}, "20");
  EXPECT_THAT(cut.err, HasSubstr("save: this run has saved nothing there yet: it begins again\n"));
  EXPECT_THAT(cut.err, testing::EndsWith("no restart is left: 1 without a newer checkpoint between "
                                         "them\n"));
  // One that cannot be read may be this run's: the start ends with the reason.
  std::ofstream(folder_ + "/cut/iter_0000050/meta.json") << "{";
  EXPECT_THAT(killed({}, "20").err, HasSubstr("iter_0000060: no checkpoint there, though"));
  left = "other";

  EXPECT_EQ(killed({"--load", "other", "--finetune"}, "20").status, 1);
  EXPECT_THAT(found(loaded), testing::Each("other/iter_0000060 at iteration 0 (weights only)"));
  EXPECT_EQ(found(loaded).size(), 2u);

  // A step back is not undone.
  EXPECT_EQ(killed({"--load", "save", "--ckpt-step", "20"}, "20").status, 1);
  EXPECT_THAT(found(loaded), ElementsAre("save/iter_0000020 at iteration 20",
                                         "save/iter_0000020 at iteration 20"));
  // Moments that the command leaves out are not loaded after all.
  const Words without = {"--load", "save", "--no-load-optim", "--train-iters", "80"};
  EXPECT_EQ(killed(without, "20").status, 1);
  std::vector<std::string> losses = found(" iteration +62/.* lm loss: ([^ ]+)");
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0], losses[1]);
  // Nor where the run will have none of its own.
  Words never = without;
  never.push_back("--no-save-optim");
  EXPECT_EQ(killed(never, "10").status, 75);
  losses = found(" iteration +62/.* lm loss: ([^ ]+)");
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0], losses[1]);

  // Its own checkpoints count, although the other run's are newer by number.
  ASSERT_EQ(run(saving_each_ten({"--save", "whole"})).status, 0) << read("err");
  const Ended own = killed({}, "80");
  EXPECT_EQ(own.status, 0) << own.err;
  EXPECT_THAT(found(loaded),
              ElementsAre("save/iter_0000010 at iteration 10", "save/iter_0000020 at iteration 20",
                          "save/iter_0000030 at iteration 30", "save/iter_0000040 at iteration 40",
                          "save/iter_0000050 at iteration 50"));
  EXPECT_EQ(metrics("save"), metrics("whole"));
  EXPECT_TRUE(shards("save", 60) == shards("whole", 60)) << "other weights or moments";
}

// Two network namespaces joined by a pair of interfaces: two hosts as far as TCP can tell. The
// first takes its own name for its loopback, as Debian's /etc/hosts has it.
TEST_F(LostRankTest, TwoHosts) {
  const std::string id = std::to_string(getpid() % 10000), a = "ga" + id, b = "gb" + id;
  const auto shell = [](const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  };
  const std::string names_a = "/etc/netns/" + a, names_b = "/etc/netns/" + b;
  const std::string remove =
      "ip netns del " + a + "; ip netns del " + b + "; rm -r " + names_a + " " + names_b + "; true";
  const bool joined =
      shell("ip netns add " + a) && shell("ip netns add " + b) &&
      shell("mkdir -p " + names_a + " " + names_b) &&
      shell("echo 127.0.1.1 " + a + " | tee " + names_a + "/hosts") &&
      shell("echo 10.77.0.1 " + a + " | tee " + names_b + "/hosts") &&
      shell("ip link add v" + a + " netns " + a + " type veth peer name v" + b + " netns " + b) &&
      shell("ip -n " + a + " addr add 10.77.0.1/24 dev v" + a) &&
      shell("ip -n " + b + " addr add 10.77.0.2/24 dev v" + b) &&
      shell("ip -n " + a + " link set v" + a + " up; ip -n " + a + " link set lo up") &&
      shell("ip -n " + b + " link set v" + b + " up; ip -n " + b + " link set lo up");
  if (!joined) {
    shell(remove);
    GTEST_SKIP() << "this machine makes no network namespaces";
  }
  const auto on = [&](int node, const Words& more) {
    Words words = {"netns",
                   "exec",
                   node == 0 ? a : b,
                   "env",
                   "RANK=" + std::to_string(node),
                   "WORLD_SIZE=2",
                   "MASTER_ADDR=" + a,
                   "MASTER_PORT=29777",
                   TRAINER_PROGRAM};
    for (const std::string& word : base()) words.push_back(word);
    words.insert(words.end(), {"--data-path", "d"});
    for (const std::string& word : plain(more)) words.push_back(word);
    suffix_ = "." + std::to_string(node);
    return start(words, {}, "/usr/sbin/ip", false);
  };
  const Words four = {"--nproc-per-node",
                      "2",
                      "--tensor-model-parallel-size",
                      "2",
                      "--pipeline-model-parallel-size",
                      "2",
                      "--train-iters",
                      "6"};
  pid_t first = on(0, four), second = on(1, four);
  EXPECT_EQ(wait(first).status, 0) << read("err.0");
  EXPECT_EQ(wait(second).status, 0) << read("err.1");
  EXPECT_THAT(read("err.0"), HasSubstr("rank 0 of 4, local rank 0 of 2, node 0 of 2"));
  // The link is cut: both hosts end.
  Words longer = four;
  longer.insert(longer.end(), {"--train-iters", "100000", "--log-interval", "1"});
  first = on(0, longer);
  second = on(1, longer);
  wait_for_output("iteration ", "out.0");
  EXPECT_TRUE(shell("ip -n " + a + " link set v" + a + " down"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(wait(first).status, 1);
  EXPECT_EQ(wait(second).status, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_THAT(read("err.0"), ContainsRegex("rank [23] \\(.*silent for"));
  EXPECT_THAT(read("err.1"), HasSubstr("rank 0 ("));
  suffix_.clear();
  shell(remove);
}

}  // namespace
}  // namespace trainer
