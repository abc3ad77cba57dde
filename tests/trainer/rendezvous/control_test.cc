// Rendezvous and agreement, with ranks as threads: what each rank is told when all is well, and
// when one has another release, configuration, size or secret, comes twice or never. Ranks that are
// lost later: verdict_test.cc. Processes that really die: lost_rank_test.cc.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/own.h"
#include "tests/trainer/rendezvous/meeting_ranks.h"
#include "trainer/rendezvous/control.h"
#include "trainer/rendezvous/server.h"
#include "trainer/rendezvous/sha256.h"
#include "trainer/rendezvous/wire.h"

namespace rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

TEST_F(ControlTest, RanksMeetAgreeAndLeave) {
  std::atomic<int> ended = 0;
  const std::vector<Told> told = run(
      4, [](ControlOptions&) {},
      [&](Control& c) {
        ASSERT_EQ(c.roster().size(), 4u);
        EXPECT_EQ(c.roster()[3].name(), "rank 3 (here, cpu)");
        EXPECT_EQ(c.roster()[3].address, "127.0.0.1");
        for (int round = 0; round < 50; ++round) {
          const std::vector<std::string> all = c.exchange(std::to_string(round * 10 + c.rank()));
          ASSERT_EQ(all.size(), 4u);
          for (int r = 0; r < 4; ++r)
            ASSERT_EQ(all[static_cast<size_t>(r)], std::to_string(round * 10 + r));
        }
        if (c.rank() == 2) c.store().set("key", std::string("a\0b", 3));
        EXPECT_EQ(c.store().get("key", milliseconds(2000)), std::string("a\0b", 3));
        c.leave();
        ++ended;
      });
  EXPECT_EQ(ended, 4);
  for (const Told& t : told) EXPECT_EQ(t.error + t.printed, "");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/meeting"));
}

// Messages outside of the rounds: to one, to all others, by topic, from another thread; a message
// that is requested too late is gone, unless it is of another channel.
TEST_F(ControlTest, LettersReachThoseTheyAreFor) {
  std::atomic<int> ended = 0;
  const std::vector<Told> told = run(
      3, [](ControlOptions&) {},
      [&](Control& c) {
        const auto all = [&](int64_t topic, size_t count) {
          std::vector<std::string> out;
          while (out.size() < count)
            for (const Letter& letter : c.letters(topic, std::chrono::seconds(20)))
              out.push_back(std::to_string(letter.from) + " " + letter.text);
          return out;
        };
        std::thread other([&] {
          if (c.rank() == 1) {
            c.post(0, kTopicsOfChannel + 3, "another channel");
            c.post(0, 7, "early");
            c.post(0, 8, std::string(300'000, 'x'));
            c.post(0, 8, "then");
          }
          if (c.rank() == 2) c.post(-1, 8, "to all");
        });
        for (int round = 0; round < 5; ++round) c.exchange("beside");
        other.join();
        c.exchange("everything is on its way");
        const std::string lengthy(300'000, 'x');
        if (c.rank() == 0) {
          EXPECT_THAT(all(8, 3),
                      testing::UnorderedElementsAre("1 " + lengthy, "1 then", "2 to all"));
        }
        if (c.rank() == 1) {
          EXPECT_THAT(all(8, 1), testing::ElementsAre("2 to all"));
        }
        for (const int64_t later : {4, 5})  // nothing under these, and lower topics are dropped.
          EXPECT_TRUE(c.letters(2 * kTopicsOfChannel + later, milliseconds(0)).empty());
        if (c.rank() == 0) {
          EXPECT_THAT(all(kTopicsOfChannel + 3, 1), testing::ElementsAre("1 another channel"));
        }
        for (const int64_t topic : {7, 8, 9})
          EXPECT_TRUE(c.letters(topic, milliseconds(0)).empty()) << topic;
        EXPECT_THROW(c.post(0, 9, std::string(kRankLimit, 'x')), ops::DeviceError);
        c.exchange("");
        c.leave();
        ++ended;
      });
  EXPECT_EQ(ended, 3);
  for (const Told& t : told) EXPECT_EQ(t.error + t.printed, "");
}

// The second in which a host's ranks meet is made of pauses between looks for rank 0, which
// meeting.cc holds short. By the clock of a busy machine it cannot be held.
TEST_F(ControlTest, WhoFindsTheDoorOpenIsInAtTheFirstLook) {
  const std::string door = options(0, 4).meeting_file;
  run(
      4,
      [&](ControlOptions& o) {
        while (o.claim.rank != 0 && !std::filesystem::exists(door)) std::this_thread::yield();
      },
      [](Control& c) {
        EXPECT_EQ(c.looks(), 1);
        c.leave();
      });
}

// Too late for the rendezvous: the others have met. The run itself will heed it.
TEST_F(ControlTest, ARankThatIsToldToStopWhenAllHaveMetTakesPart) {
  const std::string door = options(0, 2).meeting_file;
  std::atomic<int> ended = 0, asked = 0;
  run(
      2,
      [&](ControlOptions& o) {
        if (o.claim.rank == 0) return;
        while (!std::filesystem::exists(door)) std::this_thread::yield();
        o.stop = [&] { return std::string(asked++ == 0 ? "" : "SIGTERM"); };
      },
      [&](Control& c) {
        c.exchange("");
        c.leave();
        ++ended;
      });
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(asked, 1);
}

// The others would wait for it. One that comes meanwhile is told, too.
TEST_F(ControlTest, ARankThatIsToldToStopBeforeAllHaveMetEndsTheWaitOfAll) {
  for (const int stops : {0, 1}) {
    SCOPED_TRACE(stops);
    const Clock::time_point begin = Clock::now();
    const std::vector<Told> told = run(
        4,
        [&](ControlOptions& o) {
          o.stop_is_told = milliseconds(3000);
          if (o.claim.rank == 2) std::this_thread::sleep_for(milliseconds(1500));
          const Clock::time_point start = Clock::now();
          if (o.claim.rank == stops)
            o.stop = [start] {
              return std::string(Clock::now() - start < milliseconds(700) ? "" : "SIGTERM");
            };
          o.claim.rank -= o.claim.rank == 3 ? 10 : 0;
        },
        [](Control&) { FAIL(); });
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(40));
    for (const size_t rank : {0, 1, 2}) {
      EXPECT_EQ(told[rank].error, "rank " + std::to_string(stops) +
                                      " (here, cpu): SIGTERM: stopped while it waited for the "
                                      "others");
      EXPECT_EQ(told[rank].end, MeetingEnd::retryable);
      EXPECT_EQ(told[rank].told, rank != 0);
    }
  }
}

// What is wrong with a command line would end the next start, too.
TEST_F(ControlTest, AnErrorSaysMoreThanAStop) {
  const std::vector<Told> told = run(
      4,
      [](ControlOptions& o) {
        o.stop_is_told = milliseconds(4000);
        if (o.claim.rank == 1) o.stop = [] { return std::string("SIGTERM"); };
        if (o.claim.rank == 2) {
          std::this_thread::sleep_for(milliseconds(1000));
          o.claim.config = "lr = 7\n";
        }
        o.claim.rank -= o.claim.rank == 3 ? 10 : 0;
      },
      [](Control&) { FAIL(); });
  for (const size_t rank : {0, 1, 2}) {
    EXPECT_THAT(told[rank].error, HasSubstr("lr = 7 there"));
    EXPECT_EQ(told[rank].end, MeetingEnd::failed);
  }
}

// Rank 0 without its device, asked to stop: the others hear of the device.
TEST_F(ControlTest, AStopOfRankZeroDoesNotHideItsError) {
  const std::vector<Told> told = run(
      3,
      [](ControlOptions& o) {
        if (o.claim.rank == 0) {
          o.claim.error = "no driver";
          o.stop = [] { return std::string("SIGTERM"); };
        }
        o.claim.rank -= o.claim.rank == 2 ? 10 : 0;
      },
      [](Control&) { FAIL(); });
  for (const size_t rank : {0, 1}) EXPECT_EQ(told[rank].error, "rank 0 (here, cpu): no driver");
}

// It was stopped, and its line was given again: it is there, and rank 3 is still missing.
TEST_F(ControlTest, ARankThatComesAgainAfterAStopIsNotMissing) {
  const Clock::time_point begin = Clock::now();
  const std::vector<Told> told = run(
      5,
      [&](ControlOptions& o) {
        o.claim.world_size = o.launch.world_size = 4;
        o.stop_is_told = milliseconds(4000);
        if (o.claim.rank == 1) o.stop = [] { return std::string("SIGTERM"); };
        if (o.claim.rank == 4) {
          std::this_thread::sleep_for(milliseconds(1000));
          o.claim.rank = o.launch.rank = 1;
          o.claim.pid = 7;
        }
        if (o.claim.rank == 3) std::this_thread::sleep_for(milliseconds(2500));
      },
      [](Control&) { FAIL(); });
  EXPECT_GE(Clock::now() - begin, milliseconds(2500));
  for (const Told& t : told) EXPECT_THAT(t.error, HasSubstr("rank 1 (here, cpu): SIGTERM: "));
}

// It was told so while it opened its device, or while rank 0 did.
TEST_F(ControlTest, ARankThatStopsBeforeRankZeroIsThereTellsIt) {
  for (const bool comes : {true, false}) {
    const Clock::time_point begin = Clock::now();
    const std::vector<Told> told = run(
        3,
        [&](ControlOptions& o) {
          o.stop_is_told = milliseconds(3000);
          if (o.claim.rank == 0 && comes) std::this_thread::sleep_for(milliseconds(1500));
          if (o.claim.rank == 1) o.stop = [] { return std::string("SIGUSR1"); };
          o.claim.rank -= o.claim.rank == 2 || (o.claim.rank == 0 && !comes) ? 10 : 0;
        },
        [](Control&) { FAIL(); });
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(40));
    const std::string line = "rank 1 (here, cpu): SIGUSR1: stopped while it waited for the others";
    EXPECT_EQ(told[1].error, line);
    EXPECT_EQ(told[1].told, comes);
    EXPECT_EQ(told[1].end, MeetingEnd::retryable);
    EXPECT_EQ(told[0].error, comes ? line : "");
    EXPECT_EQ(told[0].end == MeetingEnd::retryable, comes);
  }
}

// Rank 0's host is a new one in a run that goes on: the others say that it is no first start.
TEST_F(ControlTest, AHostThatDoesNotComeBackToANewRankZeroLosesNothing) {
  for (const int restarts : {0, 1}) {
    const std::vector<Told> told = run(
        3,
        [&](ControlOptions& o) {
          o.launch.nodes = 3;
          o.timeout = std::chrono::seconds(1);
          (restarts > 0 ? o.rejoin_timeout : o.host_timeout) = kBriefly;
          if (o.claim.rank == 1) o.launch.restarts = o.claim.restarts = restarts;
          o.claim.host = "host" + std::to_string(o.claim.rank);
          o.claim.rank -= o.claim.rank == 2 ? 10 : 0;
        },
        [](Control&) { FAIL(); });
    for (const size_t rank : {0, 1}) {
      EXPECT_THAT(told[rank].error, HasSubstr("rank 2 of 3 did not come within 3 s"));
      EXPECT_EQ(told[rank].end == MeetingEnd::retryable, restarts > 0);
    }
  }
}

// Ranks that wait for the last one send nothing meanwhile; that is no silence.
TEST_F(ControlTest, AWaitInTheMeetingThatIsLongerThanAHangHarmsNobody) {
  std::atomic<int> ended = 0;
  const std::vector<Told> told = run(
      3,
      [](ControlOptions& o) {
        o.hang_timeout = std::chrono::seconds(2);
        if (o.claim.rank == 2) std::this_thread::sleep_for(std::chrono::seconds(5));
      },
      [&](Control& c) {
        c.exchange("");
        c.leave();
        ++ended;
      });
  EXPECT_EQ(ended, 3);
  for (const Told& t : told) EXPECT_EQ(t.error + t.printed, "");
}

TEST_F(ControlTest, AMissingRankIsNamedInTime) {
  const std::vector<Told> told = run(
      3,
      [](ControlOptions& o) {
        o.timeout = o.host_timeout = kBriefly;
        o.claim.rank -= o.claim.rank == 1 ? 10 : 0;
      },
      [](Control&) { FAIL(); });
  EXPECT_THAT(told[0].error, AllOf(HasSubstr("rank 1 of 3 did not come within 3 s"),
                                   HasSubstr("there are rank 0 (here, cpu), rank 2 (here, cpu)")));
  EXPECT_EQ(told[2].error, told[0].error);
  EXPECT_TRUE(told[2].told);
}

// What a rank objects to is told although, by then, another is late.
TEST_F(ControlTest, AnErrorSaysMoreThanAMissingRank) {
  const std::vector<Told> told = run(
      3,
      [](ControlOptions& o) {
        o.timeout = o.host_timeout = kBriefly;
        if (o.claim.rank == 1) {
          std::this_thread::sleep_for(kBriefly / 4);
          o.claim.error = "no such layout";
        }
        o.claim.rank -= o.claim.rank == 2 ? 10 : 0;
      },
      [](Control&) { FAIL(); });
  EXPECT_THAT(told[0].error, HasSubstr("rank 1 (here, cpu): no such layout"));
}

// One whose command line was wrong still tells why when it is started again with the right one.
TEST_F(ControlTest, TheErrorOfAnEarlierStartEndsNobody) {
  for (const bool earlier : {true, false}) {
    std::atomic<int> ended = 0;
    const std::vector<Told> told = run(
        4,
        [&](ControlOptions& o) {
          o.timeout = std::chrono::seconds(4);
          o.claim.world_size = o.launch.world_size = 3;
          if (o.claim.rank == 1) o.claim.error = "no such file";
          if (o.claim.rank == 2) std::this_thread::sleep_for(milliseconds(1000));
          if (o.claim.rank == (earlier ? 3 : 1)) std::this_thread::sleep_for(milliseconds(500));
          if (o.claim.rank == 3) o.claim.rank = o.launch.rank = 1;
        },
        [&](Control& c) {
          c.exchange("");
          c.leave();
          ++ended;
        });
    EXPECT_EQ(ended, 3) << earlier;
    EXPECT_NE(told[1].error, "");
    for (const size_t rank : {0, 2, 3}) EXPECT_EQ(told[rank].error + told[rank].printed, "");
  }
}

TEST_F(ControlTest, RankZeroThatNeverComesIsNamed) {
  const std::vector<Told> told = run(
      2,
      [](ControlOptions& o) {
        o.timeout = o.host_timeout = kBriefly;
        o.claim.rank -= o.claim.rank == 0 ? 10 : 0;
      },
      [](Control&) { FAIL(); });
  EXPECT_THAT(told[1].error, HasSubstr("rank 1 (here, cpu): rank 0 was not found within 3 s"));
  EXPECT_FALSE(told[1].told);
}

TEST_F(ControlTest, WhyNothingIsReachedAtRankZerosAddressIsSaid) {
  const int port = tests::own_ports() + 52;
  const std::vector<Told> told = run(
      2,
      [&](ControlOptions& o) {
        o.launch.address = "127.0.0.1";
        o.launch.port = port;
        o.launch.exact_port = true;
        o.meeting_file.clear();
        o.timeout = o.host_timeout = std::chrono::seconds(1);
        o.claim.rank -= o.claim.rank == 0 ? 10 : 0;
      },
      [](Control&) { FAIL(); });
  EXPECT_THAT(told[1].error, HasSubstr("127.0.0.1 port " + std::to_string(port) + ": "));
}

// Where ranks do not come, the error says what is wrong with an address.
TEST_F(ControlTest, AnAddressOfAnotherHostOrOfEachHostIsDoubted) {
  const auto refusals = [&](const std::string& address) {
    return run(
        2,
        [&](ControlOptions& o) {
          o.launch.address = address;
          o.launch.port = tests::own_ports();
          o.launch.nodes = 2;
          o.launch.secret = o.claim.rank == 0 ? "right" : "wrong";
          o.meeting_file.clear();
          o.timeout = o.host_timeout = kBriefly;
        },
        [](Control&) { FAIL(); });
  };
  // 192.0.2.1 belongs to nobody (RFC 5737).
  EXPECT_THAT(refusals("192.0.2.1")[0].error,
              HasSubstr("192.0.2.1 is no address of here, where rank 0 is: does it lead there?"));
  const std::vector<Told> loopback = refusals("localhost");
  EXPECT_THAT(loopback[0].error, HasSubstr("localhost is the loopback of each host"));
  EXPECT_THAT(loopback[1].error,
              HasSubstr("that name is the loopback on here: name rank 0's host"));
}

TEST_F(ControlTest, APortThatIsTakenIsNamed) {
  const Socket taken = listen_on("127.0.0.1", 0);
  ControlOptions o = options(0, 2);
  o.launch.address = "127.0.0.1";
  o.launch.port = port_of(taken);
  o.launch.exact_port = true;
  o.meeting_file.clear();
  try {
    Control control(o);
    ADD_FAILURE() << "the door is open";
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(), HasSubstr(" is taken: another job runs there, or several tasks were "
                                        "started as rank 0"));
  }
}

struct Mismatch {
  const char* name;
  std::function<void(Claim&)> change;
  const char* message;
};

TEST_F(ControlTest, WhoDiffersIsNamedToAll) {
  const Mismatch cases[] = {
      {"release", [](Claim& c) { c.version = "2"; },
       "rank 2 (here, cpu) is release 2, rank 0 (here, cpu) is release 1"},
      {"configuration", [](Claim& c) { c.config = "lr = 3\nseed = 2\n"; },
       "rank 2 (here, cpu) has another configuration: lr = 3 there, lr = 1 on rank 0"},
      {"size", [](Claim& c) { c.world_size = 5; }, "rank 2 (here, cpu) is one of 5 ranks"},
      {"error", [](Claim& c) { c.error = "--lr is missing"; },
       "rank 2 (here, cpu): --lr is missing"}};
  for (const Mismatch& mismatch : cases) {
    const std::vector<Told> told = run(
        4,
        [&](ControlOptions& o) {
          if (o.claim.rank == 2) mismatch.change(o.claim);
        },
        [](Control&) { FAIL(); });
    for (const Told& t : told) EXPECT_THAT(t.error, HasSubstr(mismatch.message)) << mismatch.name;
    EXPECT_FALSE(told[0].told);
  }
}

TEST_F(ControlTest, TwoOfOneRankOrOneGpuAreNamed) {
  EXPECT_THAT(run(
                  3,
                  [](ControlOptions& o) {
                    if (o.claim.rank == 2) o.claim.rank = 1;
                  },
                  [](Control&) { FAIL(); })[0]
                  .error,
              HasSubstr("rank 1 (here, cpu) has come twice"));
  const std::string shared = run(
                                 2, [](ControlOptions& o) { o.claim.unique_device = "GPU 0"; },
                                 [](Control&) { FAIL(); })[0]
                                 .error;
  EXPECT_THAT(shared, HasSubstr("have the same GPU"));
}

TEST_F(ControlTest, AnotherSecretIsNotAccepted) {
  const std::vector<Told> told = run(
      2,
      [](ControlOptions& o) {
        o.launch.address = "127.0.0.1";
        o.launch.port = tests::own_ports();
        o.meeting_file.clear();
        o.launch.secret = o.claim.rank == 0 ? "right" : "wrong";
        o.timeout = o.host_timeout = kBriefly;
      },
      [](Control&) { FAIL(); });
  EXPECT_THAT(told[0].error,
              AllOf(HasSubstr("rank 1 of 2 did not come"),
                    HasSubstr("127.0.0.1 were refused, because they do not know this "
                              "job's secret: another job looks for its rank 0 on "
                              "ports"),
                    HasSubstr("or GRISTMILL_JOB_SECRET differs between hosts")));
  EXPECT_THAT(told[1].error, HasSubstr("another secret"));
}

TEST_F(ControlTest, TwoJobsOnOnePortDoNotMix) {
  std::atomic<int> ended = 0;
  const int port = tests::own_ports() + 20;
  const auto job = [&](const std::string& secret) {
    run(
        2,
        [&](ControlOptions& o) {
          o.launch.address = "127.0.0.1";
          o.launch.port = port;
          o.meeting_file.clear();
          o.launch.secret = secret;
          o.timeout = std::chrono::seconds(10);
        },
        [&](Control& c) {
          EXPECT_EQ(c.exchange(secret)[1], secret);
          c.leave();
          ++ended;
        });
  };
  std::thread other([&] { job("b"); });
  job("a");
  other.join();
  EXPECT_EQ(ended, 4);
}

TEST_F(ControlTest, StrangersDoNotDisturb) {
  std::atomic<bool> done = false;
  std::thread stranger([&] {
    // Finds the port like a rank, and sends what no rank sends.
    while (!done) {
      std::ifstream in(folder_ + "/meeting");
      std::string address, why;
      int port = 0;
      if (in >> address >> port) {
        for (const std::string& bytes :
             {std::string("GET / HTTP/1.0\r\n\r\n"), std::string(40, '\xff'), std::string(3, '\0'),
              std::string("\x23\0\0\0\x01gristmill control 1", 24) + std::string(16, 'n')}) {
          Socket s = connect_to(address, port, Clock::now() + milliseconds(200), why);
          if (s) static_cast<void>(!write(s.fd(), bytes.data(), bytes.size()));
          std::this_thread::sleep_for(milliseconds(5));
        }
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  std::atomic<int> ended = 0;
  run(
      3,
      [](ControlOptions& o) {
        if (o.claim.rank == 1) std::this_thread::sleep_for(milliseconds(300));
      },
      [&](Control& c) {
        c.exchange("x");
        c.leave();
        ++ended;
      });
  done = true;
  stranger.join();
  EXPECT_EQ(ended, 3);
}

// Two that were given rank 0: the second one's port or address is not the first's.
TEST_F(ControlTest, ASecondRankZeroIsFoundAndBothAreTold) {
  const int port = tests::own_ports() + 40;
  const std::vector<Told> told = run(
      3,
      [&](ControlOptions& o) {
        o.launch.address = "127.0.0.1";
        o.launch.port = port;
        o.launch.secret = "one";
        o.meeting_file.clear();
        o.claim.rank = o.launch.rank = o.claim.rank == 2 ? -1 : 0;
      },
      [](Control&) { FAIL(); });
  for (const int one : {0, 1})
    EXPECT_THAT(told[static_cast<size_t>(one)].error,
                AllOf(HasSubstr("rank 0 (here, cpu) has come twice: also from here as process 10"),
                      HasSubstr("give each process a rank of its own")));
}

// Whatever the last system call before has left in errno.
TEST(FrameStreams, AWaitForNobodyEndsInTime) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  FrameStream here((Socket(ends[0]))), there((Socket(ends[1])));
  errno = EINTR;
  EXPECT_FALSE(here.wait(Clock::now() + std::chrono::milliseconds(20), 100).has_value());
  EXPECT_FALSE(here.over());
  ASSERT_TRUE(there.send(FrameKind::set, "a word"));
  errno = EINTR;
  const std::optional<Frame> came = here.wait(Clock::now() + std::chrono::seconds(10), 100);
  ASSERT_TRUE(came.has_value());
  EXPECT_EQ(came->payload, "a word");
  there.close();
  EXPECT_FALSE(here.wait(Clock::now() + std::chrono::seconds(10), 100).has_value());
  EXPECT_TRUE(here.over());
}

}  // namespace
}  // namespace rendezvous
