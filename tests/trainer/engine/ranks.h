// Ranks as threads of the test's process, each with real Groups over TCP on the loopback.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/comm/tcp.h"
#include "trainer/parallel/groups.h"

namespace ranks {

/// Options for the ranks of a test.
struct Options {
  int world = 2, tensor = 1, pipeline = 1;
  std::chrono::seconds watchdog{120};  ///< Then the test's process is aborted with a message.
  std::chrono::milliseconds timeout{30'000};  ///< Of one wait for a peer.
};

/// Runs `body` once per rank, each on its own thread, and returns when all have ended. When some
/// throw, rethrows the first exception that is not a lost peer, else the first; the others then end
/// with a lost connection.
inline void run_ranks(const Options& options, const std::function<void(trainer::Groups)>& body) {
  rendezvous::MemoryStore store;
  std::mutex mutex;
  std::condition_variable changed;
  std::exception_ptr failure;
  bool cause = false;  // Whether `failure` is not just a consequence of another rank's.
  int ended = 0;
  const auto one = [&](int rank) {
    try {
      body(trainer::make_groups(
          trainer::make_topology(rank, options.world, options.tensor, options.pipeline),
          [&](const trainer::GroupPlace& place) {
            comm::TcpOptions tcp{.name = place.name,
                                 .id = place.id,
                                 .rank = place.rank,
                                 .size = static_cast<int>(place.ranks.size()),
                                 .timeout = options.timeout};
            return comm::make_tcp_comm(tcp, store);
          }));
    } catch (const comm::PeerError&) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failure) failure = std::current_exception();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failure || !cause) failure = std::current_exception();
      cause = true;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    ++ended;
    changed.notify_all();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.world; ++rank) threads.emplace_back(one, rank);
  {
    std::unique_lock<std::mutex> lock(mutex);
    if (!changed.wait_for(lock, options.watchdog, [&] { return ended == options.world; })) {
      std::fprintf(stderr, "run_ranks: %d of %d ranks ended after %lld s\n", ended, options.world,
                   static_cast<long long>(options.watchdog.count()));
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

inline void run_ranks(int world, int tensor, int pipeline,
                      const std::function<void(trainer::Groups)>& body) {
  run_ranks(Options{.world = world, .tensor = tensor, .pipeline = pipeline}, body);
}

}  // namespace ranks
