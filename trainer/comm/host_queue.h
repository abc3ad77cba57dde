// HostQueue: work in order on a thread of its own, as a device's queue has it: a Comm of processes
// without GPUs computes and talks at the same time by it. Not here: what the work is (tcp.cc). May
// include: rank_status.h, ops/tensor.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "trainer/ops/tensor.h"
#include "trainer/rendezvous/rank_status.h"

namespace comm {

/// A thread and the work it will do, first in, first out. One thread queues; any may wait.
class HostQueue {
 public:
  /// `rank_status`, if any, hears how long threads stand at this queue's marks.
  explicit HostQueue(rendezvous::RankStatus* rank_status = nullptr);
  /// Drops what has not begun, waits for what has.
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// Queues `work`. Errors: what earlier work threw; nothing runs after a failure.
  void add(std::function<void()> work);
  /// The end of all that is queued; waiting for it throws what the work threw.
  ops::Mark mark();
  /// Queued work runs after `mark`.
  void follow(const ops::Mark& mark);
  /// Waits for all that is queued. Errors: what the work threw.
  void wait();
  bool failed();

 private:
  static void wait_on_host(const ops::Mark& mark);
  void wait_for(uint64_t serial);
  void run();

  rendezvous::RankStatus* const rank_status_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t queued_ = 0, done_ = 0;
  bool ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace comm
