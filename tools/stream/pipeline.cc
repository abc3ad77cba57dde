// SPDX-License-Identifier: MIT
// Room: tools/stream. Each thread sinks what is next in order, else reads and works, else sleeps.
// oneTBB's pipeline is not used: its threads spin while they look for work, which is expensive when
// the sink is the slowest stage and there are many threads (bench/history/tokenizing.md).
#include "tools/stream/pipeline.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <sched.h>

namespace stream {
namespace {

/// One run of the three stages. An exception travels inside its item to the sink, which sees the
/// earliest item first.
class OrderedRun {
 public:
  OrderedRun(int64_t threads, int64_t items, const std::function<bool(int64_t)>& source,
             const std::function<void(int64_t, int64_t)>& work,
             const std::function<void(int64_t)>& sink)
      : source_(source),
        work_(work),
        sink_(sink),
        most_threads_(threads),
        failures_(static_cast<size_t>(items)),
        worked_(static_cast<size_t>(items), kNone) {
    for (int64_t i = 0; i < items; ++i) free_.push_back(i);
    others_.reserve(static_cast<size_t>(threads));
  }

  /// On this thread and those that it starts.
  void run() {
    serve(0);
    others_.clear();  // joins them
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr int64_t kNone = -1;

  void serve(int64_t thread) {
    Lock lock(mutex_);
    while (true) {
      if (stopped_ || (ended_ && sunk_ == read_)) {
        changed_.notify_all();
        return;
      }
      if (!sinking_ && worked_at(sunk_) != kNone) {
        sink_next(lock);
      } else if (!reading_ && !ended_ && !free_.empty()) {
        read_and_work(lock, thread);
      } else {
        changed_.wait(lock);
      }
    }
  }

  void sink_next(Lock& lock) {
    const int64_t item = std::exchange(worked_at(sunk_), kNone);
    if ((failure_ = failure_of(item))) {
      ended_ = stopped_ = true;
      return;
    }
    sinking_ = true;
    lock.unlock();
    std::exception_ptr failure = guarded([&] { sink_(item); });
    lock.lock();
    sinking_ = false;
    ++sunk_;
    free_.push_back(item);
    if ((failure_ = failure)) ended_ = stopped_ = true;
    if (!reading_ && !ended_) changed_.notify_one();
  }

  void read_and_work(Lock& lock, int64_t thread) {
    const int64_t item = free_.back();
    free_.pop_back();
    reading_ = true;
    lock.unlock();
    bool more = false;
    std::exception_ptr failure = guarded([&] { more = source_(item); });
    lock.lock();
    reading_ = false;
    ended_ = ended_ || !more;
    if (!more && !failure) return;
    const int64_t number = read_++;
    if (!ended_) changed_.notify_one();
    if (!ended_) start_another();
    lock.unlock();
    if (!failure) failure = guarded([&] { work_(item, thread); });
    lock.lock();
    failure_of(item) = failure;
    worked_at(number) = item;
  }

  /// Threads are started one after another, as long as there is something to read for them.
  void start_another() {
    const int64_t next = static_cast<int64_t>(others_.size()) + 1;
    if (next >= most_threads_) return;
    try {
      others_.emplace_back([this, next] { serve(next); });
    } catch (const std::exception&) {
      most_threads_ = next;  // no more threads are available: those that run do the work
    }
  }

  template <class Stage>
  static std::exception_ptr guarded(const Stage& stage) {
    try {
      stage();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  std::exception_ptr& failure_of(int64_t item) { return failures_[static_cast<size_t>(item)]; }
  int64_t& worked_at(int64_t number) {
    return worked_[static_cast<size_t>(number) % worked_.size()];
  }

  const std::function<bool(int64_t)>& source_;
  const std::function<void(int64_t, int64_t)>& work_;
  const std::function<void(int64_t)>& sink_;

  std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  int64_t most_threads_;
  std::vector<int64_t> free_;  // items that no stage holds; the memory of the last one may be in
                               // caches
  std::vector<std::exception_ptr> failures_;  // of each item
  std::vector<int64_t> worked_;               // the item that came as number n, at n modulo items
  int64_t read_ = 0;                          // items read so far
  int64_t sunk_ = 0;                          // items sunk so far
  bool reading_ = false;                      // a thread is in the source
  bool sinking_ = false;                      // a thread is in the sink
  bool ended_ = false;                        // nothing more is read
  bool stopped_ = false;                      // nor sunk
  std::exception_ptr failure_;
  std::vector<std::jthread> others_;  // last member: joined before the others are destroyed
};

void run_on_one_thread(const std::function<bool(int64_t)>& source,
                       const std::function<void(int64_t, int64_t)>& work,
                       const std::function<void(int64_t)>& sink) {
  while (source(0)) {
    work(0, 0);
    sink(0);
  }
}

}  // namespace

int64_t threads_for(int64_t workers) {
  cpu_set_t set;
  const int64_t processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return workers == 0 ? processors : std::clamp<int64_t>(workers, 1, 4 * processors);
}

void run_parts(int64_t threads, size_t count, const std::function<void(size_t)>& part) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        part(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (size_t i = 1; i < std::min(static_cast<size_t>(threads), count); ++i)
        others.emplace_back(work);
    } catch (const std::system_error&) {
      // No more are to be had: those that are there do the work.
    }
    work();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void run_ordered(int64_t threads, int64_t items, const std::function<bool(int64_t)>& source,
                 const std::function<void(int64_t, int64_t)>& work,
                 const std::function<void(int64_t)>& sink) {
  if (threads == 1) return run_on_one_thread(source, work, sink);
  OrderedRun(threads, items, source, work, sink).run();
}

}  // namespace stream
