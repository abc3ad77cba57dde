// SPDX-License-Identifier: MIT
// Work that threads share: every number once, and of what goes wrong the first.
#include "libindexed/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace indexed {
namespace {

TEST(Workers, EveryNumberIsTakenOnce) {
  for (const int threads : {1, 3, 50}) {
    std::vector<std::atomic<int>> taken(1000);
    share_work(1000, threads, [&](int64_t i) { ++taken[static_cast<size_t>(i)]; });
    for (const std::atomic<int>& count : taken) ASSERT_EQ(count, 1);
  }
  share_work(0, 4, [](int64_t) { FAIL(); });
}

TEST(Workers, OneThreadIsTheCallers) {
  const std::thread::id caller = std::this_thread::get_id();
  int64_t next = 0;
  share_work(20, 1, [&](int64_t i) {
    EXPECT_EQ(i, next++);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  EXPECT_EQ(next, 20);
}

TEST(Workers, AnErrorEndsTheWork) {
  for (const int threads : {1, 4}) {
    std::atomic<int> taken = 0;
    EXPECT_THROW(share_work(1000, threads,
                            [&](int64_t) {
                              ++taken;
                              throw std::runtime_error("full");
                            }),
                 std::runtime_error);
    EXPECT_LE(taken, threads);
  }
}

}  // namespace
}  // namespace indexed
