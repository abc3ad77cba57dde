// Misbehaving peers, at rank 0's port and in rank 0's place: floods of connections before, in
// and after the meeting, impostors, ranks that were refused, ranks that fall silent.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/sanitized.h"
#include "tests/trainer/rendezvous/meeting_ranks.h"
#include "trainer/rendezvous/server.h"
#include "trainer/rendezvous/sha256.h"
#include "trainer/rendezvous/wire.h"

namespace rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

enum class Manner { idle, slow, garbage, large, unproved };

std::string first_bytes(Manner manner) {
  switch (manner) {
    case Manner::idle:
    case Manner::slow:
      return "";
    case Manner::garbage:
      return std::string(5000, '\x5a');
    case Manner::large:  // a frame of 64 MiB, that never ends.
      return std::string("\0\0\0\x04", 4) + std::string(1 << 16, '\1');
    case Manner::unproved:
      break;
  }
  const std::string payload = std::string(kMagic) + std::string(kNonce + kProof, 'n');
  return std::string(1, static_cast<char>(payload.size() + 1)) + std::string(3, '\0') +
         std::string(1, '\1') + payload;
}

/// A process that holds 1,020 connections to a port, and reconnects wherever one is closed.
class Flood {
 public:
  Flood(Manner manner, int port) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], 3);
      close_range(4, ~0u, 0);
      pour(manner, port);
    }
    close(ends[1]);
    rounds_ = Socket(ends[0]);
  }
  ~Flood() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  /// Waits for the next round; how many connections there were at once.
  int round() {
    int there = 0;
    return read(rounds_.fd(), &there, sizeof there) == sizeof there ? there : -1;
  }

 private:
  [[noreturn]] static void pour(Manner manner, int port) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
    setrlimit(RLIMIT_NOFILE, &files);
    const std::string first = first_bytes(manner);
    std::vector<Socket> sockets(1020);
    std::string why;
    char byte = 'g';
    while (true) {
      int there = 0;
      for (Socket& socket : sockets) {
        if (!socket) {
          socket = connect_to("127.0.0.1", port, Clock::now() + milliseconds(100), why);
          if (!socket) break;
          send(socket.fd(), first.data(), first.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        } else if (manner == Manner::large) {
          send(socket.fd(), first.data(), first.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        } else if (manner == Manner::slow) {
          send(socket.fd(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        const ssize_t got = recv(socket.fd(), &byte, 1, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
          socket.reset();
        else
          ++there;
      }
      static_cast<void>(!write(3, &there, sizeof there));
      usleep(2000);
    }
  }

  pid_t pid_;
  Socket rounds_;
};

/// Takes the next connection at `door` into `stream`, and answers its hello as a rank 0 that knows
/// `secret`; without a proof where that is empty. Returns the hello; nothing where nobody waits, or
/// no hello comes by `end`.
std::optional<std::string> answer_next(Listener& door, const std::string& secret,
                                       Clock::time_point end, FrameStream& stream) {
  stream = FrameStream(door.take());
  std::this_thread::sleep_for(milliseconds(5));
  if (stream.fd() < 0) return std::nullopt;
  const std::optional<Frame> hello = stream.wait(end, 1 << 20);
  if (!hello) return std::nullopt;
  const std::string theirs = hello->payload.substr(kMagic.size(), kNonce), nonce(kNonce, 'n');
  const std::string proven = proof(secret, "challenge", theirs, nonce, "");
  stream.send(FrameKind::challenge, secret.empty() ? nonce : nonce + proven);
  return hello->payload;
}

class StrangersTest : public ControlTest {
 protected:
  StrangersTest() : listener_(listen_on("127.0.0.1", 0)), port_(port_of(listener_)) {}
  /// Ranks that meet at this test's port; rank 0 inherits it, as from a launcher.
  void meet_here(ControlOptions& o) {
    o.launch.address = "127.0.0.1";
    o.launch.port = port_;
    o.launch.exact_port = true;
    o.launch.secret = kSecret;
    o.meeting_file.clear();
    if (o.claim.rank == 0) o.launch.listener = listener_.release();
  }
  Claim claim_of(int rank, int size) const { return options(rank, size).claim; }

  Socket listener_;
  int port_;
};

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * getpagesize();
}

int64_t open_files() {
  const std::filesystem::directory_iterator first("/proc/self/fd");
  return std::distance(begin(first), end(first));
}

class Floods : public StrangersTest, public testing::WithParamInterface<Manner> {};

// 1,020 connections are all that a process may have by default. The backlog is full before rank 0
// looks at it, rank 1 comes in the middle, and the ranks keep working during it.
TEST_P(Floods, ChangeNothingAndTakeNoMemoryAndNoDescriptors) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  rlimit few = files;
  few.rlim_cur = 256;
  Flood flood(GetParam(), port_);
  ASSERT_GT(flood.round(), 1000);
  setrlimit(RLIMIT_NOFILE, &few);
  const int64_t before = resident_bytes();
  std::atomic<int> ended = 0;
  std::atomic<int64_t> memory = 0, descriptors = 0;
  const std::vector<Told> told = run(
      3,
      [&](ControlOptions& o) {
        meet_here(o);
        if (o.claim.rank == 1) std::this_thread::sleep_for(milliseconds(300));
      },
      [&](Control& c) {
        std::string why;
        EXPECT_FALSE(connect_to("127.0.0.1", port_, Clock::now() + milliseconds(500), why))
            << port_;
        for (int round = 0; round < 15; ++round) {
          c.exchange("x");
          memory = std::max<int64_t>(memory, resident_bytes() - before);
          descriptors = std::max<int64_t>(descriptors, open_files());
          std::this_thread::sleep_for(milliseconds(10));
        }
        c.leave();
        ++ended;
      });
  setrlimit(RLIMIT_NOFILE, &files);
  EXPECT_EQ(ended, 3);
  for (const Told& t : told) EXPECT_EQ(t.error + t.printed, "");
  EXPECT_LT(memory, kSanitized ? 64 << 20 : 8 << 20);  // a sanitizer uses memory of its own.
  EXPECT_LT(descriptors, 100);
}

std::string name_of(const testing::TestParamInfo<Manner>& info) {
  constexpr const char* kNames[] = {"Idle", "Slow", "Garbage", "Large", "Unproved"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, Floods,
                         testing::Values(Manner::idle, Manner::slow, Manner::garbage, Manner::large,
                                         Manner::unproved),
                         name_of);

TEST_F(StrangersTest, AHelloIsTakenOnce) {
  std::thread ranks([&] {
    run(
        2,
        [&](ControlOptions& o) {
          meet_here(o);
          if (o.claim.rank == 1) std::this_thread::sleep_for(milliseconds(500));
        },
        [](Control& c) { c.leave(); });
  });
  const std::string nonce = random_bytes(kNonce);
  Comer first(port_, nonce), overheard(port_, nonce);
  first.say_hello();
  overheard.say_hello();
  EXPECT_TRUE(first.welcome());
  EXPECT_FALSE(overheard.welcome());
  ranks.join();
}

// What exceeds the allowed frame is not received.
TEST(FrameStream, TakesNoMoreThanAFrameMayHave) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Socket sender(ends[0]);
  FrameStream stream{Socket(ends[1])};
  const std::string bytes = std::string("\0\0\0\x04", 4) + std::string(60'000, 'x');
  const ssize_t sent = write(sender.fd(), bytes.data(), bytes.size());
  ASSERT_GT(sent, 50'000);
  for (int again = 0; again < 3; ++again) EXPECT_TRUE(stream.fill(kStrangerLimit));
  EXPECT_THROW(stream.next(kStrangerLimit), ops::DeviceError);
  int left = 0;
  ioctl(stream.fd(), FIONREAD, &left);
  EXPECT_EQ(left, sent - 4 - static_cast<ssize_t>(kStrangerLimit));
}

// A large frame to a slow peer: the peer's silence counts, not the total time.
TEST(FrameStream, SendsForAsLongAsThePeerTakesSomething) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  FrameStream sender{Socket(ends[0])};
  const Socket receiver(ends[1]);
  const std::string payload(size_t{4} << 20, 'x');
  std::thread slow([&] {
    std::string block(size_t{1} << 16, '\0');
    const Clock::time_point fast = Clock::now() + std::chrono::seconds(11);
    while (read(receiver.fd(), block.data(), block.size()) > 0)
      if (Clock::now() < fast) std::this_thread::sleep_for(milliseconds(500));
  });
  const Clock::time_point begin = Clock::now();
  const bool whole = sender.send(FrameKind::post, payload);
  const Clock::duration took = Clock::now() - begin;
  sender.close();
  slow.join();
  EXPECT_TRUE(whole);
  EXPECT_GT(took, std::chrono::seconds(10));
}

// Without a free descriptor, a waiting connection is closed; otherwise the listener would be ready
// for ever.
TEST(Listener, ClosesWhoWaitsWhereDescriptorsHaveRunOut) {
  Listener listener{listen_on("127.0.0.1", 0)};
  std::string why;
  const Socket waits =
      connect_to("127.0.0.1", listener.port(), Clock::now() + std::chrono::seconds(5), why);
  ASSERT_TRUE(waits);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  rlimit none = files;
  const int lowest_free = dup(0);
  close(lowest_free);
  none.rlim_cur = static_cast<rlim_t>(lowest_free);
  setrlimit(RLIMIT_NOFILE, &none);
  for (int again = 0; again < 2; ++again) EXPECT_FALSE(listener.take());
  setrlimit(RLIMIT_NOFILE, &files);
  char byte = 0;
  EXPECT_EQ(recv(waits.fd(), &byte, 1, 0), 0);
  EXPECT_FALSE(listener.take());
}

// A refused rank that knows the secret has no number under which anything could be stored.
TEST_F(StrangersTest, WhoWasRefusedHasNothingMoreToSay) {
  const struct {
    FrameKind kind;
    std::string payload;
  } cases[] = {{FrameKind::failed, Packer().number(0).number(0).text("forged").take()},
               {FrameKind::get, Packer().text("key").take()},
               {FrameKind::offer, Packer().number(0).text("forged").take()},
               {FrameKind::leave, ""}};
  std::vector<Told> told;
  std::thread ranks([&] {
    told = run(
        6,
        [&](ControlOptions& o) {
          o.timeout = std::chrono::seconds(1);
          meet_here(o);
          if (o.claim.rank != 0) o.claim.rank = -1;  // never comes.
        },
        [](Control&) { FAIL(); });
  });
  for (const auto& [kind, payload] : cases) {
    Comer comer(port_);
    comer.say_hello();
    EXPECT_TRUE(comer.welcome());
    Claim other = claim_of(1, 6);
    other.world_size = 5;
    comer.claim(other);
    comer.say(kind, payload);
    const std::optional<Frame> answer = comer.hear();
    EXPECT_TRUE(!answer || answer->kind == FrameKind::refusal);
  }
  ranks.join();
  EXPECT_THAT(told[0].error,
              AllOf(HasSubstr("rank 1 (here, cpu) is one of 5 ranks"), Not(HasSubstr("forged"))));
}

TEST_F(StrangersTest, AnImpostorInRankZerosPlaceLearnsNothingAndIsRefused) {
  for (const auto& [secret, complaint] : {std::pair{"another", "does not know this job's secret"},
                                          std::pair{"", "something else listens there"}}) {
    std::string heard;
    std::atomic<bool> done = false;
    std::thread impostor([&, secret = secret] {
      Listener door{Socket(dup(listener_.fd()))};
      while (!done) {
        FrameStream stream{Socket()};
        const Clock::time_point soon = Clock::now() + milliseconds(500);
        const std::optional<std::string> hello = answer_next(door, secret, soon, stream);
        if (!hello) continue;
        heard += *hello;
        if (const std::optional<Frame> more = stream.wait(soon, 1 << 20)) heard += more->payload;
      }
    });
    const std::vector<Told> told = run(
        2,
        [&](ControlOptions& o) {
          if (o.claim.rank != 0) meet_here(o);
          o.timeout = kBriefly;
          o.claim.rank -= o.claim.rank == 0 ? 10 : 0;
        },
        [](Control&) { FAIL(); });
    done = true;
    impostor.join();
    EXPECT_THAT(told[1].error, AllOf(HasSubstr("rank 0 was not found"), HasSubstr(complaint)));
    EXPECT_FALSE(told[1].told);
    EXPECT_THAT(heard, HasSubstr(std::string(kMagic)));
    EXPECT_THAT(heard, Not(HasSubstr("lr = 1")));
  }
}

// Rank 1 has connected, and neither sends nor closes: a stopped process, a lost machine.
TEST_F(StrangersTest, ARankThatGoesSilentIsNamed) {
  expect_verdict_ = true;
  std::vector<Told> told;
  std::thread ranks([&] {
    told = run(
        2,
        [&](ControlOptions& o) {
          o.hang_timeout = std::chrono::seconds(2);
          meet_here(o);
          o.claim.rank -= o.claim.rank == 1 ? 10 : 0;
        },
        [](Control& c) { c.rank_status().enter(Phase::step, 3); });
  });
  Comer silent(port_);
  silent.say_hello();
  silent.claim(claim_of(1, 2));
  ASSERT_TRUE(silent.hear());  // the roster.
  ranks.join();
  EXPECT_THAT(told[0].printed,
              AllOf(HasSubstr("rank 1 (here, cpu)"), HasSubstr(": silent for 2 s: "
                                                               "stopped, or its")));
  EXPECT_EQ(told[0].status, 1);
}

// Rank 0's process is stopped: its port is open, but nothing answers. Its host is not late.
TEST_F(StrangersTest, RankZeroThatIsStoppedBeforeTheMeetingIsNamedAfterTheMeetingsBound) {
  const std::vector<Told> told = run(
      2,
      [&](ControlOptions& o) {
        if (o.claim.rank != 0) meet_here(o);
        o.launch.nodes = 2;
        o.timeout = std::chrono::seconds(1);
        o.claim.rank -= o.claim.rank == 0 ? 10 : 0;
      },
      [](Control&) { FAIL(); });
  // Well before the minute that a host may take.
  EXPECT_THAT(told[1].error,
              AllOf(testing::ContainsRegex("rank 0 was not found within [1-4]?[0-9] s"),
                    HasSubstr("no answer: rank 0 stands still")));
}

// The same once it has let rank 1 in: it sends heartbeats until it stops.
TEST_F(StrangersTest, RankZeroThatStopsInTheMeetingIsNamed) {
  std::thread stops([&] {
    Listener door{Socket(dup(listener_.fd()))};
    std::vector<FrameStream> streams;
    for (const Clock::time_point end = Clock::now() + milliseconds(2500); Clock::now() < end;) {
      FrameStream stream{Socket()};
      if (!answer_next(door, kSecret, end, stream)) continue;
      stream.send(FrameKind::beat, "");
      streams.push_back(std::move(stream));
    }
  });
  const std::vector<Told> told = run(
      2,
      [&](ControlOptions& o) {
        if (o.claim.rank != 0) meet_here(o);
        o.timeout = std::chrono::seconds(1);
        o.claim.rank -= o.claim.rank == 0 ? 10 : 0;
      },
      [](Control&) { FAIL(); });
  stops.join();
  EXPECT_THAT(told[1].error, HasSubstr("no answer: rank 0 stands still"));
}

// Ranks of a host come together; a host may take long to come.
TEST_F(StrangersTest, AHostIsWaitedForLongerThanARankOfAHostThatIsThere) {
  const auto missing = [&](int hosts) {
    return run(
               3,
               [&](ControlOptions& o) {
                 o.launch.nodes = hosts;
                 o.timeout = std::chrono::seconds(1);
                 o.host_timeout = std::chrono::seconds(2);
                 o.claim.rank -= o.claim.rank == 2 ? 10 : 0;
               },
               [](Control&) { FAIL(); })[0]
        .error;
  };
  EXPECT_THAT(missing(1), HasSubstr("rank 2 of 3 did not come within 1 s"));
  EXPECT_THAT(missing(2), HasSubstr("rank 2 of 3 did not come within 2 s"));
}

}  // namespace
}  // namespace rendezvous
