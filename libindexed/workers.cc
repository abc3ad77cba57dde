// SPDX-License-Identifier: MIT
// workers.h: one counter that all threads take numbers from.
#include "libindexed/workers.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <latch>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace indexed {

void share_work(int64_t count, int threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;  // of error
  const auto run = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) others.emplace_back(run);
    } catch (const std::system_error&) {
      // No more are to be had: those that are there do the work.
    }
    run();
  }
  if (error) std::rethrow_exception(error);
}

int allowed_threads(int wanted) {
  std::latch all_tried(1);
  std::vector<std::jthread> others;
  try {
    while (static_cast<int>(others.size()) + 1 < wanted)
      others.emplace_back([&] { all_tried.wait(); });
  } catch (const std::exception&) {
    // These are all.
  }
  all_tried.count_down();
  return static_cast<int>(others.size()) + 1;
}

int copying_threads() noexcept {
  constexpr unsigned kMost = 16;  // more wait for one another in the kernel's page cache
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMost));
}

}  // namespace indexed
