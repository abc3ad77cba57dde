// HostQueue: one lock, one thread.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/host_queue.h"

#include <chrono>
#include <csignal>
#include <utility>

namespace comm {

HostQueue::HostQueue(rendezvous::RankStatus* rank_status)
    : rank_status_(rank_status), thread_([this] { run(); }) {}

HostQueue::~HostQueue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void HostQueue::add(std::function<void()> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  work_.push_back(std::move(work));
  ++queued_;
  changed_.notify_all();
}

ops::Mark HostQueue::mark() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {.event = this, .serial = queued_, .wait_on_host = &HostQueue::wait_on_host};
}

void HostQueue::follow(const ops::Mark& mark) {
  if (mark.wait_on_host != nullptr) add([mark] { mark.wait_on_host(mark); });
}

void HostQueue::wait() { wait_for(mark().serial); }

bool HostQueue::failed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_ != nullptr;
}

void HostQueue::wait_on_host(const ops::Mark& mark) {
  HostQueue& queue = *static_cast<HostQueue*>(mark.event);
  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  queue.wait_for(mark.serial);
  if (queue.rank_status_ != nullptr)
    queue.rank_status_->add_wait(std::chrono::steady_clock::now() - begin);
}

void HostQueue::wait_for(uint64_t serial) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= serial || failure_ || ending_; });
  if (done_ >= serial) return;
  if (failure_) std::rethrow_exception(failure_);
  throw ops::DeviceError("comm: the queue ended with work in it");
}

void HostQueue::run() {
  // Blocks SIGPIPE: writing to a connection that the peer has closed then fails with EPIPE, which
  // is reported with the peer's name, and does not end this process.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !work_.empty(); });
    if (ending_) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
      work_.clear();
    } else {
      ++done_;
    }
    changed_.notify_all();
  }
}

}  // namespace comm
