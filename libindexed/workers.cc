// SPDX-License-Identifier: MIT
// workers.h: one counter that all threads take numbers from.
#include "libindexed/workers.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
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
    for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) others.emplace_back(run);
    run();
  }
  if (error) std::rethrow_exception(error);
}

int copying_threads() noexcept {
  constexpr unsigned kMost = 16;  // more wait for one another in the kernel's page cache
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kMost));
}

}  // namespace indexed
