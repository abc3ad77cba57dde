// Failing disks under the trainer program: every system call of a save fails in turn, on each rank,
// once or until the next save; the logs' disk is full for a while. Training continues to the bytes
// of an undisturbed run, and a line says which rank failed at what.
//
// SPDX-License-Identifier: MIT
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <sstream>
#include <string_view>

#include "tests/names_on_disk.h"
#include "tests/trainer/run_ranks.h"

namespace trainer {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// One line of the shim's log: what it made fail.
struct Refusal {
  int save = 0, operation = 0;
  std::string name, path;
  int error = 0;
};

class RefusedDiskTest : public ManyTest {
 protected:
  std::string absolute(const std::string& name) const {
    return std::filesystem::canonical(folder_).string() + "/" + name;
  }
  std::vector<Refusal> refusals(const std::string& log) const {
    std::istringstream in(read(log));
    std::vector<Refusal> out;
    for (Refusal r; in >> r.save >> r.operation >> r.name >> r.path >> r.error;) out.push_back(r);
    return out;
  }
  /// metrics.jsonl without its events.
  std::string intervals(const std::string& save) const {
    std::istringstream in(metrics(save));
    std::string out;
    for (std::string line; std::getline(in, line);)
      if (line.find("\"event\"") == std::string::npos) out += line + "\n";
    return out;
  }
};

/// The words of the system for `error` as a message has them.
std::string words_of(int error) {
  std::string text = std::strerror(error);
  text[0] = static_cast<char>(std::tolower(text[0]));
  return text;
}

/// Which rank fails in a sweep, and for how long.
struct Sweep {
  int ranks, victim, first, stride;
  bool once;
};

// A save at every step; the odd ones fail, each at a later system call than the one before.
// MANY_FAULT_EVERY=1 takes every call of every rank, both once and until the next save; otherwise
// some, others with each MANY_FAULT_SEED.
TEST_F(RefusedDiskTest, AtEveryCallOfASaveTrainingGoesOnAndTheCulpritIsNamed) {
  const bool all = from_environment("MANY_FAULT_EVERY", 0) != 0;
  const int seed = static_cast<int>(from_environment("MANY_FAULT_SEED", 1));
  std::vector<Sweep> sweeps;
  for (const int ranks : {3, 1})
    for (int victim = 0; victim < ranks; ++victim)
      for (const bool once : {true, false}) {
        const int stride = all ? 1 : victim == 0 ? 37 : 13;
        if (!all && victim > 0 && once == (victim == 1)) continue;
        sweeps.push_back({ranks, victim, 1 + (seed * 5 + once * 3) % stride, stride, once});
      }
  const auto words = [](const Sweep& sweep, const std::string& save, int saves) {
    return plain({"--nproc-per-node",
                  std::to_string(sweep.ranks),
                  "--global-batch-size",
                  "6",
                  "--micro-batch-size",
                  "1",
                  "--use-distributed-optimizer",
                  "--eval-iters",
                  "0",
                  "--lr-decay-style",
                  "constant",
                  "--log-interval",
                  "1000",
                  "--train-iters",
                  std::to_string(saves),
                  "--save",
                  save,
                  "--save-interval",
                  "1",
                  "--keep-last",
                  "2",
                  "--metrics-file",
                  save + ".jsonl"});
  };
  using Shards = std::map<std::string, std::string>;
  std::map<std::pair<int, int>, Shards> whole;  // by ranks and steps
  for (const Sweep& sweep : sweeps) {
    SCOPED_TRACE(testing::Message()
                 << "rank " << sweep.victim << " of " << sweep.ranks << ", from " << sweep.first
                 << " by " << sweep.stride << (sweep.once ? ", once" : ", to the end of the save"));
    // Rank 0's saves have some 300 calls, the others' some 170: one for each tensor at least.
    const int faults = (sweep.victim == 0 ? 480 : 240) / sweep.stride + 1;
    const std::string save = "save", log = "log";
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      if (entry.path().filename().string().starts_with("log")) std::filesystem::remove(entry);
    std::filesystem::remove_all(folder_ + "/save");
    std::filesystem::remove(folder_ + "/save.jsonl");  // another sweep's
    Variables shim = {{"LD_PRELOAD", FAULT_SHIM},
                      {"FAULT_ROOT", absolute(save)},
                      {"FAULT_AT", std::to_string(sweep.first)},
                      {"FAULT_SAVES", std::to_string(sweep.stride)},
                      {"FAULT_TIMES", sweep.once ? "1" : "1000000"},
                      {"FAULT_ERRNO", "28,5,24,122"},
                      {"FAULT_LOG", absolute(log)}};
    if (sweep.ranks > 1) shim["FAULT_RANK"] = std::to_string(sweep.victim);
    const Ended ended = run(words(sweep, save, 2 * faults), shim);
    ASSERT_EQ(ended.status, 0) << ended.err;
    std::map<int, Refusal> first_of;
    const std::string suffix = sweep.ranks > 1 ? "." + std::to_string(sweep.victim) : "";
    for (const Refusal& r : refusals(log + suffix)) first_of.try_emplace(r.save, r);
    EXPECT_GT(first_of.size(), size_t{2});
    EXPECT_LT(first_of.size(), static_cast<size_t>(faults)) << "the sweep did not reach the end";
    for (int step = 1; step <= 2 * faults; ++step) {
      const std::string number = std::to_string(step);
      const bool whole = ended.out.find("successfully saved checkpoint at iteration " + number +
                                        " ") != std::string::npos;
      const auto found = first_of.find(step);
      if (found == first_of.end()) {
        EXPECT_TRUE(whole) << "step " << step << " was not refused anything\n" << ended.err;
        continue;
      }
      const Refusal& r = found->second;
      const std::string what = r.name + " " + r.path + ": " + words_of(r.error);
      // A call whose failure may lose bytes never counts as a successful save.
      static const std::set<std::string> kNeeded = {"mkdir", "write", "fsync", "rename"};
      if (kNeeded.contains(r.name) && !r.path.ends_with(".old.tmp")) {
        EXPECT_FALSE(whole) << what;
      }
      if (whole) continue;
      const std::string culprit =
          sweep.ranks > 1 ? "rank " + std::to_string(sweep.victim) + " \\([^)]+\\): " : "";
      EXPECT_THAT(ended.err,
                  ContainsRegex("trainer: " + culprit + "save[^\n:]*: (complete, [^\n]*: )?" +
                                "(`ulimit -n` [^\n:]*: )?" + words_of(r.error) +
                                "[^\n]*: the checkpoint of step " + number +
                                " was not written; training continues"))
          << what;
    }
    // The leftovers of a failed save are removed by the next one.
    std::set<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/save"))
      left.insert(entry.path().filename().string());
    char last[32], before[32];
    std::snprintf(last, sizeof last, "iter_%07d", 2 * faults);
    std::snprintf(before, sizeof before, "iter_%07d", 2 * faults - 1);
    EXPECT_EQ(left, (std::set<std::string>{".trainer.lock", "config.toml", last, before,
                                           "latest_checkpointed_iteration.txt"}));
    Shards& undisturbed = whole[{sweep.ranks, 2 * faults}];
    if (undisturbed.empty()) {
      Words once = words(sweep, "whole", 2 * faults);
      once.insert(once.end(), {"--save-interval", "1000"});
      ASSERT_EQ(run(once).status, 0) << read("err");
      undisturbed = shards("whole", 2 * faults);
      std::filesystem::remove_all(folder_ + "/whole");
    }
    EXPECT_TRUE(shards("save", 2 * faults) == undisturbed) << "other weights";
  }
}

// The last save of a run is retried once.
TEST_F(RefusedDiskTest, TheLastSaveIsTriedAgain) {
  for (const char* ranks : {"1", "2"}) {
    const std::string save = std::string("save") + ranks, metrics = save + ".jsonl";
    const Ended ended = run(plain({"--nproc-per-node", ranks, "--train-iters", "5", "--save", save,
                                   "--metrics-file", metrics}),
                            {{"LD_PRELOAD", FAULT_SHIM},
                             {"FAULT_ROOT", absolute(save)},
                             {"FAULT_AT", "1"},
                             {"FAULT_SAVES", "1"},
                             {"FAULT_ERRNO", "28"}});
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(ended.err, ContainsRegex("no space left on device: the checkpoint of step 5 was "
                                         "not written\n"));
    EXPECT_EQ(read(save + "/latest_checkpointed_iteration.txt"), "5");
  }
}

// The disk of both logs fails for some operations.
TEST_F(RefusedDiskTest, LogsWaitForTheirDisk) {
  const auto words = [](const char* ranks, const std::string& logs) {
    return plain({"--nproc-per-node", ranks, "--log-interval", "1", "--metrics-file",
                  logs + "/metrics.jsonl", "--tensorboard-dir", logs + "/tensorboard"});
  };
  for (const char* ranks : {"1", "2"}) {
    const std::string whole = std::string("whole") + ranks;
    ASSERT_EQ(run(words(ranks, whole)).status, 0) << read("err");
    for (const int error : {ENOSPC, EDQUOT, EIO, EFBIG}) {
      const std::string logs = "logs" + std::to_string(error) + ranks;
      const Ended ended = run(words(ranks, logs), {{"LD_PRELOAD", FAULT_SHIM},
                                                   {"FAULT_ROOT", absolute(logs)},
                                                   {"FAULT_AT", error == EIO ? "1" : "6"},
                                                   {"FAULT_TIMES", "9"},
                                                   {"FAULT_ERRNO", std::to_string(error)}});
      EXPECT_EQ(ended.status, 0) << ended.err;
      EXPECT_EQ(metrics(logs), metrics(whole));
      for (const char* file : {"metrics.jsonl", "tensorboard/events[^ ]*"})
        EXPECT_THAT(ended.err,
                    AllOf(ContainsRegex("trainer: " + logs + "/" + file + ": " + words_of(error) +
                                        ": (line|point)s are kept in memory, 16384 KiB at most, "
                                        "and tried again; training continues\n"),
                          ContainsRegex("trainer: " + logs + "/" + file +
                                        ": is written again: [0-9]+ (line|point)s? that waited "
                                        "(is|are) in it, none is lost\n")));
    }
  }
}

// A run's disk fills up, a rank is lost, and the run is started again on the full disk, which has
// room later; then it is asked to stop.
TEST_F(RefusedDiskTest, AFullDiskDoesNotEndARestart) {
  const auto words = [](const std::string& save, const Words& more) {
    Words all =
        plain({"--nproc-per-node", "2", "--train-iters", "1000000", "--lr-decay-style", "constant",
               "--log-interval", "5", "--eval-interval", "1000000", "--save-interval", "20",
               "--max-restarts", "1", "--save", save, "--tensorboard-dir", save + "/tensorboard"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string full = absolute("full");
  const pid_t launcher =
      start(words("save", {"--stop-file", "stop"}), {{"LD_PRELOAD", FAULT_SHIM},
                                                     {"FAULT_ROOT", absolute("save")},
                                                     {"FAULT_WHEN", full},
                                                     {"FAULT_ERRNO", std::to_string(ENOSPC)}});
  wait_for_output("successfully saved checkpoint at iteration 20 ");
  std::ofstream(full) << "";
  wait_for_output("was not written; training continues", "err");
  const std::vector<pid_t> ranks = children(launcher);
  ASSERT_EQ(ranks.size(), size_t{2});
  kill(ranks[1], SIGKILL);
  wait_for_output("save/config.toml: no space left on device: not written; training continues",
                  "err");
  std::filesystem::remove(full);
  wait_for_output(": is written again: ", "err");  // TensorBoard's file, at least.
  std::ofstream(folder_ + "/stop") << "";
  const Ended ended = wait(launcher);
  EXPECT_EQ(ended.status, 1) << ended.err;  // the same command would begin again.
  EXPECT_THAT(ended.err, HasSubstr("restart 1 of 1 with 2 ranks"));
  EXPECT_THAT(ended.err, testing::EndsWith("; --load save continues from there\n"));
  const std::string step = read("save/latest_checkpointed_iteration.txt");
  ASSERT_EQ(run(words("whole", {"--exit-interval", step})).status, ended.status);
  EXPECT_EQ(intervals("save"), intervals("whole"));
  EXPECT_TRUE(shards("save", std::stoi(step)) == shards("whole", std::stoi(step)))
      << "other weights at step " << step;
}

// Standard output is a file, too.
TEST_F(RefusedDiskTest, AFullDiskBehindStdoutEndsNothing) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (chdir(folder_.c_str()) != 0 || !freopen("/dev/full", "w", stdout) ||
        !freopen("err", "w", stderr))
      _exit(126);
    std::vector<std::string> words = base();
    words.insert(words.begin(), TRAINER_PROGRAM);
    words.insert(words.end(), {"--data-path", "d", "--save", "save"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(TRAINER_PROGRAM, argv.data());
    _exit(127);
  }
  const Ended ended = wait(pid);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(read("save/latest_checkpointed_iteration.txt"), "12");
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("trainer: standard output: no space left on device: lines are kept"),
                    ContainsRegex("trainer: standard output: no space left on device: [0-9]+ lines "
                                  "are lost\n")));
}

// `ulimit -f` acts like a full disk and does not end the process.
TEST_F(RefusedDiskTest, ALimitOnTheSizeOfFilesEndsNothing) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = 40000;
  setrlimit(RLIMIT_FSIZE, &limit);
  const Ended ended = run({"--save", "save", "--save-interval", "5"});
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(
      ended.err,
      HasSubstr("file too large: the checkpoint of step 5 was not written; training continues"));
  EXPECT_THAT(ended.out, HasSubstr(" iteration       12/      12 |"));
}

// Nothing gets its name before its bytes, and its directory entries, are on the disk; and the
// tracker is written, and an older checkpoint removed, only after the new one's name is on the
// disk.
TEST_F(RefusedDiskTest, NamesAreGivenToWhatIsOnTheDisk) {
  for (const char* ranks : {"1", "2"}) {
    const std::string save = std::string("save") + ranks, log = std::string("log") + ranks;
    const Ended ended = run(
        plain({"--nproc-per-node", ranks, "--save", save, "--save-interval", "4", "--keep-last",
               "1", "--metrics-file", log + ".jsonl"}),
        {{"LD_PRELOAD", FAULT_SHIM}, {"FAULT_ROOT", absolute(save)}, {"FAULT_LOG", absolute(log)}});
    ASSERT_EQ(ended.status, 0) << ended.err;
    int named = 0;
    for (int rank = 0; rank < std::atoi(ranks); ++rank) {
      std::istringstream in(read(log + (ranks[0] == '1' ? "" : "." + std::to_string(rank))));
      const auto relies = [](const std::string& path, const std::string&) {
        return !path.ends_with(".safetensors");
      };
      EXPECT_THAT(torn_by_a_power_cut(in, relies, named), testing::IsEmpty()) << "rank " << rank;
    }
    EXPECT_GE(named, 3 * 2 + 3 * 3 + 2);
  }
}

}  // namespace
}  // namespace trainer
