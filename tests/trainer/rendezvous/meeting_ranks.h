// Ranks as threads in a rendezvous: each has its own Control, and records what it was told.
// control_test.cc has the well-behaved ones, strangers_test.cc the others.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/rendezvous/control.h"

namespace rendezvous {

/// For ranks that will not come.
inline constexpr std::chrono::seconds kBriefly{3};

/// What happened on one rank.
struct Told {
  std::string error;    ///< Of the meeting.
  bool told = false;    ///< Rank 0 has the same.
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
        }
      });
    for (std::thread& thread : threads) thread.join();
    return told;
  }

  std::string folder_;
  bool expect_verdict_ = false;
};

}  // namespace rendezvous
