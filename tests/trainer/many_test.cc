// Many ranks as processes of the trainer program: under its own launcher and under the variables of
// others, wrong meetings, and ranks that die or stand still, at any moment. Longer than 500 lines:
// one fixture, whose cases share how ranks are started, found and ended.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <set>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

class ManyTest : public ProgramTest {
 protected:
  /// Without dropout a run's losses do not depend on the layout by more than rounding.
  static Words plain(const Words& more) {
    Words words = {"--hidden-dropout", "0", "--attention-dropout", "0", "--hang-timeout-seconds",
                   "2", "--distributed-timeout-minutes", "0.1", "--num-attention-heads", "4",
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
  static int port() { return 20000 + getpid() % 20000; }

  /// Processes that `launcher` has started.
  static std::vector<pid_t> children(pid_t launcher) {
    std::ifstream in("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) +
                     "/children");
    std::vector<pid_t> out;
    for (pid_t pid; in >> pid;) out.push_back(pid);
    return out;
  }
  /// Waits until the run has printed `text`, at most 20 s.
  void wait_for_output(const std::string& text) const {
    for (int i = 0; i < 2000 && read("out").find(text) == std::string::npos; ++i)
      std::this_thread::sleep_for(milliseconds(10));
    EXPECT_THAT(read("out"), HasSubstr(text));
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

TEST_F(ManyTest, EveryLayoutLearnsTheSame) {
  ASSERT_EQ(run(plain({"--metrics-file", "one"})).status, 0);
  const std::vector<double> one = losses("one");
  ASSERT_EQ(one.size(), 7u);
  const Words layouts[] = {
      {"2"},
      {"2", "--tensor-model-parallel-size", "2", "--sequence-parallel"},
      {"2", "--pipeline-model-parallel-size", "2"},
      {"4", "--tensor-model-parallel-size", "2", "--use-distributed-optimizer"}};
  for (const Words& layout : layouts) {
    Words words = {"--micro-batch-size", "1", "--metrics-file", "many", "--nproc-per-node"};
    words.insert(words.end(), layout.begin(), layout.end());
    const Ended ended = run(plain(words));
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("launched by trainer: rank 0 of " + layout[0]));
    const std::vector<double> many = losses("many");
    ASSERT_EQ(many.size(), one.size());
    // fp32: 12 steps of sums in another order.
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(many[i], one[i], 1e-4 * std::abs(one[i])) << layout.back() << " line " << i;
    std::filesystem::remove(folder_ + "/many");
  }
}

TEST_F(ManyTest, EachLauncherIsKnownAndOnlyRankZeroSpeaks) {
  struct Case {
    const char* name;
    std::function<Variables(int)> variables;
  };
  const std::string job = std::to_string(getpid());
  const Case cases[] = {{"torchrun", [](int rank) { return torchrun(rank, 2, port()); }},
                        {"srun",
                         [&](int rank) {
                           return Variables{{"SLURM_JOB_ID", job},
                                            {"SLURM_STEP_ID", "0"},
                                            {"SLURM_PROCID", std::to_string(rank)},
                                            {"SLURM_LOCALID", std::to_string(rank)},
                                            {"SLURM_NODEID", "0"},
                                            {"SLURM_NTASKS", "2"},
                                            {"SLURM_STEP_NUM_TASKS", "2"},
                                            {"SLURM_STEP_NUM_NODES", "1"},
                                            {"SLURM_STEP_NODELIST", "localhost"}};
                         }},
                        {"Open MPI",
                         [&](int rank) {
                           return Variables{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                            {"OMPI_COMM_WORLD_SIZE", "2"},
                                            {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
                         }},
                        {"MPICH",
                         [&](int rank) {
                           return Variables{{"PMI_RANK", std::to_string(rank)},
                                            {"PMI_SIZE", "2"},
                                            {"MPI_LOCALRANKID", std::to_string(rank)},
                                            {"MPI_LOCALNRANKS", "2"}};
                         }},
                        {"environment", [](int rank) {
                           return Variables{{"RANK", std::to_string(rank)},
                                            {"WORLD_SIZE", "2"},
                                            {"LOCAL_RANK", std::to_string(rank)},
                                            {"MASTER_ADDR", "localhost"},
                                            {"MASTER_PORT", std::to_string(port() + 100)}};
                         }}};
  for (const Case& launcher : cases) {
    const std::vector<Ended> ended = under_launcher(
        2, plain({"--tensor-model-parallel-size", "2", "--train-iters", "4"}), launcher.variables);
    EXPECT_EQ(ended[0].status, 0) << launcher.name << ended[0].err;
    EXPECT_EQ(ended[1].status, 0) << launcher.name << ended[1].err;
    EXPECT_THAT(ended[0].err, HasSubstr(std::string("launched by ") + launcher.name +
                                        ": rank 0 of 2, local rank 0 of 2, node 0 of 1"));
    EXPECT_EQ(ended[1].out + ended[1].err, "") << launcher.name;
  }
}

// A process for each host, as Kubernetes, PAI and srun --ntasks-per-node=1 have it: two "hosts"
// here, of two ranks each.
TEST_F(ManyTest, AProcessForEachHostStartsItsRanks) {
  const std::vector<Ended> ended =
      under_launcher(2,
                     plain({"--nproc-per-node", "2", "--tensor-model-parallel-size", "2",
                            "--global-batch-size", "8", "--train-iters", "4"}),
                     [](int rank) {
                       return Variables{{"RANK", std::to_string(rank)},
                                        {"WORLD_SIZE", "2"},
                                        {"MASTER_ADDR", "127.0.0.1"},
                                        {"MASTER_PORT", std::to_string(port() + 200)}};
                     });
  EXPECT_EQ(ended[0].status, 0) << ended[0].err;
  EXPECT_EQ(ended[1].status, 0) << ended[1].err;
  EXPECT_THAT(ended[0].err, HasSubstr("rank 0 of 4, local rank 0 of 2, node 0 of 2"));
  EXPECT_EQ(ended[1].err, "");
}

TEST_F(ManyTest, WrongMeetingsAreOneMessageInTime) {
  const Words two =
      plain({"--tensor-model-parallel-size", "2", "--distributed-timeout-minutes", "0.05"});
  const auto torch = [](int rank) { return torchrun(rank, 2, port()); };
  // A rank never comes.
  std::vector<Ended> ended = under_launcher(1, two, torch);
  EXPECT_EQ(ended[0].status, 1);
  EXPECT_THAT(ended[0].err, HasSubstr("trainer: rank 1 of 2 did not come within 3 s; there are "
                                      "rank 0 ("));
  // Another configuration, told once.
  suffix_ = ".1";
  Words other = two;
  other.insert(other.end(), {"--lr", "2e-2"});
  const pid_t second = start(other, torch(1));
  suffix_ = ".0";
  const pid_t first = start(two, torch(0));
  EXPECT_EQ(wait(first).status, 1);
  EXPECT_EQ(wait(second).status, 1);
  suffix_.clear();
  EXPECT_THAT(read("err.0"), HasSubstr("has another configuration: --lr 0.02 there, --lr 0.01 on "
                                       "rank 0"));
  EXPECT_EQ(read("err.1"), "");
  // Another secret.
  const auto secret = [&](int rank) {
    Variables variables = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port() + 300)}};
    variables["GRISTMILL_JOB_SECRET"] = rank == 0 ? "one secret" : "another";
    return variables;
  };
  ended = under_launcher(2, two, secret);
  EXPECT_THAT(ended[0].err, HasSubstr("connections were refused, because they do not know"));
  EXPECT_EQ(ended[1].status, 1);
  // A command line that cannot be honoured is told once, whatever the launcher.
  ended = under_launcher(2, plain({"--tensor-model-parallel-size", "3"}), torch);
  EXPECT_EQ(ended[0].status, 2);
  EXPECT_EQ(ended[1].status, 2);
  EXPECT_THAT(ended[0].err, HasSubstr("--tensor-model-parallel-size 3"));
  EXPECT_EQ(ended[1].err, "");
}

TEST_F(ManyTest, ASecretFileThatOthersMayReadIsRefused) {
  std::ofstream(folder_ + "/secret") << "0123456789abcdef0123456789abcdef\n";
  const Words words = plain({"--job-secret-file", "secret", "--nproc-per-node", "2",
                             "--train-iters", "4", "--tensor-model-parallel-size", "2"});
  chmod((folder_ + "/secret").c_str(), 0644);
  const Ended open = run(words);
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.err, HasSubstr("secret: others than its owner may read it: say chmod 600"));
  chmod((folder_ + "/secret").c_str(), 0600);
  EXPECT_EQ(run(words).status, 0);
}

// Every rank, killed and stopped, at moments from the start to the middle of steps, evaluations and
// saves. All processes end soon, one line names the rank, and the status tells that going on is
// safe.
TEST_F(ManyTest, ARankThatDiesOrStopsIsNamed) {
  const Words words = plain({"--nproc-per-node",
                             "2",
                             "--tensor-model-parallel-size",
                             "2",
                             "--train-iters",
                             "100000",
                             "--save",
                             "s",
                             "--load",
                             "s",
                             "--save-interval",
                             "2",
                             "--eval-interval",
                             "3",
                             "--log-interval",
                             "1",
                             "--keep-last",
                             "1",
                             "--hang-timeout-seconds",
                             "1"});
  int round = 0;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const size_t victim : {0u, 1u}) {
      for (int moment = 0; moment < 2; ++moment) {
        const pid_t launcher = start(words);
        wait_for_output("iteration ");
        std::this_thread::sleep_for(milliseconds(20 + 37 * round++));
        const std::vector<pid_t> ranks = children(launcher);
        ASSERT_EQ(ranks.size(), 2u);
        kill(ranks[victim], signal);
        const auto begin = std::chrono::steady_clock::now();
        const Ended ended = wait(launcher);
        const std::string what = "signal " + std::to_string(signal) + " to rank " +
                                 std::to_string(victim) + ": " + ended.err;
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << what;
        EXPECT_EQ(ended.status, 75) << what;
        EXPECT_THAT(ended.err,
                    AllOf(HasSubstr("trainer: rank " + std::to_string(victim) + " ("),
                          HasSubstr(signal == SIGKILL ? "its connection closed: killed, or crashed"
                                                      : "stopped, or its machine hangs")));
        for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0) << what;
      }
    }
  }
}

// A rank of two or four dies or stands still at an operation on files of its saves. The others end,
// one line names it, and the same command again ends in the bytes of a run that nobody touched.
// MANY_FAULT_ROUNDS and MANY_FAULT_SEED ask for more and for others.
TEST_F(ManyTest, LostInASaveTheSameCommandGoesOnToTheSameBits) {
  const auto from_environment = [](const char* name, unsigned otherwise) {
    const char* text = std::getenv(name);
    return text ? static_cast<unsigned>(std::atoi(text)) : otherwise;
  };
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
                 "1",
                 "--hang-timeout-seconds",
                 "3"};
    if (ranks == 4) all.insert(all.end(), {"--tensor-model-parallel-size", "2"});
    return plain(all);
  };
  for (const unsigned ranks : {2u, 4u})
    ASSERT_EQ(run(words(ranks, "whole" + std::to_string(ranks))).status, 0) << read("err");
  int lost = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    std::mt19937 random(seed + round);
    const unsigned ranks = round % 3 == 2 ? 4 : 2, victim = round % ranks;
    // Rank 0 also names folders and writes what there is once.
    const unsigned at = 1 + static_cast<unsigned>(random() % (victim == 0 ? 50 : 24));
    const int signal = random() % 3 == 0 ? SIGSTOP : SIGKILL;
    const std::string save = "save" + std::to_string(round),
                      whole = "whole" + std::to_string(ranks);
    SCOPED_TRACE("MANY_FAULT_SEED=" + std::to_string(seed + round) + ": rank " +
                 std::to_string(victim) + " of " + std::to_string(ranks) + ", signal " +
                 std::to_string(signal) + " at operation " + std::to_string(at));
    const auto begin = std::chrono::steady_clock::now();
    const Ended first =
        run(words(ranks, save),
            {{"LD_PRELOAD", FAULT_SHIM},
             {"FAULT_ROOT", std::filesystem::canonical(folder_).string() + "/" + save},
             {"FAULT_RANK", std::to_string(victim)},
             {"FAULT_SIGNAL", std::to_string(signal)},
             {"FAULT_AT", std::to_string(at)}});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
    if (first.status != 0) {
      ++lost;
      EXPECT_EQ(first.status, 75) << first.err;
      EXPECT_THAT(first.err,
                  ContainsRegex("trainer: rank " + std::to_string(victim) +
                                " \\([^,]+, cpu\\): in (step [0-9]+|phase [a-z]+ at step "
                                "[0-9]+)"));
    }
    const Ended second = run(words(ranks, save));
    ASSERT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(metrics(save), metrics(whole));
    EXPECT_TRUE(shards(save, 12) == shards(whole, 12)) << "other weights or moments";
  }
  EXPECT_GT(lost, 0);
}

TEST_F(ManyTest, SigtermToOneOrAllSavesOnce) {
  const Words words = plain({"--nproc-per-node", "2", "--train-iters", "40", "--log-interval", "10",
                             "--eval-interval", "25", "--tensor-model-parallel-size", "2"});
  const auto saving = [&](const std::string& save) {
    Words all = words;
    all.insert(all.end(), {"--save", save, "--load", save});
    return all;
  };
  ASSERT_EQ(run(saving("whole")).status, 0);
  int stops = 0;
  for (const bool one : {true, false}) {
    const std::string save = one ? "one" : "all";
    for (int start_number = 0;; ++start_number) {
      const pid_t launcher = start(saving(save));
      wait_for_output("number of parameters");
      std::this_thread::sleep_for(milliseconds(250));
      const std::vector<pid_t> ranks = children(launcher);
      if (start_number < 3) kill(one && ranks.size() == 2 ? ranks[1] : launcher, SIGTERM);
      const Ended ended = wait(launcher);
      if (ended.status == 0) break;
      if (ended.status == 128 + SIGTERM) continue;  // before the handlers stood.
      ASSERT_EQ(ended.status, 75) << ended.err;
      EXPECT_THAT(ended.err, ContainsRegex("SIGTERM: stopped after step [0-9]+; the same command "
                                           "goes on from there"));
      const std::string printed = ended.out;
      EXPECT_EQ(printed.find("saving checkpoint"), printed.rfind("saving checkpoint"));
      ASSERT_LT(++stops, 200);
    }
    EXPECT_EQ(metrics(save), metrics("whole"));
  }
  EXPECT_GT(stops, 1);
}

TEST_F(ManyTest, RestartsGoOnByThemselves) {
  const Words words = plain({"--nproc-per-node", "2", "--train-iters", "60", "--log-interval", "10",
                             "--eval-interval", "1000", "--save-interval", "10",
                             "--tensor-model-parallel-size", "2"});
  Words whole = words, killed = words;
  whole.insert(whole.end(), {"--save", "whole"});
  killed.insert(killed.end(), {"--save", "killed", "--max-restarts", "3"});
  ASSERT_EQ(run(whole).status, 0);
  const pid_t launcher = start(killed);
  for (const char* at :
       {"saved checkpoint at iteration 10 ", "saved checkpoint at iteration 30 "}) {
    wait_for_output(at);
    const std::vector<pid_t> ranks = children(launcher);
    ASSERT_EQ(ranks.size(), 2u);
    kill(ranks[1], SIGKILL);
    std::this_thread::sleep_for(milliseconds(300));
  }
  const Ended ended = wait(launcher);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("restart 1 of 3 with 2 ranks"),
                               HasSubstr("restart 2 of 3 with 2 ranks")));
  EXPECT_EQ(metrics("killed"), metrics("whole"));
}

// A stage of seven layers and the head beside one of a layer: the line names who is waited for.
TEST_F(ManyTest, TheIterationLineNamesTheSlowestRank) {
  const Ended ended = run(
      plain({"--nproc-per-node", "2", "--pipeline-model-parallel-size", "2", "--num-layers", "8",
             "--decoder-first-pipeline-num-layers", "1", "--hidden-size", "64", "--metrics-file",
             "m", "--tensorboard-dir", "t", "--eval-interval", "1000", "--log-interval", "12"}));
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(
      ended.out,
      ContainsRegex("slowest rank: 1 \\| slowest rank cost \\(ms\\): [0-9.]+ \\| exposed "
                    "communication \\(ms\\): [0-9.]+ \\| waiting for data \\(ms\\): [0-9.]+ "
                    "\\| peak memory \\(MiB\\): [0-9.]+ \\| planned memory "
                    "\\(MiB\\): [0-9.]+ \\|"));
  const nlohmann::json record = nlohmann::json::parse(read("m").substr(0, read("m").find('\n')));
  EXPECT_EQ(record.at("slowest_rank"), 1);
  const double step = record.at("seconds_per_iteration"),
               cost = record.at("slowest_rank_cost_seconds"),
               communication = record.at("exposed_communication_seconds");
  // Its work is most of a step; of two ranks it costs at most half of that.
  EXPECT_GT(cost, 0);
  EXPECT_LT(cost, step / 2);
  EXPECT_LT(communication, step);
  EXPECT_GT(record.at("peak_memory_bytes"), 0);
  EXPECT_LE(record.at("peak_memory_bytes"), record.at("planned_memory_bytes"));
}

TEST_F(ManyTest, ARanksOwnErrorIsOneLine) {
  const Ended ended = run(plain({"--nproc-per-node", "2", "--tensor-model-parallel-size", "2",
                                 "--vocab-size", "50", "--eod-id", "49"}));
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, ContainsRegex("trainer: rank [01] \\([^)]*\\): d.bin: document [0-9]+"));
  const std::string::size_type first = ended.err.find("d.bin");
  EXPECT_EQ(ended.err.find("d.bin", first + 1), std::string::npos) << ended.err;
}

// Two network namespaces joined by a pair of interfaces: two hosts as far as TCP can tell.
TEST_F(ManyTest, TwoHosts) {
  const std::string id = std::to_string(getpid() % 10000), a = "ga" + id, b = "gb" + id;
  const auto shell = [](const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  };
  const std::string remove = "ip netns del " + a + "; ip netns del " + b + "; true";
  const bool joined =
      shell("ip netns add " + a) && shell("ip netns add " + b) &&
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
                   "MASTER_ADDR=10.77.0.1",
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
  // The cable is cut: both hosts end.
  Words longer = four;
  longer.insert(longer.end(), {"--train-iters", "100000", "--log-interval", "1"});
  first = on(0, longer);
  second = on(1, longer);
  suffix_ = ".0";
  for (int i = 0; i < 2000 && read("out.0").find("iteration ") == std::string::npos; ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(shell("ip -n " + a + " link set v" + a + " down"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(wait(first).status, 1);
  EXPECT_EQ(wait(second).status, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_THAT(read("err.0"), ContainsRegex("rank [23] \\(.*silent for"));
  EXPECT_THAT(read("err.1"), HasSubstr("rank 0 ("));
  suffix_.clear();
  shell(remove);
}

}  // namespace
}  // namespace trainer
