// The end of a run: it is over once the work of all ranks is done. Ranks that are lost before that
// end it for all; those that are lost after it, or whose host starts them again then, find out that
// it is over. And a launcher that starts its ranks no more tells the other hosts.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/own.h"
#include "tests/trainer/rendezvous/meeting_ranks.h"

namespace rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

class EndTest : public ControlTest {
 protected:
  /// Each rank on a host of its own.
  void on_hosts(ControlOptions& o) const {
    o.launch.address = "127.0.0.1";
    o.launch.port = port_;
    o.launch.exact_port = true;
    o.launch.secret = kSecret;
    o.launch.nodes = o.claim.world_size;
    o.launch.node = o.claim.rank;
    o.meeting_file.clear();
    o.comes_back = true;
  }
  /// A rank that has come, has done its work, and will not hear that the others have.
  Comer rank_that_leaves(int rank, int size) const {
    for (int looks = 0; looks < 500; ++looks) {
      Comer comer(port_);
      if (comer.connected()) {
        comer.say_hello();
        comer.claim(options(rank, size).claim);
        EXPECT_EQ(comer.hear().value_or(Frame{}).kind, FrameKind::roster);
        comer.say(FrameKind::leave, "");
        return comer;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
    ADD_FAILURE() << "rank 0 does not listen";
    return Comer(port_);
  }

  int port_ = tests::own_ports() + 40;
};

TEST_F(EndTest, ItIsOverForAllOrForNone) {
  std::atomic<int> done = 0, over = 0, early = 0;
  const std::vector<Told> told = run(
      4,
      [&](ControlOptions& o) {
        o.over = [&] {
          ++over;
          if (done != 4) ++early;
        };
      },
      [&](Control& c) {
        std::this_thread::sleep_for(milliseconds(100 * c.rank()));
        ++done;
        c.leave();
        EXPECT_GE(over, 1 + (c.rank() != 0));
      });
  EXPECT_EQ(over, 4);
  EXPECT_EQ(early, 0);
  for (const Told& t : told) EXPECT_EQ(t.error + t.printed, "");
}

// Its launcher starts it again, so the others must come again, too. Rank 2 works until the verdict:
// did it leave when the connection closes, the server might read that first, and all would be done.
TEST_F(EndTest, ARankThatIsLostWhileTheOthersStillWorkIsALostRank) {
  expect_verdict_ = true;
  std::atomic<bool> judged = false;
  std::atomic<int> over = 0;
  std::vector<Told> told;
  std::thread ranks([&] {
    told = run(
        3,
        [&](ControlOptions& o) {
          on_hosts(o);
          o.over = [&] { ++over; };
          o.resumable = true;
          if (o.claim.rank == 0)
            o.print = [&, print = o.print](const std::string& line) {
              print(line);
              judged = true;
            };
          o.claim.rank -= o.claim.rank == 1 ? 10 : 0;
        },
        [&](Control& c) {
          if (c.rank() == 2)
            for (int waits = 0; !judged && waits < 20'000; ++waits)
              std::this_thread::sleep_for(milliseconds(1));
          c.leave();
        });
  });
  {
    const Comer one = rank_that_leaves(1, 3);
    std::this_thread::sleep_for(milliseconds(300));
  }
  ranks.join();
  EXPECT_EQ(over, 0);
  EXPECT_THAT(told[0].printed, HasSubstr("rank 1 (here, cpu): in phase start at step 0: its "
                                         "connection closed: killed, or crashed"));
  EXPECT_EQ(told[0].status, 75);
  EXPECT_EQ(told[2].status, 75);
}

TEST_F(EndTest, RankZeroThatIsLostBeforeAllHaveDoneTheirWorkEndsThoseThatHave) {
  expect_verdict_ = true;
  const std::vector<Told> told = run(
      3, [](ControlOptions& o) { o.resumable = true; },
      [&](Control& c) {
        c.exchange("");
        if (c.rank() == 0) {
          std::this_thread::sleep_for(milliseconds(300));
          throw MeetingError("gone", true);
        }
        if (c.rank() == 1) c.leave();
      });
  EXPECT_THAT(told[1].printed, HasSubstr("rank 0 (here, cpu): in step 0: its connection closed"));
  for (const size_t rank : {1, 2}) EXPECT_EQ(told[rank].status, 75) << rank;
}

// Rank 1 is killed between the end of the run and the message that says so; its host starts it
// again.
TEST_F(EndTest, AHostThatComesBackAfterTheEndIsToldThatItIsOver) {
  for (const bool comes : {true, false}) {
    SCOPED_TRACE(comes);
    std::atomic<bool> left = false;
    std::vector<Told> told;
    const Clock::time_point begin = Clock::now();
    std::thread ranks([&] {
      told = run(
          2,
          [&](ControlOptions& o) {
            on_hosts(o);
            o.comes_back = comes;
            o.timeout = std::chrono::seconds(20);
            o.claim.rank -= o.claim.rank == 1 ? 10 : 0;
          },
          [&](Control& c) {
            c.leave(75);
            left = true;
          });
    });
    {
      Comer one = rank_that_leaves(1, 2);
      EXPECT_EQ(one.hear().value_or(Frame{}).kind, FrameKind::all_left);
    }
    if (comes) {
      std::this_thread::sleep_for(milliseconds(500));
      EXPECT_FALSE(left);
      ControlOptions again = options(1, 2);
      on_hosts(again);
      again.launch.restarts = 1;
      try {
        const Control control(again);
        ADD_FAILURE() << "it met rank 0";
      } catch (const MeetingError& error) {
        EXPECT_EQ(error.end, MeetingEnd::over) << error.what();
        EXPECT_EQ(error.status, 75) << "the run was stopped";
        EXPECT_THAT(error.what(), HasSubstr("the run was over"));
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
    ranks.join();
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15));
    EXPECT_EQ(told[0].error + told[0].printed, "");
  }
}

// The other ranks of its host have heard it, so nobody starts again.
TEST_F(EndTest, OneRankOfAHostThatHasHeardItIsEnough) {
  std::vector<Told> told;
  const Clock::time_point begin = Clock::now();
  std::thread ranks([&] {
    told = run(
        4,
        [&](ControlOptions& o) {
          on_hosts(o);
          o.launch.nodes = 2;
          o.launch.node = o.claim.rank / 2;
          o.timeout = std::chrono::seconds(20);
          o.claim.rank -= o.claim.rank == 2 ? 10 : 0;
        },
        [&](Control& c) { c.leave(); });
  });
  {
    Comer one = rank_that_leaves(2, 4);
    EXPECT_EQ(one.hear().value_or(Frame{}).kind, FrameKind::all_left);
  }
  ranks.join();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15));
  for (const Told& t : told) EXPECT_EQ(t.error + t.printed, "");
}

TEST_F(EndTest, ALostHostThatDoesNotComeBackIsWaitedForAsLongAsTheMeeting) {
  std::vector<Told> told;
  std::atomic<int64_t> waited = 0;
  std::thread ranks([&] {
    told = run(
        2,
        [&](ControlOptions& o) {
          on_hosts(o);
          o.timeout = std::chrono::seconds(2);
          o.claim.rank -= o.claim.rank == 1 ? 10 : 0;
        },
        [&](Control& c) {
          const Clock::time_point begin = Clock::now();
          c.leave();
          waited = std::chrono::duration_cast<milliseconds>(Clock::now() - begin).count();
        });
  });
  {
    Comer one = rank_that_leaves(1, 2);
    EXPECT_TRUE(one.hear());
  }
  ranks.join();
  EXPECT_GE(waited, 2000);
  EXPECT_EQ(told[0].error + told[0].printed, "");
}

// A launcher in its ranks' place, as rank 0 or as another: every host hears it, at once, and rank 0
// stays until the last one has come.
TEST_F(EndTest, WhoStartsNoMoreTellsEveryHost) {
  const std::string why = "node 0 of 3: no restart is left";
  for (const int teller : {0, 1}) {
    SCOPED_TRACE(teller);
    const Clock::time_point begin = Clock::now();
    const std::vector<Told> told = run(
        3,
        [&](ControlOptions& o) {
          on_hosts(o);
          o.timeout = std::chrono::seconds(30);
          if (o.claim.rank == teller) {
            o.tells = true;
            o.late_comers = milliseconds(0);
            o.claim.error = why;
          }
          if (o.claim.rank == 2) std::this_thread::sleep_for(milliseconds(1500));
        },
        [](Control&) { FAIL(); });
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15));
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(told[static_cast<size_t>(rank)].error,
                "rank " + std::to_string(teller) + " (here, cpu): " + why)
          << rank;
  }
}

TEST_F(EndTest, AHostThatIsNotThereIsNotToldForLongerThanTheMeeting) {
  const auto lasts = [&](milliseconds timeout, const std::function<std::string()>& stop) {
    const Clock::time_point begin = Clock::now();
    run(
        2,
        [&](ControlOptions& o) {
          on_hosts(o);
          o.timeout = timeout;
          o.tells = true;
          o.late_comers = milliseconds(0);
          o.stop = stop;
          o.claim.error = "no restart is left";
          o.claim.rank -= o.claim.rank == 1 ? 10 : 0;
        },
        [](Control&) { FAIL(); });
    return Clock::now() - begin;
  };
  EXPECT_THAT(lasts(milliseconds(2000), {}),
              AllOf(testing::Ge(milliseconds(2000)), testing::Lt(std::chrono::seconds(15))));
  const Clock::time_point begin = Clock::now();
  EXPECT_LT(lasts(std::chrono::seconds(60),
                  [&] {
                    return Clock::now() - begin > milliseconds(500) ? std::string("SIGTERM")
                                                                    : std::string();
                  }),
            std::chrono::seconds(30));
}

}  // namespace
}  // namespace rendezvous
