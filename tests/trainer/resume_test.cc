// The guarantee of checkpoints: a run that is killed at any moment and started again with the same
// command ends with the same losses and the same weights, bit for bit, as an undisturbed one. Here
// it is killed at every file operation of its saves, by the fault shim; stopped by signals,
// deadlines and files; and run with a failing disk.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "tests/trainer/run_program.h"

namespace trainer {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class ResumeTest : public ProgramTest {
 protected:
  static std::vector<std::string> saving(const std::string& save,
                                         const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"--save",          save, "--load",      save,
                                      "--save-interval", "5",  "--keep-last", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // The fault shim on the files of a --save folder.
  std::map<std::string, std::string> faults(const std::string& save,
                                            std::map<std::string, std::string> fault) const {
    fault["LD_PRELOAD"] = FAULT_SHIM;
    fault["FAULT_ROOT"] = std::filesystem::canonical(folder_).string() + "/" + save;
    return fault;
  }
  void expect_same(const std::string& save, const std::string& what) const {
    EXPECT_EQ(metrics(save), metrics("whole")) << what;
    EXPECT_TRUE(tensors(save, 12) == tensors("whole", 12)) << what;
    EXPECT_EQ(read(save + "/latest_checkpointed_iteration.txt"), "12") << what;
  }
};

TEST_F(ResumeTest, KilledAtEveryOperationOfItsSaves) {
  ASSERT_EQ(run(saving("whole")).status, 0);
  ASSERT_GT(tensors("whole", 12).size(), 100000u);
  int points = 0;
  for (;; ++points) {
    const std::string save = "killed";
    const std::string at = "killed at operation " + std::to_string(points + 1);
    std::filesystem::remove_all(folder_ + "/" + save);
    const Ended first = run(saving(save), faults(save, {{"FAULT_AT", std::to_string(points + 1)}}));
    if (first.status == 0) break;
    ASSERT_EQ(first.status, 128 + SIGKILL) << at << first.err;
    const Ended second = run(saving(save));
    ASSERT_EQ(second.status, 0) << at << second.err;
    expect_same(save, at);
    for (const std::filesystem::directory_entry& entry :
         std::filesystem::directory_iterator(folder_ + "/" + save)) {
      EXPECT_FALSE(entry.path().filename().string().ends_with(".tmp")) << at << entry.path();
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(points, 40);
}

// A run that goes on from a save does not log the steps before it again. (Without --no-async-save
// training may have come to step 10 before it is killed in the save of step 5.)
TEST_F(ResumeTest, TensorBoardHasEachStepBeforeASave) {
  const Ended killed =
      run(saving("board", {"--tensorboard-dir", "tb", "--log-interval", "100", "--no-async-save"}),
          faults("board", {{"FAULT_FROM", "iter_0000005"}, {"FAULT_AT", "1"}}));
  ASSERT_EQ(killed.status, 128 + SIGKILL) << killed.err;
  std::string points;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/tb"))
    points += read("tb/" + entry.path().filename().string());
  int losses = 0;
  for (size_t at = 0; (at = points.find("lm loss vs samples", at) + 1) != 0;) ++losses;
  EXPECT_EQ(losses, 5);
}

TEST_F(ResumeTest, KilledAtRandomTimes) {
  ASSERT_EQ(run(saving("whole")).status, 0);
  for (int round = 0; round < 10; ++round) {
    const std::string save = "random" + std::to_string(round);
    int kills = 0;
    for (;; ++kills) {
      const pid_t pid = start(saving(save));
      std::this_thread::sleep_for(std::chrono::milliseconds(20 + 17 * round + 40 * kills));
      kill(pid, SIGKILL);
      if (wait(pid).status == 0) break;
      ASSERT_LT(kills, 100);
    }
    expect_same(save, "round " + std::to_string(round));
  }
}

TEST_F(ResumeTest, AFinishedRunWithoutItsTrackerGetsItBack) {
  ASSERT_EQ(run(saving("whole")).status, 0);
  ASSERT_EQ(run(saving("kept")).status, 0);
  // What a kill after the rename of the first saved folder leaves.
  std::filesystem::remove(folder_ + "/kept/latest_checkpointed_iteration.txt");
  ASSERT_EQ(run(saving("kept")).status, 0);
  expect_same("kept", "tracker removed");
}

TEST_F(ResumeTest, SignalsSaveAndTheSameCommandGoesOn) {
  const std::vector<std::string> longer = {"--train-iters",   "400", "--log-interval",  "50",
                                           "--eval-interval", "150", "--save-interval", "1000"};
  ASSERT_EQ(run(saving("whole", longer)).status, 0);
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const std::string save = "signal" + std::to_string(signal);
    int stops = 0;
    for (;;) {
      const pid_t pid = start(saving(save, longer));
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      kill(pid, signal);
      const Ended ended = wait(pid);
      if (ended.status == 0) break;
      if (ended.status == 128 + signal) continue;  // before the handlers were set.
      ASSERT_EQ(ended.status, 75) << ended.err;
      EXPECT_THAT(ended.err, HasSubstr(signal == SIGTERM ? "SIGTERM: stopped after step"
                                                         : "SIGUSR1: stopped after step"));
      EXPECT_THAT(ended.err, HasSubstr("the same command continues from there"));
      ASSERT_LT(++stops, 200);
    }
    EXPECT_EQ(metrics(save), metrics("whole"));
    EXPECT_TRUE(tensors(save, 400) == tensors("whole", 400));
  }
}

TEST_F(ResumeTest, Fp8GoesOnWithItsScales) {
  for (const std::vector<std::string>& recipe :
       {std::vector<std::string>{"--fp8-amax-history-len", "4", "--fp8-amax-compute-algo", "max"},
        std::vector<std::string>{"--fp8-recipe", "tensorwise"},
        std::vector<std::string>{"--fp8-recipe", "rowwise"},
        std::vector<std::string>{"--fp8-recipe", "blockwise"}}) {
    std::vector<std::string> flags = {"--fp8-format", "hybrid"};
    flags.insert(flags.end(), recipe.begin(), recipe.end());
    std::filesystem::remove_all(folder_ + "/whole");
    std::filesystem::remove_all(folder_ + "/fp8");
    const Ended whole = run(saving("whole", flags));
    ASSERT_EQ(whole.status, 0) << whole.err;
    flags.insert(flags.end(), {"--exit-interval", "3"});
    for (int status = 75, starts = 0; status == 75; ++starts) {
      status = run(saving("fp8", flags)).status;
      ASSERT_LT(starts, 10);
    }
    expect_same("fp8", recipe.back());
  }
  const Ended refused =
      run({"--fp8-format", "hybrid", "--seq-length", "12", "--micro-batch-size", "1"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--micro-batch-size 1 times --seq-length 12: "
                                     "--fp8-format needs a multiple of 16"));
}

TEST_F(ResumeTest, Fp8FlagsReachTheModel) {
  const auto losses = [&](std::vector<std::string> flags, const std::string& save) {
    EXPECT_EQ(run(saving(save, flags)).status, 0) << save;
    return metrics(save);
  };
  const auto plain = losses({}, "plain"), hybrid = losses({"--fp8-hybrid"}, "hybrid"),
             e4m3 = losses({"--fp8-e4m3"}, "e4m3");
  EXPECT_NE(hybrid, plain);
  EXPECT_NE(e4m3, hybrid);
  EXPECT_EQ(losses({"--fp8-format", "hybrid"}, "hybrid2"), hybrid);
  EXPECT_EQ(losses({"--fp8-format", "e4m3"}, "e4m3_2"), e4m3);
  const std::vector<std::vector<std::string>> others = {
      {"--fp8-recipe", "tensorwise"},
      {"--fp8-recipe", "rowwise"},
      {"--fp8-recipe", "rowwise", "--no-fp8-power-of-two-scales"},
      {"--fp8-recipe", "blockwise"},
      {"--fp8-recipe", "rowwise", "--no-fp8-wgrad"},
      {"--fp8-margin", "8"},
      {"--no-fp8-wgrad"},
      {"--first-last-layers-bf16", "--num-layers-at-end-in-bf16", "0"},
      {"--first-last-layers-bf16", "--num-layers-at-start-in-bf16", "0"},
      {"--fp8-amax-history-len", "4", "--fp8-amax-compute-algo", "max"}};
  std::set<std::string> all;
  for (size_t i = 0; i < others.size(); ++i) {
    std::vector<std::string> flags = {"--fp8-format", "hybrid"};
    flags.insert(flags.end(), others[i].begin(), others[i].end());
    const auto got = losses(flags, "other" + std::to_string(i));
    EXPECT_NE(got, hybrid) << others[i][0];
    EXPECT_NE(got, plain) << others[i][0];
    EXPECT_TRUE(all.insert(got).second) << others[i].back();
  }
  EXPECT_EQ(losses({"--fp8-format", "hybrid", "--first-last-layers-bf16"}, "both"), plain);
  for (const char* recipe : {"rowwise", "blockwise"}) {
    const auto plan_for = [&](const char* gpu) {
      return run({"--fp8-format", "hybrid", "--fp8-recipe", recipe, "--bf16", "--dry-run",
                  "--device", "auto", "--gpu", gpu});
    };
    EXPECT_EQ(plan_for("h200").status, 0);
    const Ended refused = plan_for("l40s");
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(refused.err,
              "trainer: --fp8-format hybrid: compute capability 8.9 has one scale a tensor "
              "(delayed, tensorwise): scales of rows and blocks need 9.0 (Hopper)\n");
  }
}

TEST_F(ResumeTest, ExitIntervalStopFileAndDeadline) {
  ASSERT_EQ(run(saving("whole")).status, 0);
  int starts = 0;
  for (Ended ended{75, "", ""}; ended.status == 75; ++starts) {
    ended = run(saving("interval", {"--exit-interval", "3"}));
    ASSERT_TRUE(ended.status == 75 || ended.status == 0) << ended.err;
    ASSERT_LT(starts, 10);
  }
  EXPECT_EQ(starts, 4);
  expect_same("interval", "exit interval");
  std::ofstream(folder_ + "/stop");
  const Ended stopped = run(saving("file", {"--stop-file", "stop"}));
  EXPECT_EQ(stopped.status, 75);
  EXPECT_THAT(stopped.err,
              HasSubstr("stop file stop (older than this run: remove it): stopped after step 0"));
  const Ended lone = run({"--save", "a lone", "--exit-interval", "3"});
  EXPECT_EQ(lone.status, 1) << "the same command would begin again";
  EXPECT_THAT(lone.err, HasSubstr("stopped after step 3; --load 'a lone' continues from there"));
  const Ended tuned = run({"--save", "a lone", "--load", "a lone", "--finetune", "--no-load-optim",
                           "--exit-interval", "3"});
  EXPECT_EQ(tuned.status, 1);
  EXPECT_THAT(tuned.err, HasSubstr("; --load 'a lone' without --finetune and --no-load-optim "
                                   "continues from there"));
  // What has no optimizer is continued by the flag that says so.
  const std::vector<std::string> weights = {"--no-save-optim", "--exit-interval", "3"};
  const Ended lean = run(saving("lean", weights));
  EXPECT_EQ(lean.status, 1);
  EXPECT_THAT(lean.err, HasSubstr("; --load lean with --no-load-optim continues from there"));
  for (const char* step : {"6", "9"}) {
    const Ended again =
        run(saving("lean", {"--no-save-optim", "--no-load-optim", "--exit-interval", "3"}));
    EXPECT_EQ(again.status, 75) << again.err;
    EXPECT_THAT(again.err, HasSubstr(std::string("stopped after step ") + step +
                                     "; the same command continues from there"));
  }
  const Ended nothing = run({"--save", "nothing", "--stop-file", "stop"});
  EXPECT_EQ(nothing.status, 1);
  EXPECT_THAT(nothing.err, HasSubstr("stopped after step 0, before anything was saved"));
  const Ended late = run(saving("late", {"--exit-duration-in-mins", "0.0000001"}));
  EXPECT_EQ(late.status, 75);
  // It counts from the beginning of the launcher, here when the machine was started.
  const std::map<std::string, std::string> later = {
      {"GRISTMILL_LAUNCHER", "trainer"}, {"GRISTMILL_RANK", "0"},
      {"GRISTMILL_WORLD_SIZE", "1"},     {"GRISTMILL_LOCAL_RANK", "0"},
      {"GRISTMILL_LOCAL_SIZE", "1"},     {"GRISTMILL_NODE", "0"},
      {"GRISTMILL_NODES", "1"},          {"GRISTMILL_PORT", "0"},
      {"GRISTMILL_EXACT_PORT", "0"},     {"GRISTMILL_BEGAN_MS", "1"}};
  EXPECT_EQ(run(saving("later", {"--exit-duration-in-mins", "0.5"}), later).status, 75)
      << read("err");
  // Nothing was saved, so the run cannot continue: status 1, or 0 where a number of steps was asked
  // for.
  EXPECT_EQ(run({"--stop-file", "stop"}).status, 1);
  const Ended measured = run({"--exit-interval", "3", "--log-interval", "1"});
  EXPECT_EQ(measured.status, 0) << measured.err;
  EXPECT_THAT(measured.out, HasSubstr(" iteration        3/      12 |"));
  EXPECT_THAT(measured.out, testing::Not(HasSubstr(" iteration        4/")));
}

// A checkpoint's own folder means that checkpoint, for ever: what is saved in it is never loaded.
TEST_F(ResumeTest, ACheckpointsOwnFolderIsNoPlaceToSave) {
  ASSERT_EQ(run({"--save", "save"}).status, 0);
  const std::string folder = "save/iter_0000012";
  const Ended ended = run({"--load", folder, "--save", folder, "--train-iters", "20"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err,
            "trainer: --save save/iter_0000012: is a checkpoint itself: name the folder "
            "that holds it, or another\n");
}

// A run writes its configuration beside its checkpoints, but not over one that somebody wrote, or
// has edited: the same command continues there.
TEST_F(ResumeTest, AConfigurationThatNoRunWroteStays) {
  const std::string note =
      "trainer: s/config.toml: is not as a run writes it: it stays, and this "
      "run's is not written\n";
  std::filesystem::create_directories(folder_ + "/s");
  const Words words = {"--save", "s", "--load", "s", "--exit-interval", "1"};
  for (const char* text : {"seed = 7\n", "# mine\nseed = 7\n", "[Model]\n# mine\nseed = 7\n"}) {
    std::ofstream(folder_ + "/s/config.toml") << text;
    Words named = words;
    named.insert(named.end(), {"--config", "s/config.toml"});
    const Ended ended = run(named);
    EXPECT_EQ(ended.status, 75) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(note));
    EXPECT_EQ(read("s/config.toml"), text);
  }
  std::filesystem::remove(folder_ + "/s/config.toml");
  EXPECT_THAT(run(words).err, testing::Not(HasSubstr("config.toml")));
  const std::string own = read("s/config.toml");
  std::string crlf, commented = own;
  for (const char c : own) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  commented.replace(commented.find("\nlog-interval"), 1, "\n# ");
  for (const std::string& text : {crlf, commented, own + "# mine\n", "# mine\n" + own}) {
    std::ofstream(folder_ + "/s/config.toml") << text;
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, 75) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(note)) << text;
    EXPECT_TRUE(read("s/config.toml") == text);
    const Ended dry = run({"--config", "s/config.toml", "--dry-run"});
    EXPECT_EQ(dry.status, 0) << dry.err;
    EXPECT_THAT(dry.err, testing::Not(HasSubstr("config.toml")));
  }
}

// An iter_* folder is one step, and what is offered instead of a damaged one names its root.
TEST_F(ResumeTest, ACheckpointsOwnFolderIsOneStep) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  const Ended other = run({"--load", "s/iter_0000012", "--ckpt-step", "6"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.err, HasSubstr("trainer: s/iter_0000012: is the checkpoint of step 12, not of "
                                   "step 6: name the folder that holds it\n"));
  EXPECT_EQ(run({"--load", "s/iter_0000006", "--ckpt-step", "6"}).status, 0) << read("err");
  const std::string model = folder_ + "/s/iter_0000012/rank_00000_model.safetensors";
  std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(model)) - 100);
  file.put('\x55');
  file.close();
  const char* folder = "s/iter_0000012/";
  const auto offers = [&](const std::string& offer) {
    EXPECT_THAT(run({"--load", folder}).err, HasSubstr(": go on from it with " + offer + "\n"));
    EXPECT_THAT(run({"--load", "s"}).err, HasSubstr(": go on from it with --ckpt-step 6\n"));
  };
  offers("--load s --ckpt-step 6");
  folder = "./s/iter_0000012";
  std::filesystem::resize_file(model, 100);
  offers("--load s --ckpt-step 6");
}

// Another program's meta.json makes no checkpoint of a folder. One that may be a damaged record
// does.
TEST_F(ResumeTest, AForeignRecordIsNoCheckpoint) {
  std::filesystem::create_directories(folder_ + "/s");
  std::ofstream(folder_ + "/s/meta.json") << R"({"name": "a data set", "files": 3})";
  const Words words = {"--save", "s", "--load", "s", "--exit-interval", "6"};
  EXPECT_EQ(run(words).status, 75) << read("err");
  EXPECT_EQ(run(words).status, 0) << read("err");
  EXPECT_THAT(read("out"), HasSubstr("loaded checkpoint from s/iter_0000006 "));
  std::ofstream(folder_ + "/s/meta.json") << std::string(99, '\0');
  const Ended damaged = run(words);
  EXPECT_EQ(damaged.status, 2);
  EXPECT_THAT(damaged.err, HasSubstr("--save s: is a checkpoint itself"));
}

// Metrics on what is open already are written from where it stands, behind whatever it has.
TEST_F(ResumeTest, MetricsGoBehindTheMessagesOnOneDescriptor) {
  const auto lines = [](const std::string& text, const char* begin) {
    std::istringstream in(text);
    int count = 0;
    for (std::string line; std::getline(in, line);) count += line.starts_with(begin);
    return count;
  };
  const Words words = {"--save", "s", "--load", "s", "--metrics-file", "/dev/stderr"};
  Words stopped = words;
  stopped.insert(stopped.end(), {"--exit-interval", "8"});
  for (const Words& command : {stopped, words}) {
    const Ended ended = run(command);
    EXPECT_THAT(ended.status, testing::AnyOf(0, 75)) << ended.err;
    const bool first = ended.status == 75;
    EXPECT_EQ(lines(ended.err, "trainer: "), first ? 2 : 0) << ended.err;
    EXPECT_EQ(lines(ended.err, "{\"iteration\": "), first ? 2 : 1) << ended.err;
  }
  // What was closed at the start takes nothing: that is said before the first step.
  const auto closed = [&](const std::string& more) {
    std::string line = TRAINER_PROGRAM;
    for (const std::string& word : base()) line += " " + word;
    return wait(start({"-c", "exec " + line + " --data-path d " + more}, {}, "/bin/sh", false));
  };
  Ended ended = closed("--metrics-file /dev/stderr 2>&-");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.out, "");
  ended = closed("--metrics-file /dev/stdout >&-");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.err, "trainer: /dev/stdout: bad file descriptor\n");
  ended = closed(">&-");
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("standard output: bad file descriptor"));
  EXPECT_THAT(ended.err, testing::Not(HasSubstr("success")));
}

// --save has another run's checkpoints, and this one begins elsewhere: they stay, and so do the
// lines of metrics up to where it begins, which is said. A command that goes on from --save
// removes what it goes on from.
TEST_F(ResumeTest, OlderCheckpointsOfOthersStay) {
  const auto folders = [&](const std::string& save) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/" + save))
      if (const std::string name = entry.path().filename(); name.starts_with("iter_"))
        names.insert(name.substr(9));
    return names;
  };
  const Words two = {"--save-interval", "2", "--keep-last", "1"};
  const auto with = [&](Words words) {
    words.insert(words.end(), two.begin(), two.end());
    return words;
  };
  ASSERT_EQ(run({"--save", "base", "--exit-interval", "4"}).status, 1);
  ASSERT_EQ(
      run({"--save", "s", "--save-interval", "3", "--exit-interval", "6", "--seed", "9"}).status,
      1);
  const Ended other = run(with({"--load", "base", "--save", "s"}));
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("s/metrics.jsonl: its lines of iterations 1 to 4 stay: "));
  EXPECT_THAT(other.err,
              HasSubstr("trainer: s: has 2 checkpoints of other runs: --keep-last 1 counts and "
                        "removes only this run's; with --load s it counts all\n"));
  EXPECT_THAT(folders("s"), testing::ElementsAre("003", "012"));
  ASSERT_EQ(run({"--save", "own", "--load", "own", "--save-interval", "3", "--exit-interval", "6"})
                .status,
            75);
  EXPECT_EQ(run(with({"--load", "own", "--save", "own"})).status, 0);
  EXPECT_THAT(folders("own"), testing::ElementsAre("012"));
}

// A checkpoint that was moved to another disk, with a link in its place, is still one of its
// folder; and so is one that is named itself. --keep-last then says what it leaves there.
TEST_F(ResumeTest, ALinkedCheckpointIsOfTheFolderThatItIsIn) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "3", "--exit-interval", "6"}).status, 1);
  std::filesystem::create_directories(folder_ + "/far");
  std::filesystem::rename(folder_ + "/s/iter_0000006", folder_ + "/far/moved");
  std::filesystem::create_directory_symlink("../far/moved", folder_ + "/s/iter_0000006");
  const char* const others = "checkpoints of other runs";
  const Ended again = run({"--load", "s", "--save", "s", "--keep-last", "9", "--train-iters", "8",
                           "--override-opt_param-scheduler"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("loaded checkpoint from s/iter_0000006 at iteration 6"));
  EXPECT_THAT(again.err, testing::Not(HasSubstr("another run's")));
  EXPECT_THAT(again.err, testing::Not(HasSubstr(others)));
  for (const char* named : {"s/iter_0000006", "s/iter_0000006/"}) {
    const Ended itself = run({"--load", named, "--save", "s", "--keep-last", "1", "--train-iters",
                              "9", "--override-opt_param-scheduler"});
    EXPECT_EQ(itself.status, 0) << itself.err;
    EXPECT_THAT(itself.err, testing::Not(HasSubstr("another run's"))) << named;
    EXPECT_THAT(itself.err, HasSubstr(others)) << named;
  }
}

TEST_F(ResumeTest, AVocabularyThatRanksCannotDivideIsNamed) {
  ASSERT_EQ(
      run({"--save", "s", "--vocab-size", "65", "--make-vocab-size-divisible-by", "1"}).status, 0);
  const Ended two = run({"--load", "s", "--use-checkpoint-args", "--nproc-per-node", "2",
                         "--tensor-model-parallel-size", "2"});
  EXPECT_EQ(two.status, 2);
  EXPECT_THAT(two.err, HasSubstr("s/iter_0000012: its vocabulary has 65 rows with padding, which 2 "
                                 "tensor-parallel ranks cannot divide: convert it with "));
}

// However a damaged checkpoint is named, the one before it in its folder is offered.
TEST_F(ResumeTest, BesideADamagedCheckpointThePreviousIsFound) {
  ASSERT_EQ(run({"--save", "s", "--save-interval", "6"}).status, 0);
  const std::string shard = folder_ + "/s/iter_0000012/rank_00000_model.safetensors";
  const auto offered = [&](const char* damage) {
    for (const char* name : {"s", "s/iter_0000012", "s/iter_0000012/", "s/./iter_0000012/."})
      for (const Words& more : {Words(), Words{"--use-checkpoint-args"}, Words{"--auto-layout"}}) {
        Words words = {"--load", name};
        words.insert(words.end(), more.begin(), more.end());
        EXPECT_THAT(run(words).err, HasSubstr("the previous whole checkpoint is of step 6: "))
            << name << ", " << damage << testing::PrintToString(more);
      }
  };
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(shard)) - 100);
  file.put('\x55');
  file.close();
  offered("a byte that differs");
  std::filesystem::remove(shard);
  offered("a file that is gone");
}

// A link to the folder of --save, which the run makes: the same command continues.
TEST_F(ResumeTest, ALinkToWhereItWillSaveIsTheSameFolder) {
  std::filesystem::create_directory_symlink("later", folder_ + "/early");
  const Words words = {"--load", "early", "--save", "later", "--exit-interval", "4"};
  EXPECT_EQ(run(words).status, 75) << read("err");
  EXPECT_EQ(run(words).status, 75) << read("err");
  EXPECT_THAT(read("out"), HasSubstr("loaded checkpoint from early/iter_0000004 "));
}

// A disk that is full for one save: the run continues, says so, and ends as if nothing had
// happened.
TEST_F(ResumeTest, FullDiskLosesACheckpointButNoStep) {
  ASSERT_EQ(run(saving("whole")).status, 0);
  for (const int at : {20, 24, 28, 32}) {
    const std::string save = "full" + std::to_string(at);
    const Ended ended = run(saving(save), faults(save, {{"FAULT_AT", std::to_string(at)},
                                                        {"FAULT_TIMES", "2"},
                                                        {"FAULT_ERRNO", std::to_string(ENOSPC)}}));
    EXPECT_EQ(ended.status, 0) << at << ended.err;
    EXPECT_THAT(ended.err,
                ContainsRegex(
                    "no space left on device[^\n]*: the checkpoint of step (5|10) was not written; "
                    "training continues"))
        << at;
    EXPECT_TRUE(tensors(save, 12) == tensors("whole", 12)) << at;
  }
}

// A run that has a checkpoint needs no new config.toml; one without has nothing to lose yet.
TEST_F(ResumeTest, AFullDiskAtTheStartStopsOnlyARunThatHasNotBegun) {
  const std::string root = std::filesystem::canonical(folder_).string();
  std::map<std::string, std::string> full = {{"LD_PRELOAD", FAULT_SHIM},
                                             {"FAULT_WHEN", root + "/d.idx"},  // always
                                             {"FAULT_ERRNO", std::to_string(ENOSPC)}};
  for (const char* save : {"full", "first"}) {
    full["FAULT_ROOT"] = root + "/" + save + "/.config.toml";
    const bool goes_on = save == std::string("full");
    if (goes_on) {
      ASSERT_EQ(run(saving(save, {"--exit-interval", "7"})).status, 75);
    }
    const Ended ended = run(saving(save), full);
    EXPECT_THAT(ended.err, HasSubstr(std::string(save) + "/config.toml: no space left on device"));
    EXPECT_EQ(ended.status, goes_on ? 0 : 1) << ended.err;
    EXPECT_EQ(ended.err.find("not written; training continues") != std::string::npos, goes_on);
    EXPECT_EQ(ended.out.find("iteration       12/") != std::string::npos, goes_on);
  }
}

// With ramp-up, a blend, gradient accumulation and a log interval split in two.
TEST_F(ResumeTest, RampUpAndBlend) {
  make_dataset("e", 80, 37);
  data_path_ = {"0.3", "d", "0.7", "e"};
  const std::vector<std::string> flags = {
      "--global-batch-size", "8", "--rampup-batch-size", "2", "2", "40", "--lr-warmup-iters", "0"};
  const Ended whole = run(saving("whole", flags));
  ASSERT_EQ(whole.status, 0) << whole.err;
  // 2 for 13.3 samples, 4 for 13.3, 6 for 13.3, then 8: steps of 2 2 2 2 2 2 2 4 4 4 6 6.
  EXPECT_THAT(whole.out,
              HasSubstr("iteration        4/      12 | consumed samples:            8 |"));
  EXPECT_THAT(whole.out,
              HasSubstr("iteration        8/      12 | consumed samples:           18 |"));
  EXPECT_THAT(whole.out, HasSubstr("global batch size:     6 |"));
  std::vector<std::string> twice = flags;
  twice.insert(twice.end(), {"--exit-interval", "7"});
  ASSERT_EQ(run(saving("twice", twice)).status, 75);
  ASSERT_EQ(run(saving("twice", twice)).status, 0);
  expect_same("twice", "ramp-up and blend");
}

// Samples are all alike, so that --seed is that of dropout alone.
TEST_F(ResumeTest, DropoutGoesOnWithTheCheckpointsSeedUnlessThatIsNotWanted) {
  indexed::IndexedDatasetBuilder builder(folder_ + "/same", {.dtype = indexed::DType::uint16});
  for (int d = 0; d < 40; ++d) builder.add_document(std::vector<int32_t>(50, 7));
  builder.finish();
  data_path_ = {"same"};
  const auto with_seed = [&](const std::string& save, const char* seed, const char* more) {
    const Ended first = run(saving(save, {"--seed", "5", "--exit-interval", "7"}));
    EXPECT_EQ(first.status, 75) << first.err;
    std::vector<std::string> words = saving(save, {"--seed", seed});
    if (more != nullptr) words.push_back(more);
    const Ended second = run(words);
    EXPECT_EQ(second.status, 0) << second.err;
    return tensors(save, 12);
  };
  ASSERT_EQ(run(saving("whole", {"--seed", "5"})).status, 0);
  const std::string whole = tensors("whole", 12);
  EXPECT_TRUE(with_seed("other", "9", nullptr) == whole);
  EXPECT_TRUE(with_seed("same_seed", "5", "--no-load-rng") == whole);
  const std::string anew = with_seed("anew", "9", "--no-load-rng");
  EXPECT_FALSE(anew == whole);
  EXPECT_TRUE(with_seed("anew_again", "9", "--no-load-rng") == anew);
}

TEST_F(ResumeTest, MuonGoesOnWithItsMomentum) {
  const std::vector<std::string> flags = {"--optimizer", "muon", "--muon-nesterov"};
  ASSERT_EQ(run(saving("whole", flags)).status, 0);
  std::vector<std::string> twice = flags;
  twice.insert(twice.end(), {"--exit-interval", "7"});
  ASSERT_EQ(run(saving("twice", twice)).status, 75);
  ASSERT_EQ(run(saving("twice", twice)).status, 0);
  expect_same("twice", "Muon");
  EXPECT_THAT(read("whole/iter_0000012/rank_00000_optimizer.safetensors"),
              HasSubstr("momentum_buffer.decoder.layers.0.mlp.linear_fc1.weight"));

  // Another optimizer has no such state; that is an error before anything is read.
  ASSERT_EQ(run(saving("adam")).status, 0);
  const std::vector<std::string> longer = {"--train-iters", "14", "--optimizer", "muon",
                                           "--override-opt_param-scheduler"};
  const Ended refused = run(saving("adam", longer));
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.err,
            "trainer: --optimizer muon: adam/iter_0000012 has no momentum_buffer of "
            "decoder.layers.0.self_attention.linear_qkv.weight: it was written with --optimizer "
            "adam; --no-load-optim takes only its weights\n");
  const Ended back = run(saving(
      "whole", {"--train-iters", "14", "--optimizer", "adam", "--override-opt_param-scheduler"}));
  EXPECT_EQ(back.status, 2);
  EXPECT_THAT(back.err,
              HasSubstr("--optimizer adam: whole/iter_0000012 has no exp_avg of "
                        "decoder.layers.0.self_attention.linear_qkv.weight: it was written with "
                        "--optimizer muon;"));
  std::vector<std::string> weights = longer;
  weights.push_back("--no-load-optim");
  const Ended taken = run(saving("adam", weights));
  EXPECT_EQ(taken.status, 0) << taken.err;
}

}  // namespace
}  // namespace trainer
