// SPDX-License-Identifier: MIT
// Room: tools/stream. The only file that includes oneTBB. Exceptions travel inside their item to
// the sink, which comes to the earliest first; TBB itself would throw whichever happened first in
// time.
#include "tools/stream/pipeline.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include <sched.h>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace stream {
namespace {

namespace tbb = oneapi::tbb;

/// What goes from thread to thread is told to ThreadSanitizer: TBB's library is not instrumented,
/// and the order that it gives things invisible. Nothing else is done.
void take_over([[maybe_unused]] const void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<void*>(what));
#endif
}
void hand_over([[maybe_unused]] const void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<void*>(what));
#endif
}

/// Its place stands for what was made before a pipeline began.
constexpr char kPrepared = 0;

/// What TBB copies and calls of a stage.
template <class Stage>
struct Body {
  const Stage& stage;
  template <class Argument>
  __attribute__((no_sanitize_thread)) auto operator()(Argument&& argument) const {
    take_over(&kPrepared);
    return stage(argument);
  }
};

/// One run of a stage, on an item: it takes over what the stage and the item before left, and hands
/// both on, to the end of the pipeline too.
struct Turn {
  void* stage;
  void* item;
  void* end;
  Turn(void* of_stage, void* on_item, void* at_end) : stage(of_stage), item(on_item), end(at_end) {
    take_over(stage);
    take_over(item);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    for (void* what : {stage, item, end}) hand_over(what);
  }
};

/// The end of the pipeline, however it comes.
struct End {
  void* end;
  ~End() { take_over(end); }
};

/// Numbers of the items that no stage holds. A thread gets the one that it gave back last, whose
/// memory its caches still have, before any other.
class FreeItems {
 public:
  FreeItems(int64_t count, int64_t threads) : free_(static_cast<size_t>(threads)) {
    for (int64_t i = 0; i < count; ++i) of(i % threads).push_back(i);
  }

  int64_t take(int64_t thread) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<int64_t>* from = &of(thread);
    // There is one somewhere: TBB has as many tokens.
    for (size_t other = 0; from->empty(); ++other) from = &free_[other];
    const int64_t item = from->back();
    from->pop_back();
    return item;
  }

  void give_back(int64_t item, int64_t thread) {
    const std::lock_guard<std::mutex> lock(mutex_);
    of(thread).push_back(item);
  }

 private:
  std::vector<int64_t>& of(int64_t thread) { return free_[static_cast<size_t>(thread)]; }

  std::mutex mutex_;
  std::vector<std::vector<int64_t>> free_;  // of each thread
};

int64_t this_thread() { return tbb::this_task_arena::current_thread_index(); }

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
    for (size_t i = 1; i < std::min(static_cast<size_t>(threads), count); ++i) {
      others.emplace_back(work);
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
  FreeItems free(items, threads);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(items));
  const auto guarded = [&](int64_t item, const auto& stage) {
    std::exception_ptr& failure = failures[static_cast<size_t>(item)];
    if (failure) return;
    try {
      stage();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  bool ended = false;
  bool sunk = false;
  const auto read = [&](tbb::flow_control& control) -> int64_t {
    Turn turn(&ended, &ended, &free);
    if (ended) {
      control.stop();
      return 0;
    }
    const int64_t item = free.take(this_thread());
    turn.item = &failures[static_cast<size_t>(item)];
    bool more = false;
    guarded(item, [&] { more = source(item); });
    ended = !more;
    if (!more && !failures[static_cast<size_t>(item)]) {
      free.give_back(item, this_thread());
      control.stop();
    }
    return item;
  };
  const auto transform = [&](int64_t item) -> int64_t {
    std::exception_ptr& of_item = failures[static_cast<size_t>(item)];
    const Turn turn(&of_item, &of_item, &free);
    guarded(item, [&] { work(item, this_thread()); });
    return item;
  };
  const auto write = [&](int64_t item) {
    const Turn turn(&sunk, &failures[static_cast<size_t>(item)], &free);
    if (failures[static_cast<size_t>(item)])
      std::rethrow_exception(failures[static_cast<size_t>(item)]);
    sink(item);
    free.give_back(item, this_thread());
  };
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                                  static_cast<size_t>(threads));
  tbb::task_arena arena(static_cast<int>(threads));
  hand_over(&kPrepared);
  const End end{&free};
  arena.execute([&] {
    tbb::parallel_pipeline(
        static_cast<size_t>(items),
        tbb::make_filter<void, int64_t>(tbb::filter_mode::serial_in_order, Body{read}) &
            tbb::make_filter<int64_t, int64_t>(tbb::filter_mode::parallel, Body{transform}) &
            tbb::make_filter<int64_t, void>(tbb::filter_mode::serial_in_order, Body{write}));
  });
}

}  // namespace stream
