// Ranks as threads in a rendezvous: each has its own Control, and records what it was told.
// control_test.cc and verdict_test.cc have the well-behaved ones, strangers_test.cc the others.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/rendezvous/control.h"
#include "trainer/rendezvous/server.h"
#include "trainer/rendezvous/sha256.h"
#include "trainer/rendezvous/wire.h"

namespace rendezvous {

/// For ranks that will not come.
inline constexpr std::chrono::seconds kBriefly{3};

/// What happened on one rank.
struct Told {
  std::string error;  ///< Of the meeting.
  bool told = false;  ///< Rank 0 has the same.
  MeetingEnd end = MeetingEnd::failed;
  std::string printed;  ///< The verdict's line.
  int status = -1;      ///< The verdict's.
};

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    std::string name = std::filesystem::temp_directory_path() / "control.XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~ControlTest() override { std::filesystem::remove_all(folder_); }

  ControlOptions options(int rank, int size) const {
    ControlOptions o;
    o.launch = {.launcher = "trainer", .rank = rank, .world_size = size, .local_size = size};
    o.claim = {.rank = rank,
               .world_size = size,
               .local_rank = rank,
               .host = "here",
               .device = "cpu",
               .version = "1",
               .config = "lr = 1\nseed = 2\n",
               .pid = 100 + rank};
    o.timeout = o.host_timeout = std::chrono::minutes(1);
    o.hang_timeout = std::chrono::seconds(5);
    o.meeting_file = folder_ + "/meeting";
    return o;
  }

  /// Runs `body` on `size` ranks after `change` has changed each rank's options.
  std::vector<Told> run(int size, const std::function<void(ControlOptions&)>& change,
                        const std::function<void(Control&)>& body) const {
    std::vector<Told> told(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        Told& mine = told[static_cast<size_t>(rank)];
        std::mutex mutex;
        std::condition_variable changed;
        ControlOptions o = options(rank, size);
        o.print = [&](const std::string& line) { mine.printed = line; };
        o.end_process = [&](int status) {
          const std::lock_guard<std::mutex> lock(mutex);
          mine.status = status;
          changed.notify_all();
        };
        change(o);
        if (o.claim.rank < 0) return;  // never comes.
        try {
          Control control(o);
          try {
            body(control);
          } catch (const MeetingError&) {
            throw;
          } catch (const ops::DeviceError&) {  // the connection ended first; the verdict follows
            if (!expect_verdict_) throw;
          }
          std::unique_lock<std::mutex> lock(mutex);
          if (expect_verdict_)
            changed.wait_for(lock, std::chrono::seconds(60), [&] { return mine.status >= 0; });
        } catch (const MeetingError& error) {
          mine.error = error.what();
          mine.told = error.told;
          mine.end = error.end;
        }
      });
    for (std::thread& thread : threads) thread.join();
    return told;
  }

  std::string folder_;
  bool expect_verdict_ = false;
};

inline const std::string kSecret = "the secret of this job";

/// A peer that knows the secret, and sends its own messages.
class Comer {
 public:
  explicit Comer(int port, std::string nonce = random_bytes(kNonce))
      : stream_(Socket()), nonce_(std::move(nonce)) {
    std::string why;
    stream_ = FrameStream(
        connect_to("127.0.0.1", port, Clock::now() + std::chrono::milliseconds(2000), why));
  }
  void say_hello() {
    stream_.send(FrameKind::hello,
                 std::string(kMagic) + nonce_ + proof(kSecret, "hello", nonce_, "", ""));
    const std::optional<Frame> answer = hear();
    if (answer) theirs_ = answer->payload.substr(0, kNonce);
  }
  void claim(const Claim& claim) {
    Packer payload;
    pack(payload, claim);
    const std::string text = payload.take();
    say(FrameKind::claim,
        Packer().text(text).text(proof(kSecret, "claim", nonce_, theirs_, text)).take());
  }
  void say(FrameKind kind, const std::string& payload) { stream_.send(kind, payload); }
  /// The next message that is not a heartbeat; nothing once the other side has closed.
  std::optional<Frame> hear() {
    while (true) {
      std::optional<Frame> frame = stream_.wait(Clock::now() + std::chrono::seconds(20), 1 << 20);
      if (!frame || frame->kind != FrameKind::beat) return frame;
    }
  }
  bool connected() const { return stream_.fd() >= 0; }
  bool welcome() const { return !theirs_.empty(); }

 private:
  FrameStream stream_;
  std::string nonce_, theirs_;
};

}  // namespace rendezvous
