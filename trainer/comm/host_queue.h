// HostQueue: runs work in order on its own thread, like a device's queue, so that processes without
// GPUs compute and communicate at the same time. Not here: the work (tcp.cc). May include:
// rank_status.h, ops/tensor.h.
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

/// A thread and its work, first in, first out. One thread queues; any may wait.
class HostQueue {
 public:
  /// `rank_status`, if any, is told how long threads wait at this queue's marks.
  explicit HostQueue(rendezvous::RankStatus* rank_status = nullptr);
  /// Drops work that has not begun, waits for work that has.
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// Queues `work`. Errors: rethrows what earlier work threw; nothing runs after a failure.
  void add(std::function<void()> work);
  /// The end of all queued work; waiting for it rethrows what the work threw.
  ops::Mark mark();
  /// Queued work runs after `mark`.
  void follow(const ops::Mark& mark);
  /// Waits for all queued work. Errors: rethrows what the work threw.
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
