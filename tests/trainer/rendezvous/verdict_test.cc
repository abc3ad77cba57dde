// What a run that has begun is told when a rank dies, falls silent, stands still or reports an
// error, with ranks as threads: who is named, what may take long, and that one verdict ends each
// process once.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/own.h"
#include "tests/trainer/rendezvous/meeting_ranks.h"
#include "trainer/rendezvous/control.h"

namespace rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

class VerdictTest : public ControlTest {};

TEST_F(VerdictTest, ARankThatIsGoneIsNamedWithItsPlace) {
  expect_verdict_ = true;
  const std::vector<Told> told = run(
      3, [](ControlOptions&) {},
      [&](Control& c) {
        c.rank_status().set_resumable(true);
        c.rank_status().enter(Phase::step, 7);
        c.rank_status().begin_call("world all-reduce of 3 fp32 (number 9)");
        std::this_thread::sleep_for(milliseconds(600));
        if (c.rank() == 1) throw MeetingError("gone", true);  // destroyed without leave().
      });
  EXPECT_THAT(told[0].printed,
              "rank 1 (here, cpu): in step 7, last collective: world all-reduce of 3 fp32 (number "
              "9): its connection closed: killed, or crashed");
  EXPECT_EQ(told[0].status, 75);
  EXPECT_EQ(told[2].status, 75);
  EXPECT_EQ(told[2].printed, "");
}

TEST_F(VerdictTest, RankZeroThatIsGoneIsNamedByTheNext) {
  expect_verdict_ = true;
  const std::vector<Told> told = run(
      3, [](ControlOptions&) {},
      [&](Control& c) {
        c.rank_status().enter(Phase::step, 7);
        c.exchange("");
        if (c.rank() == 0) throw MeetingError("gone", true);
      });
  EXPECT_THAT(told[1].printed, HasSubstr("rank 0 (here, cpu): in step 7: its connection closed"));
  EXPECT_EQ(told[1].status, 1);
  EXPECT_EQ(told[2].printed, "");
  EXPECT_EQ(told[2].status, 1);
}

// Rank 2 stays alive but makes no progress; the others wait for it in a collective.
TEST_F(VerdictTest, ARankThatStandsStillIsNamed) {
  expect_verdict_ = true;
  const std::vector<Told> told = run(
      3, [](ControlOptions& o) { o.hang_timeout = std::chrono::seconds(3); },
      [&](Control& c) {
        for (int step = 1; step <= 3; ++step) {
          c.rank_status().enter(Phase::step, step);
          std::this_thread::sleep_for(milliseconds(600));  // rank 0 hears of each step.
          c.exchange("");
        }
        c.rank_status().begin_call("world all-reduce of 3 fp32 (number 9)");
        if (c.rank() == 2) c.rank_status().end_call();
      });
  EXPECT_THAT(told[0].printed,
              AllOf(HasSubstr("rank 2 (here, cpu): in step 3"), HasSubstr("nothing has moved for"),
                    HasSubstr("this rank is the one that the others wait for")));
  EXPECT_EQ(told[1].status, 1);
}

// What a first step takes is not known, wherever the run goes on from: it may compile or connect.
TEST_F(VerdictTest, TheFirstStepMayTakeLongerThanAHang) {
  for (const int first : {1, 1000}) {
    std::atomic<int> ended = 0;
    const std::vector<Told> told = run(
        2, [](ControlOptions& o) { o.hang_timeout = std::chrono::seconds(2); },
        [&](Control& c) {
          c.rank_status().enter(Phase::load, first - 1);
          c.rank_status().enter(Phase::step, first);
          std::this_thread::sleep_for(std::chrono::seconds(4));
          c.exchange("");
          c.leave();
          ++ended;
        });
    EXPECT_EQ(ended, 2) << first;
    for (const Told& t : told) EXPECT_EQ(t.error + t.printed, "") << first;
  }
}

// Nor is what a first evaluation takes, between steps that are known. The second one is.
TEST_F(VerdictTest, TheFirstEvaluationMayTakeLongerThanAHang) {
  const auto told = [&](int slow) {
    return run(
        2, [](ControlOptions& o) { o.hang_timeout = std::chrono::seconds(2); },
        [&](Control& c) {
          int64_t step = 0;
          const auto next = [&](Phase phase) {
            step += phase == Phase::step ? 1 : 0;
            c.rank_status().enter(phase, step);
            c.exchange("");
            std::this_thread::sleep_for(milliseconds(400));  // rank 0 sees each.
          };
          for (int evaluation = 1; evaluation <= 2; ++evaluation) {
            for (int i = 0; i < 3; ++i) next(Phase::step);
            next(Phase::evaluate);
            if (evaluation == slow)
              std::this_thread::sleep_for(std::chrono::seconds(slow == 1 ? 4 : 10));
            next(Phase::step);
          }
          c.leave();
        });
  };
  for (const Told& t : told(1)) EXPECT_EQ(t.error + t.printed, "");
  expect_verdict_ = true;
  EXPECT_THAT(told(2)[0].printed, HasSubstr("in phase evaluation at step 7"));
}

// Ranks that wait for a connection at a start know more than who only sees that nothing moves, and
// wait as long as that.
TEST_F(VerdictTest, WhoGivesUpAtAStartIsHeardFirst) {
  expect_verdict_ = true;
  const std::vector<Told> told = run(
      2, [](ControlOptions& o) { o.hang_timeout = o.start_timeout = std::chrono::seconds(2); },
      [&](Control& c) {
        c.rank_status().enter(Phase::load, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(2700));
        c.report_failure("no connection within 2 s", false);
      });
  EXPECT_THAT(told[0].printed, HasSubstr("no connection within 2 s"));
  EXPECT_EQ(told[1].status, 1);
}

// The first report is from a rank that lost its peer; the more specific one follows and wins.
TEST_F(VerdictTest, TheCauseWinsOverWhoNoticesFirst) {
  expect_verdict_ = true;
  std::vector<std::thread> failing;
  const std::vector<Told> told = run(
      3, [](ControlOptions&) {},
      [&](Control& c) {
        c.exchange("");
        if (c.rank() == 1) {
          std::this_thread::sleep_for(milliseconds(300));
          throw MeetingError("gone", true);
        }
        if (c.rank() == 2) {
          // fail() does not return; its message is sent from here.
          c.rank_status().enter(Phase::step, 2);
          c.report_failure("connection to rank 1 lost", true);
        }
      });
  EXPECT_THAT(told[0].printed, HasSubstr("rank 1 (here, cpu)"));
}

// Each host's output may be read alone, so a host that ends because of another says why.
TEST_F(VerdictTest, AVerdictIsRepeatedOnceOnEachOtherHost) {
  expect_verdict_ = true;
  for (const bool apart : {true, false}) {
    const std::vector<Told> told = run(
        4,
        [&](ControlOptions& o) {
          o.hosts_apart = apart;
          if (o.claim.rank >= 2) o.claim.host = "there";
        },
        [&](Control& c) {
          c.exchange("");
          if (c.rank() == 1) c.report_failure("its disk is full", false);
        });
    const std::string line = "rank 1 (here, cpu): its disk is full";
    EXPECT_EQ(told[0].printed, line);
    EXPECT_EQ(told[1].printed, "");
    EXPECT_EQ(told[2].printed, apart ? "rank 0 (here, cpu) ended the run: " + line : "");
    EXPECT_EQ(told[3].printed, "");
  }
}

// On a host whose first rank is the lost one, the next one speaks.
TEST_F(VerdictTest, ALostFirstRankIsNamedOnItsHostByTheNext) {
  expect_verdict_ = true;
  const std::vector<Told> told = run(
      5,
      [&](ControlOptions& o) {
        o.hosts_apart = true;
        if (o.claim.rank >= 2) o.claim.host = "there";
      },
      [&](Control& c) {
        c.exchange("");
        if (c.rank() == 2) throw MeetingError("gone", true);
      });
  EXPECT_THAT(told[0].printed, HasSubstr("rank 2 (there, cpu): "));
  EXPECT_EQ(told[3].printed, "rank 0 (here, cpu) ended the run: " + told[0].printed);
  EXPECT_EQ(told[4].printed, "");
}

// Rank 1 fails so soon that rank 0 finds the verdict beside the roster, and nothing after it.
TEST_F(VerdictTest, AVerdictThatComesWithTheRosterIsHeard) {
  expect_verdict_ = true;
  const int port = tests::own_ports() + 48;
  std::vector<Told> told;
  std::thread zero([&] {
    told = run(
        2,
        [&](ControlOptions& o) {
          o.launch.address = "127.0.0.1";
          o.launch.port = port;
          o.launch.exact_port = true;
          o.launch.secret = kSecret;
          o.meeting_file.clear();
          if (o.claim.rank == 1) o.claim.rank = -1;
        },
        [](Control&) {});
  });
  std::optional<Comer> one;
  for (int looks = 0; looks < 500 && !(one && one->connected()); ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    one.emplace(port);
  }
  one->say_hello();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 0's own claim has come.
  one->claim(options(1, 2).claim);
  one->say(FrameKind::failed, Packer().number(0).number(2).text("a wrong flag").take());
  zero.join();
  EXPECT_EQ(told[0].printed, "rank 1 (here, cpu): a wrong flag");
  EXPECT_EQ(told[0].status, 2);
}

// Also where rank 0's connection closes after it, while this process still ends.
TEST_F(VerdictTest, AVerdictEndsAProcessOnce) {
  expect_verdict_ = true;
  std::atomic<int> ends[2] = {};
  const std::vector<Told> told = run(
      2,
      [&](ControlOptions& o) {
        o.end_process = [&ends, end = o.end_process, rank = o.claim.rank](int status) {
          ++ends[rank];
          end(status);
        };
      },
      [&](Control& c) {
        if (c.rank() == 0) return c.report_failure("broken", false);
        for (int looks = 0; looks < 6000 && ends[1] == 0; ++looks)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ends[rank], 1) << rank;
    EXPECT_EQ(told[static_cast<size_t>(rank)].status, 1) << rank;
  }
}

TEST_F(VerdictTest, ARanksOwnErrorReachesAll) {
  expect_verdict_ = true;
  const std::vector<Told> told = run(
      3, [](ControlOptions&) {},
      [&](Control& c) {
        c.exchange("");
        if (c.rank() == 2) c.report_failure("step 3: gradient is not finite", false);
      });
  EXPECT_EQ(told[0].printed, "rank 2 (here, cpu): step 3: gradient is not finite");
  for (const Told& t : told) EXPECT_EQ(t.status, 1);
}

}  // namespace
}  // namespace rendezvous
