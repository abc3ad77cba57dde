// Many ranks as processes of the trainer program: under its own launcher and under the variables of
// others, and failures of the rendezvous. Ranks that are lost: lost_rank_test.cc.
//
// SPDX-License-Identifier: MIT
#include <sys/stat.h>

#include <cmath>

#include "tests/trainer/run_ranks.h"

namespace trainer {
namespace {

using std::chrono::milliseconds;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST_F(ManyTest, EveryLayoutLearnsTheSame) {
  ASSERT_EQ(run(plain({"--metrics-file", "one", "--nproc-per-node", "1"})).status, 0);
  const std::vector<double> one = losses("one");
  ASSERT_EQ(one.size(), 7u);
  const Words layouts[] = {{"2"},
                           {"2", "--tensor-model-parallel-size", "2", "--sequence-parallel"},
                           {"2", "--pipeline-model-parallel-size", "2"},
                           {std::to_string(most_ranks()), "--tensor-model-parallel-size", "2",
                            "--use-distributed-optimizer"}};
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

// Tokens 61 and 62 are nowhere in the data, and the first step's eight sequences have no more than
// 64 different ones: an embedding that is only looked up has a gradient of zero in their rows. With
// several ranks each element still counts once.
TEST_F(ManyTest, ZerosOfTheGradientAreCountedOnce) {
  const auto zeros = [&](const std::string& save, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--train-iters",
                                      "3",
                                      "--log-interval",
                                      "1",
                                      "--save",
                                      save,
                                      "--hidden-dropout",
                                      "0",
                                      "--attention-dropout",
                                      "0",
                                      "--log-num-zeros-in-grad",
                                      "--untie-embeddings-and-output-weights"};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    const size_t at = ended.out.find("num zeros: ");
    return at == std::string::npos ? -1 : std::atoi(ended.out.c_str() + at + 11);
  };
  const int alone = zeros("one", {});
  EXPECT_GE(alone, 2 * 32);
  EXPECT_LT(alone, 64 * 32);
  EXPECT_EQ(alone % 32, 0) << "whole rows";
  EXPECT_EQ(zeros("two", {"--nproc-per-node", "2"}), alone);
  EXPECT_EQ(zeros("shared", {"--nproc-per-node", "2", "--use-distributed-optimizer"}), alone);
}

TEST_F(ManyTest, MuonSharesWholeMatrices) {
  ASSERT_EQ(run(plain({"--metrics-file", "one", "--nproc-per-node", "1", "--optimizer", "muon",
                       "--muon-fp32-matmul-prec", "highest"}))
                .status,
            0);
  const std::vector<double> one = losses("one");
  const Words layouts[] = {
      {"dist_muon"},
      {"muon", "--zero-stage", "3", "--overlap-grad-reduce", "--overlap-param-gather"},
      {"muon", "--tensor-model-parallel-size", "2", "--muon-tp-mode", "distributed"}};
  for (const Words& layout : layouts) {
    Words words = {
        "--micro-batch-size", "1", "--metrics-file", "many", "--muon-fp32-matmul-prec", "highest",
        "--nproc-per-node",   "2", "--optimizer"};
    words.insert(words.end(), layout.begin(), layout.end());
    const Ended ended = run(plain(words));
    ASSERT_EQ(ended.status, 0) << ended.err;
    const std::vector<double> many = losses("many");
    ASSERT_EQ(many.size(), one.size());
    // fp32, as above.
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(many[i], one[i], 1e-4 * std::abs(one[i])) << layout.back() << " line " << i;
    std::filesystem::remove(folder_ + "/many");
  }
}

TEST_F(ManyTest, WeightsGatheredAsFp8GiveTheSameRun) {
  const auto curve = [&](const std::string& file, const Words& more) {
    Words words = {"--micro-batch-size", "1",  "--nproc-per-node",      "2",
                   "--metrics-file",     file, "--fp8-format",          "hybrid",
                   "--zero-stage",       "1",  "--overlap-param-gather"};
    if (device() == "cuda") words.push_back("--bf16");  // products in FP8 need it there
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = run(plain(words));
    EXPECT_EQ(ended.status, 0) << ended.err;
    return losses(file);
  };
  const std::vector<double> wanted = curve("plain", {});
  ASSERT_EQ(wanted.size(), 7u);
  EXPECT_EQ(curve("gathered", {"--fp8-param-gather"}), wanted);
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
                                            {"MASTER_PORT", std::to_string(port() + 20)}};
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

// What has no effect is named once: by rank 0 where a launcher starts the ranks, else by the
// process that starts them.
TEST_F(ManyTest, OneProcessNamesWhatHasNoEffect) {
  const std::string note = "--use-flash-attn: accepted, no effect here";
  const auto told = [&](const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find(note); at != std::string::npos; at = text.find(note, at + 1))
      ++count;
    return count;
  };
  // The command line is wrong, so that no rank waits for others.
  const Words words = plain({"--use-flash-attn", "--hidden-size", "33", "--nproc-per-node", "1"});
  const auto by = [](const char* variable, int rank) {
    return Variables{{variable, std::to_string(rank)}};
  };
  for (const char* variable :
       {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK"})
    for (const int rank : {0, 1, 10}) {
      const Ended ended = run(words, by(variable, rank));
      EXPECT_EQ(told(ended.err), rank == 0 ? 1 : 0) << variable << " " << rank << ended.err;
    }
  EXPECT_EQ(told(run(words).err), 1);
  // A launcher of this program has said it, whatever started that.
  const Words good = plain({"--use-flash-attn", "--nproc-per-node", "2", "--micro-batch-size", "1",
                            "--train-iters", "4"});
  const Ended ended = run(good);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(told(ended.err), 1) << ended.err;
}

// A process for each host, as Kubernetes, PAI and srun --ntasks-per-node=1 have it: two "hosts"
// here, of two ranks each.
TEST_F(ManyTest, AProcessForEachHostStartsItsRanks) {
  if (most_ranks() < 4) GTEST_SKIP() << "needs four ranks";
  const std::vector<Ended> ended =
      under_launcher(2,
                     plain({"--nproc-per-node", "2", "--tensor-model-parallel-size", "2",
                            "--global-batch-size", "8", "--train-iters", "4"}),
                     [](int host) {
                       Variables variables = gpus_of(host);
                       variables.insert({{"RANK", std::to_string(host)},
                                         {"WORLD_SIZE", "2"},
                                         {"MASTER_ADDR", "127.0.0.1"},
                                         {"MASTER_PORT", std::to_string(port() + 40)}});
                       return variables;
                     });
  EXPECT_EQ(ended[0].status, 0) << ended[0].err;
  EXPECT_EQ(ended[1].status, 0) << ended[1].err;
  EXPECT_THAT(ended[0].err, HasSubstr("rank 0 of 4, local rank 0 of 2, node 0 of 2"));
  EXPECT_EQ(ended[1].err, "");
}

// What describes a host is not compared between hosts.
TEST_F(ManyTest, HostsMayDifferInWhatDescribesThem) {
  const auto host = [&](const char* node, const char* address, const char* threads) {
    const std::string secret = std::string("secret.") + node;
    std::ofstream(folder_ + "/" + secret) << "0123456789abcdef0123456789abcdef\n";
    chmod((folder_ + "/" + secret).c_str(), 0600);
    suffix_ = std::string(".") + node;
    return start(plain({"--nnodes", "2", "--node-rank", node, "--master-addr", address,
                        "--master-port", std::to_string(port() + 80), "--nproc-per-node", "1",
                        "--cpu-threads", threads, "--job-secret-file", secret}),
                 gpus_of(node == std::string("0") ? 0 : 1));
  };
  const pid_t first = host("0", "127.0.0.1", "1"), second = host("1", "localhost", "2");
  EXPECT_EQ(wait(first).status, 0) << read("err.0");
  EXPECT_EQ(wait(second).status, 0) << read("err.1");
  suffix_.clear();
}

TEST_F(ManyTest, WrongMeetingsAreOneMessageInTime) {
  const Words two = plain({"--tensor-model-parallel-size", "2"});
  // For ranks that do not come.
  const auto within = [&](const char* seconds) {
    Words words = two;
    words.insert(words.end(), {"--meeting-timeout-seconds", seconds});
    return words;
  };
  const auto torch = [](int rank) { return torchrun(rank, 2, port()); };
  // A rank never comes.
  std::vector<Ended> ended = under_launcher(1, within("3"), torch);
  EXPECT_EQ(ended[0].status, 1);
  EXPECT_THAT(ended[0].err, HasSubstr("trainer: rank 1 of 2 did not come within 3 s; there are "
                                      "rank 0 ("));
  // Another configuration, reported once.
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
                           {"MASTER_PORT", std::to_string(port() + 60)}};
    variables["GRISTMILL_JOB_SECRET"] = rank == 0 ? "one secret" : "another";
    return variables;
  };
  ended = under_launcher(2, within("12"), secret);
  EXPECT_THAT(ended[0].err,
              HasSubstr("connections from 127.0.0.1 were refused, because they do not know "
                        "this job's secret: another job looks for its rank 0 on ports"));
  EXPECT_EQ(ended[1].status, 1);
  // A command line that cannot be run is reported once, whatever the launcher.
  ended = under_launcher(2, plain({"--tensor-model-parallel-size", "3"}), torch);
  EXPECT_EQ(ended[0].status, 2);
  EXPECT_EQ(ended[1].status, 2);
  EXPECT_THAT(ended[0].err, HasSubstr("--tensor-model-parallel-size 3"));
  EXPECT_EQ(ended[1].err, "");
}

// Counts that differ between hosts: one of 2 ranks there, three of 6 here, whose configuration does
// not even divide. Both hosts are told the cause; if the other one comes late, as one that opens
// its GPUs may, the wrong one says its own error before, and rank 0 gives no other reason after it.
TEST_F(ManyTest, HostsThatStartOtherNumbersOfRanksAreToldSo) {
  int at = 100;
  for (const int wrong : {1, 0}) {
    for (const bool late : {false, true}) {
      at += 20;
      std::vector<pid_t> hosts;
      for (const int node : {wrong, 1 - wrong}) {
        suffix_ = "." + std::to_string(node);
        hosts.push_back(start(
            plain({"--nproc-per-node", node == wrong ? "3" : "1", "--global-batch-size", "8"}),
            {{"RANK", std::to_string(node)},
             {"WORLD_SIZE", "2"},
             {"MASTER_ADDR", "127.0.0.1"},
             {"MASTER_PORT", std::to_string(port() + at)}}));
        if (late && node == wrong)
          wait_for_output("is no multiple of --micro-batch-size", "err" + suffix_);
      }
      for (const pid_t host : hosts) EXPECT_NE(wait(host).status, 0);
      suffix_.clear();
      const bool settled = late && wrong == 0;
      for (const char* err : {"err.0", "err.1"})
        EXPECT_THAT(read(err),
                    HasSubstr(settled ? "is no multiple of --micro-batch-size"
                                      : "start as many processes on each host (--nproc-per-node"))
            << err << ", " << wrong << " is wrong" << (late ? ", the other late" : "");
    }
  }
}

// Where rank 0 prints what ranks tell it, and does not come.
TEST_F(ManyTest, AWrongCommandLineIsSaidWhereNoRankZeroCanSayIt) {
  const pid_t task =
      start(plain({"--hidden-size", "33"}), {{"SLURM_JOB_ID", "77"},
                                             {"SLURM_STEP_ID", "0"},
                                             {"SLURM_PROCID", "1"},
                                             {"SLURM_LOCALID", "0"},
                                             {"SLURM_NODEID", "1"},
                                             {"SLURM_NTASKS", "2"},
                                             {"SLURM_NNODES", "2"},
                                             {"SLURM_STEP_NUM_TASKS", "2"},
                                             {"SLURM_STEP_NUM_NODES", "2"},
                                             {"SLURM_STEP_NODELIST", "localhost,there"}});
  wait_for_output("does not divide --hidden-size 33", "err");
  kill(task, SIGTERM);
  wait(task);
}

TEST_F(ManyTest, AHostThatWasStoppedWhileItLookedForRankZeroGoesOnLooking) {
  const auto host = [&](const std::string& node) {
    suffix_ = "." + node;
    Variables variables = gpus_of(node == "0" ? 0 : 1);
    variables.insert({{"RANK", node}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}});
    return start(plain({"--nproc-per-node", "1", "--meeting-timeout-seconds", "1", "--rendezvous",
                        "file:" + folder_ + "/meeting"}),
                 variables);
  };
  const pid_t second = host("1");
  std::this_thread::sleep_for(milliseconds(1000));
  kill(second, SIGSTOP);
  std::this_thread::sleep_for(milliseconds(2000));
  kill(second, SIGCONT);
  std::this_thread::sleep_for(milliseconds(500));
  const pid_t first = host("0");
  EXPECT_EQ(wait(first).status, 0);
  EXPECT_EQ(wait(second).status, 0) << read("err.1");
}

// RANK=0 for both hosts: one has the port, the other the next, or an address that is not its own.
TEST_F(ManyTest, TwoThatTakeThemselvesForRankZeroAreBothTold) {
  const std::vector<Ended> ended = under_launcher(2, plain({"--train-iters", "4"}), [](int) {
    return Variables{{"RANK", "0"},
                     {"WORLD_SIZE", "2"},
                     {"LOCAL_RANK", "0"},
                     {"LOCAL_WORLD_SIZE", "1"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", std::to_string(port() + 200)}};
  });
  for (const Ended& one : ended) {
    EXPECT_EQ(one.status, 1);
    EXPECT_THAT(one.err, ContainsRegex("rank 0 .* has come twice: also from .* as process [0-9]+: "
                                       "give each process a rank of its own"));
  }
}

// The launcher saw two GPUs when the run began; at this start one rank's GPU is missing.
TEST_F(ManyTest, ADeviceThatIsGoneIsToldToAll) {
  for (const int victim : {0, 1}) {
    const auto own = [&](int rank) {
      Variables variables;
      for (const auto& [name, value] :
           std::initializer_list<std::pair<const char*, int>>{{"RANK", rank},
                                                              {"WORLD_SIZE", 2},
                                                              {"LOCAL_RANK", rank},
                                                              {"LOCAL_SIZE", 2},
                                                              {"NODE", 0},
                                                              {"NODES", 1},
                                                              {"PORT", port() + 80 + victim},
                                                              {"EXACT_PORT", 1},
                                                              {"DEVICE", rank},
                                                              {"DEVICES", rank == victim ? 2 : 0}})
        variables[std::string("GRISTMILL_") + name] = std::to_string(value);
      variables["GRISTMILL_LAUNCHER"] = "trainer";
      variables["GRISTMILL_ADDRESS"] = "127.0.0.1";
      return variables;
    };
    const std::vector<Ended> ended =
        under_launcher(2, plain({"--tensor-model-parallel-size", "2"}), own);
    const size_t gone = static_cast<size_t>(victim);
    EXPECT_EQ(ended[gone].status, 87);
    EXPECT_EQ(ended[1 - gone].status, 1);
    EXPECT_THAT(ended[0].err, ContainsRegex("trainer: rank " + std::to_string(victim) +
                                            " \\([^,]+, GPU " + std::to_string(victim) +
                                            "\\): GPU . is not there: this host has 0 now, and had "
                                            "2 when the run began\n"));
    // Rank 0 waits some seconds for late ranks.
    EXPECT_THAT(ended[1].err, testing::AnyOf("", HasSubstr("rank 0 was not found")));
  }
}

TEST_F(ManyTest, ASecretFileThatOthersMayReadIsRefused) {
  std::ofstream(folder_ + "/secret") << "0123456789abcdef0123456789abcdef\n";
  const Words words = plain({"--job-secret-file", "secret", "--nproc-per-node", "2",
                             "--train-iters", "4", "--tensor-model-parallel-size", "2"});
  chmod((folder_ + "/secret").c_str(), 0644);
  const Ended open = run(words);
  EXPECT_EQ(open.status, 2);
  EXPECT_THAT(open.err, HasSubstr("secret: others than its owner may read it: run chmod 600"));
  chmod((folder_ + "/secret").c_str(), 0600);
  EXPECT_EQ(run(words).status, 0);
}

// To one rank, to the launcher, which tells its ranks, and to all of them at once, as a signal to a
// process group does: each rank then gets it twice.
TEST_F(ManyTest, SigtermToOneOrAllSavesOnce) {
  const Words words = plain({"--nproc-per-node", "2", "--train-iters", "60", "--log-interval", "5",
                             "--eval-interval", "25", "--tensor-model-parallel-size", "2"});
  const auto saving = [&](const std::string& save) {
    Words all = words;
    all.insert(all.end(), {"--save", save, "--load", save});
    return all;
  };
  ASSERT_EQ(run(saving("whole")).status, 0);
  int stops = 0;
  for (const std::string save : {"one", "all", "group"}) {
    for (int start_number = 0;; ++start_number) {
      const pid_t launcher = start(saving(save));
      wait_for_output("consumed samples");  // the line of five iterations, of 60
      const std::vector<pid_t> ranks = children(launcher);
      if (start_number < 3) {
        if (save == "group")
          for (const pid_t rank : ranks) kill(rank, SIGTERM);
        kill(save == "one" && ranks.size() == 2 ? ranks[1] : launcher, SIGTERM);
      }
      const Ended ended = wait(launcher);
      if (ended.status == 0) break;
      ASSERT_EQ(ended.status, 75) << ended.err;
      EXPECT_THAT(ended.err, ContainsRegex("SIGTERM: stopped after step [0-9]+; the same command "
                                           "continues from there"));
      const std::string printed = ended.out;
      EXPECT_EQ(printed.find("saving checkpoint"), printed.rfind("saving checkpoint"));
      ASSERT_LT(++stops, 200);
    }
    EXPECT_EQ(metrics(save), metrics("whole"));
  }
  EXPECT_GT(stops, 2);
}

// A stage of seven layers and the head beside one of a layer: the line names the rank that is
// waited for.
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

}  // namespace
}  // namespace trainer
