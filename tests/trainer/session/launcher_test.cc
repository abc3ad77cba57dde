// The launcher with ranks that only end: this test program itself, started as each rank, dies or
// returns as the case says. Real ranks: lost_rank_test.cc.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "tools/cli/exit_status.h"
#include "trainer/session/job.h"
#include "trainer/session/launcher.h"
#include "trainer/session/stop.h"

namespace trainer {
namespace {

using testing::HasSubstr;

int number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

constexpr int kSleeps = 1000;  ///< A rank that only a signal ends, within a minute.

/// Whether the ranks of a host alone have a place to meet: a port of this host, open at rank 0.
bool has_a_place() {
  const char* address = std::getenv("GRISTMILL_ADDRESS");
  const bool listens = fcntl(number("GRISTMILL_LISTENER"), F_GETFD) >= 0;
  return address != nullptr && address == std::string("127.0.0.1") &&
         number("GRISTMILL_PORT") > 0 && (number("GRISTMILL_RANK") > 0 || listens);
}

// Run as a rank alone. In a start of FAKE_WORLD ranks that of device FAKE_DEVICE ends with
// FAKE_STATUS, or by signal -FAKE_STATUS, and the others end with FAKE_OTHERS; fewer are well.
TEST(FakeRank, DISABLED_Ends) {
  if (number("GRISTMILL_NODES") == 1 && !has_a_place()) _exit(exit_status::kUsage);
  if (number("GRISTMILL_WORLD_SIZE") != number("FAKE_WORLD")) _exit(exit_status::kComplete);
  // It hears that the run is over, before it ends in any way.
  const unsigned char end = static_cast<unsigned char>(number("FAKE_OVER"));
  if (number("FAKE_OVER") >= 0 && write(number("GRISTMILL_END_FILE"), &end, 1) != 1)
    _exit(exit_status::kUsage);
  if (number("FAKE_DEAF") != 1) release_stop_signals();  // it takes no notice of them, and dies.
  if (number("FAKE_SAYS") == 1) dprintf(2, "began %s\n", std::getenv("GRISTMILL_BEGAN_MS"));
  const bool fails = number("GRISTMILL_DEVICE") == number("FAKE_DEVICE");
  const int status = number(fails ? "FAKE_STATUS" : "FAKE_OTHERS");
  if (status == kSleeps) std::this_thread::sleep_for(std::chrono::minutes(1));
  if (status < 0) std::raise(-status);
  _exit(status);
}

/// What a run printed and ended with.
struct Outcome {
  int status = 0;
  std::string lines;
};

/// Device 1 of three ends each start with `status`, the others with `others`.
Outcome launch(int status, int others, const LauncherOptions& given) {
  LauncherOptions options = given;
  const int hosts = options.host.world_size;
  options.processes = 3;
  if (others != kSleeps) options.grace = std::chrono::minutes(5);
  options.words = {"rank", "--gtest_also_run_disabled_tests", "--gtest_filter=FakeRank.*"};
  options.fitting = [](int ranks) { return ranks; };
  if (!options.iteration) options.iteration = [] { return 0; };
  setenv("FAKE_WORLD", std::to_string(3 * hosts).c_str(), 1);
  setenv("FAKE_DEVICE", "1", 1);
  setenv("FAKE_STATUS", std::to_string(status).c_str(), 1);
  setenv("FAKE_OTHERS", std::to_string(others).c_str(), 1);
  testing::internal::CaptureStderr();
  cli::Console console("trainer");
  Outcome run;
  run.status = launch_ranks(options, console);
  run.lines = testing::internal::GetCapturedStderr();
  return run;
}

TEST(Launcher, ADeviceThatCannotBeOpenedIsLeftOutWhereThatIsAllowed) {
  const Outcome allowed = launch(exit_status::kNoDevice, exit_status::kFailed,
                                 {.max_restarts = 1, .resumable = true, .allow_fewer = true});
  EXPECT_EQ(allowed.status, exit_status::kComplete);
  EXPECT_EQ(allowed.lines,
            "trainer: device 1: gone: continuing with devices 0, 2\n"
            "trainer: restart 1 of 1 with 2 ranks\n");
  const Outcome not_allowed =
      launch(exit_status::kNoDevice, exit_status::kFailed, {.max_restarts = 1, .resumable = true});
  EXPECT_EQ(not_allowed.status, exit_status::kFailed);
  EXPECT_EQ(not_allowed.lines,
            "trainer: device 1: gone: --allow-fewer-devices continues without it\n");
  EXPECT_EQ(launch(exit_status::kNoDevice, exit_status::kFailed, {}).status, exit_status::kFailed);
}

TEST(Launcher, ADeviceThatFailsTwiceRunningIsLeftOut) {
  for (const int status : {int{exit_status::kAtFault}, -SIGKILL}) {
    const Outcome run = launch(status, exit_status::kRankLost,
                               {.max_restarts = 5, .resumable = true, .allow_fewer = true});
    EXPECT_EQ(run.status, exit_status::kComplete);
    EXPECT_EQ(run.lines,
              "trainer: restart 1 of 5 with 3 ranks\n"
              "trainer: device 1: gone: continuing with devices 0, 2\n"
              "trainer: restart 2 of 5 with 2 ranks\n");
    EXPECT_EQ(launch(status, exit_status::kRankLost, {.max_restarts = 1, .resumable = true}).status,
              exit_status::kResumable);
  }
}

// A device that fails again and again while the training goes on is not the one at fault.
TEST(Launcher, ADeviceThatFailsTwiceWithProgressBetweenIsKept) {
  int64_t iteration = 0;
  LauncherOptions options{.max_restarts = 1, .resumable = true, .allow_fewer = true};
  options.iteration = [&] {
    if (iteration == 3) {  // the third restart goes well.
      setenv("FAKE_STATUS", "0", 1);
      setenv("FAKE_OTHERS", "0", 1);
    }
    return iteration++;
  };
  const Outcome run = launch(-SIGKILL, exit_status::kRankLost, options);
  EXPECT_EQ(run.status, exit_status::kComplete);
  EXPECT_EQ(run.lines,
            "trainer: restart 1 of 1 with 3 ranks\n"
            "trainer: restart 1 of 1 with 3 ranks\n"
            "trainer: restart 1 of 1 with 3 ranks\n");
  // Progress before the first failure alone helps it nothing.
  options.max_restarts = 3;
  int asked = 0;
  options.iteration = [&] { return ++asked > 1 ? 5 : 0; };
  EXPECT_THAT(launch(-SIGKILL, exit_status::kRankLost, options).lines, HasSubstr("device 1: gone"));
}

TEST(Launcher, ARankThatIsKilledBeforeAnybodyHearsOfItIsNamed) {
  const Outcome run = launch(-SIGSEGV, exit_status::kComplete, {.resumable = true});
  EXPECT_EQ(run.status, exit_status::kResumable);
  EXPECT_EQ(run.lines,
            "trainer: rank 1: killed by signal 11 (Segmentation fault), when no other rank could "
            "tell where\n");
  EXPECT_EQ(launch(-SIGSEGV, exit_status::kComplete, {}).status, exit_status::kFailed);
}

TEST(Launcher, OnlyWhatLoadsWhatItSavesIsRepeatable) {
  TrainConfig config;
  EXPECT_FALSE(repeatable(config));
  config.save = "s";
  config.max_restarts = 2;
  EXPECT_FALSE(repeatable(config));
  EXPECT_TRUE(goes_on(config, true));
  EXPECT_FALSE(goes_on(config, false));  // the launcher restarts no ranks.
  config.load = "s/";
  EXPECT_TRUE(repeatable(config));
  config.load = "s";
  EXPECT_TRUE(repeatable(config));
  EXPECT_TRUE(goes_on(config, false));
  TrainConfig from_a_step = config;
  from_a_step.ckpt_step = 5;
  EXPECT_FALSE(repeatable(from_a_step));
  config.finetune = true;
  EXPECT_FALSE(repeatable(config));
  config.save.clear();
  EXPECT_FALSE(goes_on(config, true));
}

TEST(Launcher, AfterTheLastRestartOnlyWhatIsRepeatableEndsAsSuch) {
  const LauncherOptions again{.max_restarts = 1, .resumable = true};
  EXPECT_EQ(launch(-SIGKILL, exit_status::kRankLost, again).status, exit_status::kResumable);
  LauncherOptions not_again = again;
  not_again.to_go_on = "--load s";
  for (const bool saved : {false, true}) {
    not_again.saved = [=] { return saved; };
    const Outcome run = launch(-SIGKILL, exit_status::kRankLost, not_again);
    EXPECT_EQ(run.status, exit_status::kFailed);
    EXPECT_EQ(
        run.lines,
        std::string("trainer: restart 1 of 1 with 3 ranks\n"
                    "trainer: no restart is left: 1 without a newer checkpoint between them\n") +
            (saved ? "trainer: to continue from the last checkpoint, give --load s\n" : ""));
  }
}

// Ranks that were asked to stop have saved; the run's status says whether the same command goes on.
TEST(Launcher, WhatIsStoppedEndsAsItCanBeContinued) {
  LauncherOptions options{.resumable = true};
  EXPECT_EQ(launch(exit_status::kResumable, exit_status::kResumable, options).status,
            exit_status::kResumable);
  options.to_go_on = "--load s";
  EXPECT_EQ(launch(exit_status::kResumable, exit_status::kResumable, options).status,
            exit_status::kFailed);
}

// Ranks that a restart has started end by a signal before they take it over: nothing is lost.
TEST(Launcher, AStopJustAfterARestartEndsAsItCanBeContinued) {
  const auto stopped = [](LauncherOptions options, int number) {
    options.max_restarts = 2;
    int asked = 0;
    options.iteration = [asked, number]() mutable {
      if (++asked != 2) return 4;
      setenv("FAKE_DEVICE", "9", 1);  // all ranks of the next start wait for a signal.
      setenv("FAKE_OTHERS", std::to_string(kSleeps).c_str(), 1);
      std::thread([number] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        kill(getpid(), number);
      }).detach();
      return 4;
    };
    return launch(-SIGKILL, exit_status::kRankLost, options);
  };
  const std::string again = "trainer: restart 1 of 2 with 3 ranks\ntrainer: SIG",
                    line = ": stopped before the ranks had started again";
  Outcome run = stopped({.resumable = true}, SIGTERM);
  EXPECT_EQ(run.status, exit_status::kResumable);
  EXPECT_EQ(run.lines, again + "TERM" + line + "; the same command continues\n");
  run = stopped({.resumable = true, .to_go_on = "--load s"}, SIGUSR1);
  EXPECT_EQ(run.status, exit_status::kFailed);
  EXPECT_EQ(run.lines, again + "USR1" + line +
                           "\ntrainer: to continue from the last checkpoint, give --load s\n");
  EXPECT_EQ(stopped({.resumable = false}, SIGTERM).status, 128 + SIGTERM);
}

// --exit-duration-in-mins counts from the launcher's beginning, whichever start reads it.
TEST(Launcher, EveryStartKnowsWhenTheLauncherBegan) {
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  setenv("FAKE_SAYS", "1", 1);
  const int64_t before = now();
  const Outcome run =
      launch(-SIGKILL, exit_status::kRankLost, {.max_restarts = 1, .resumable = true});
  unsetenv("FAKE_SAYS");
  std::set<int64_t> told;
  int starts = 0;
  for (size_t at = 0; (at = run.lines.find("began ", at)) != std::string::npos; at += 6, ++starts)
    told.insert(std::atoll(run.lines.c_str() + at + 6));
  EXPECT_EQ(starts, 6);
  ASSERT_EQ(told.size(), 1u) << run.lines;
  EXPECT_GE(*told.begin(), before);
  EXPECT_LE(*told.begin(), now());
}

TEST(Launcher, ProgressGivesTheRestartsBack) {
  // Iterations at the start, and after each of the losses.
  std::vector<int64_t> iterations = {4, 4, 8, 6, 7};
  LauncherOptions options{.max_restarts = 2, .resumable = true};
  options.iteration = [&, at = size_t{0}]() mutable { return iterations.at(at++); };
  const Outcome run = launch(-SIGKILL, exit_status::kRankLost, options);
  EXPECT_EQ(run.status, exit_status::kResumable);
  EXPECT_EQ(run.lines,
            "trainer: restart 1 of 2 with 3 ranks\n"
            "trainer: restart 1 of 2 with 3 ranks\n"
            "trainer: restart 2 of 2 with 3 ranks\n"
            "trainer: no restart is left: 2 without a newer checkpoint between them\n");
}

TEST(Launcher, AHostOfSeveralSaysWhichItIs) {
  LauncherOptions options{.max_restarts = 1, .resumable = true};
  options.host = {.launcher = "environment", .rank = 1, .world_size = 2, .nodes = 2};
  const Outcome run = launch(-SIGKILL, exit_status::kResumable, options);
  EXPECT_EQ(run.status, exit_status::kResumable);
  EXPECT_EQ(
      run.lines,
      "trainer: rank 4: killed by signal 9 (Killed), when no other rank of this host could "
      "tell where\n"
      "trainer: node 1 of 2: restart 1 of 1 with 3 ranks\n"
      "trainer: rank 4: killed by signal 9 (Killed), when no other rank of this host could "
      "tell where\n"
      "trainer: node 1 of 2: no restart is left: 1 without a newer checkpoint between them\n");
}

// On several hosts a rank that ends as at the end of the run says that all others have left it: no
// other host would come again.
TEST(Launcher, AKillAfterTheEndOfARunOnSeveralHostsRestartsNothing) {
  LauncherOptions options{.max_restarts = 1, .resumable = true};
  options.host = {.launcher = "environment", .rank = 1, .world_size = 2, .nodes = 2};
  EXPECT_EQ(launch(-SIGKILL, exit_status::kComplete, options).status, exit_status::kComplete);
  options.host = {};
  EXPECT_EQ(launch(-SIGKILL, exit_status::kComplete, options).status, exit_status::kResumable);
}

// The same where no rank of this host ends in order, as on a host with one rank.
TEST(Launcher, ARankThatIsKilledWhenTheRunIsOverRestartsNothing) {
  LauncherOptions options{.max_restarts = 1, .resumable = true};
  options.host = {.launcher = "environment", .rank = 1, .world_size = 2, .nodes = 2};
  for (const bool over : {true, false}) {
    if (over) setenv("FAKE_OVER", "0", 1);
    const Outcome run = launch(-SIGKILL, exit_status::kRankLost, options);
    unsetenv("FAKE_OVER");
    EXPECT_EQ(run.status, over ? exit_status::kComplete : exit_status::kResumable);
    EXPECT_EQ(run.lines, over ? ""
                              : "trainer: node 1 of 2: restart 1 of 1 with 3 ranks\n"
                                "trainer: node 1 of 2: no restart is left: 1 without a newer "
                                "checkpoint between them\n");
  }
  // A run that was stopped is not complete.
  setenv("FAKE_OVER", std::to_string(exit_status::kResumable).c_str(), 1);
  EXPECT_EQ(launch(-SIGKILL, exit_status::kRankLost, options).status, exit_status::kResumable);
  options.to_go_on = "--load s";
  EXPECT_EQ(launch(-SIGKILL, exit_status::kRankLost, options).status, exit_status::kFailed);
  unsetenv("FAKE_OVER");
}

// One rank was asked to stop just as another was lost: there is no next start.
TEST(Launcher, AStopOfOneRankOutlivesALossOfAnother) {
  LauncherOptions options{.max_restarts = 2, .resumable = true};
  EXPECT_EQ(launch(exit_status::kStopped, exit_status::kRankLost, options).lines,
            "trainer: SIGTERM: stopped before the ranks had started again; the same command "
            "continues\n");
  std::vector<std::string> told;
  options.tell_hosts = [&](const std::string& line, bool, const std::function<std::string()>&) {
    told.push_back(line);
  };
  options.host = {.launcher = "environment", .rank = 1, .world_size = 2, .nodes = 2};
  EXPECT_EQ(launch(exit_status::kStopped, exit_status::kRankLost, options).status,
            exit_status::kResumable);
  EXPECT_THAT(told, testing::ElementsAre(
                        "node 1 of 2: SIGTERM: stopped before the ranks had started again"));
}

// One rank was told that the run is over, in a start after the end: the others would wait for it.
TEST(Launcher, ARankThatHearsOfTheEndTakesTheOthersWithIt) {
  LauncherOptions options{
      .max_restarts = 2, .resumable = true, .grace = std::chrono::milliseconds(500)};
  options.host = {.launcher = "environment", .rank = 1, .world_size = 2, .nodes = 2};
  EXPECT_EQ(launch(exit_status::kComplete, kSleeps, options).status, exit_status::kComplete);
}

// Ranks that cannot heed a signal end by the second one.
TEST(Launcher, ASecondSignalEndsWhoHeedsNone) {
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  setenv("FAKE_DEAF", "1", 1);
  std::thread([] {
    for (int i = 0; i < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3300));
      kill(getpid(), SIGTERM);
    }
  }).detach();
  const auto begin = std::chrono::steady_clock::now();
  const Outcome run = launch(kSleeps, kSleeps, {.resumable = true});
  unsetenv("FAKE_DEAF");
  EXPECT_EQ(run.status, 128 + SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// One rank was asked to stop before all had met: the others would wait.
TEST(Launcher, ARankThatStopsAloneTakesTheOthersWithIt) {
  const Outcome run = launch(exit_status::kResumable, kSleeps, {.resumable = true});
  EXPECT_EQ(run.status, exit_status::kResumable);
}

// The other hosts would wait for this one.
TEST(Launcher, AHostWithoutRestartsTellsTheOthersOnce) {
  std::vector<std::string> told;
  LauncherOptions options{.max_restarts = 2, .resumable = true};
  options.tell_hosts = [&](const std::string& line, bool stopped,
                           const std::function<std::string()>& stop) {
    EXPECT_EQ(stop(), "");
    EXPECT_FALSE(stopped);
    told.push_back(line);
  };
  EXPECT_EQ(launch(-SIGKILL, exit_status::kRankLost, options).status, exit_status::kResumable);
  EXPECT_TRUE(told.empty());  // there are no others.
  options.host = {.launcher = "environment", .rank = 1, .world_size = 2, .nodes = 2};
  const Outcome run = launch(-SIGKILL, exit_status::kRankLost, options);
  EXPECT_EQ(run.status, exit_status::kResumable);
  const std::string line =
      "node 1 of 2: no restart is left: 2 without a newer checkpoint between them";
  EXPECT_THAT(told, testing::ElementsAre(line + "; its own messages say why"));
  EXPECT_THAT(run.lines, testing::EndsWith("trainer: " + line + "\n"));
  told.clear();
  EXPECT_EQ(launch(exit_status::kFailed, exit_status::kFailed, options).status,
            exit_status::kFailed);
  EXPECT_TRUE(told.empty());  // every rank has heard of that failure.
  options.max_restarts = 0;
  launch(-SIGKILL, exit_status::kRankLost, options);
  EXPECT_TRUE(told.empty());
}

// What asks this process to end while it tells them ends that, and is how the run has ended.
TEST(Launcher, TellingTheOthersEndsWhenItIsAsked) {
  LauncherOptions options{.max_restarts = 1, .resumable = true};
  options.host = {.launcher = "environment", .rank = 1, .world_size = 2, .nodes = 2};
  std::string heard;
  options.tell_hosts = [&](const std::string&, bool, const std::function<std::string()>& stop) {
    raise(SIGTERM);
    heard = stop();
    EXPECT_EQ(stop(), heard);
  };
  EXPECT_EQ(launch(-SIGKILL, exit_status::kRankLost, options).status, exit_status::kResumable);
  EXPECT_EQ(heard, "Terminated");
}

// The other hosts would wait for this one. The signal comes before its ranks have taken it over, or
// while they end for another reason.
TEST(Launcher, AHostThatIsStoppedBeforeItsRanksHaveStartedTellsTheOthers) {
  const std::string stopped = "node 1 of 2: SIGTERM: stopped before the ranks had started";
  // Blocked before the thread is there, so that only the launcher takes it.
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &before);
  const auto run = [&](int own_status, LauncherOptions options, std::vector<std::string>& told,
                       bool insists = false) {
    options.host = {.launcher = "environment", .rank = 1, .world_size = 2, .nodes = 2};
    options.tell_hosts = [&](const std::string& line, bool by_signal,
                             const std::function<std::string()>& stop) {
      EXPECT_TRUE(by_signal);
      raise(SIGTERM);  // together with the first one: the same request.
      EXPECT_EQ(stop(), "");
      if (insists) {
        std::this_thread::sleep_for(StopRequest::kTogether);
        raise(SIGTERM);
        EXPECT_EQ(stop(), "Terminated");
      }
      told.push_back(line);
    };
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      kill(getpid(), SIGTERM);
    }).detach();
    return launch(own_status, kSleeps, options);
  };
  std::vector<std::string> told;
  Outcome first = run(kSleeps, {.resumable = true}, told, true);
  EXPECT_EQ(first.status, exit_status::kResumable);
  EXPECT_EQ(first.lines, "trainer: " + stopped + "; the same command continues\n");
  EXPECT_THAT(told, testing::ElementsAre(stopped));
  EXPECT_EQ(run(kSleeps, {}, told).status, 128 + SIGTERM);
  EXPECT_THAT(told, testing::ElementsAre(stopped, stopped));
  told.clear();
  first = run(exit_status::kRankLost,
              {.max_restarts = 2, .resumable = true, .grace = std::chrono::seconds(2)}, told);
  EXPECT_EQ(first.status, exit_status::kResumable);
  EXPECT_THAT(told, testing::ElementsAre(stopped + " again"));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Ranks that do not hear of a lost one are ended after a while.
TEST(Launcher, RanksThatHangAfterALossAreEnded) {
  for (const int status : {-SIGKILL, int{exit_status::kAtFault}, int{exit_status::kFailed}}) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome run = launch(status, kSleeps, {.grace = std::chrono::milliseconds(50)});
    EXPECT_NE(run.status, exit_status::kComplete) << status;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << status;
  }
}

TEST(Launcher, WhatIsWrongWithTheCommandIsNotTriedAgain) {
  EXPECT_EQ(launch(2, exit_status::kFailed, {.max_restarts = 3, .resumable = true}).status, 2);
  const Outcome run =
      launch(exit_status::kFailed, exit_status::kFailed, {.max_restarts = 3, .resumable = true});
  EXPECT_EQ(run.status, exit_status::kFailed);
  EXPECT_EQ(run.lines, "");
}

}  // namespace
}  // namespace trainer
