// SPDX-License-Identifier: MIT
// Tests of the ordered pipeline: order, bounds, and which of several failures is reported.
#include "tools/stream/pipeline.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <gtest/gtest.h>

namespace stream {
namespace {

struct Item {
  int64_t number = 0;
  int64_t square = 0;
};

void pause(int64_t number) {
  std::this_thread::sleep_for(std::chrono::microseconds((number * 7919) % 97));
}

TEST(RunParts, AllEndAndTheFirstFailureIsTold) {
  for (const int64_t threads : {1, 2, 5}) {
    for (const size_t count : {0, 1, 2, 7, 100}) {
      std::vector<std::atomic<int>> done(count);
      run_parts(threads, count, [&](size_t part) { ++done.at(part); });
      for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
    }
    std::vector<std::atomic<int>> begun(9);
    try {
      run_parts(threads, begun.size(), [&](size_t part) {
        ++begun.at(part);
        pause(static_cast<int64_t>(9 - part));
        if (part >= 3) throw std::runtime_error(std::to_string(part));
      });
      ADD_FAILURE() << "no failure";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "3");
    }
    for (const std::atomic<int>& times : begun) EXPECT_EQ(times, 1);
  }
}

class Ordered : public testing::TestWithParam<int64_t> {};

TEST_P(Ordered, SinkSeesTheOrderOfTheSource) {
  constexpr int64_t kItems = 3000;
  int64_t next = 0;
  int64_t expected = 0;
  std::atomic<int64_t> open = 0;
  std::vector<std::atomic<int>> busy(static_cast<size_t>(GetParam()));
  run_ordered<Item>(
      GetParam(),
      [&](Item& item) {
        if (next == kItems) return false;
        item.number = next++;
        EXPECT_LE(++open, 2 * GetParam());
        return true;
      },
      [&](Item& item, int64_t thread) {
        EXPECT_EQ(busy.at(static_cast<size_t>(thread))++, 0);
        if (item.number % 10 == 0) pause(item.number);
        item.square = item.number * item.number;
        --busy.at(static_cast<size_t>(thread));
      },
      [&](Item& item) {
        EXPECT_EQ(item.number, expected++);
        EXPECT_EQ(item.square, item.number * item.number);
        --open;
      });
  EXPECT_EQ(expected, kItems);
}

TEST_P(Ordered, TheEarliestFailureIsTold) {
  for (int round = 0; round < 20; ++round) {
    int64_t next = 0;
    int64_t sunk = 0;
    try {
      run_ordered<Item>(
          GetParam(),
          [&](Item& item) {
            if (next == 60) throw std::runtime_error("source 60");
            item.number = next++;
            return true;
          },
          [&](Item& item, int64_t) {
            if (item.number == 50) pause(40);  // the later ones fail first
            if (item.number >= 50) throw std::runtime_error("work " + std::to_string(item.number));
          },
          [&](Item&) { ++sunk; });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "work 50");
    }
    EXPECT_EQ(sunk, 50);
  }
}

TEST_P(Ordered, FailuresOfSourceAndSink) {
  int64_t next = 0;
  int64_t sunk = 0;
  const auto source = [&](Item&) -> bool {
    if (next++ == 7) throw std::runtime_error("source");
    return true;
  };
  EXPECT_THROW(run_ordered<Item>(
                   GetParam(), source, [](Item&, int64_t) {}, [&](Item&) { ++sunk; }),
               std::runtime_error);
  EXPECT_EQ(sunk, 7);
  next = -1000;
  sunk = 0;
  EXPECT_THROW(run_ordered<Item>(
                   GetParam(), source, [](Item&, int64_t) {},
                   [&](Item&) {
                     if (++sunk == 20) throw std::logic_error("sink");
                   }),
               std::logic_error);
  EXPECT_EQ(sunk, 20);
}

TEST_P(Ordered, ThreadsWithoutWorkSleep) {
  const auto processor_seconds = [] {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
  };
  int64_t next = 0;
  const double before = processor_seconds();
  run_ordered<Item>(
      GetParam(), [&](Item&) { return next++ < 100; }, [](Item&, int64_t) {},
      [](Item&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  // The sink sleeps for half a second; a thread that waited actively would use that much processor
  // time.
  EXPECT_LT(processor_seconds() - before, 0.25);
}

TEST_P(Ordered, ThreadsThatCannotBeHadAreDoneWithout) {
  pthread_attr_t usual;
  pthread_attr_t none;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&none), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&none, size_t{1} << 50), 0);  // no address space has this
  ASSERT_EQ(pthread_setattr_default_np(&none), 0);
  int64_t next = 0;
  int64_t sunk = 0;
  run_ordered<Item>(
      GetParam(), [&](Item&) { return next++ < 100; },
      [](Item&, int64_t thread) { EXPECT_EQ(thread, 0); }, [&](Item&) { ++sunk; });
  EXPECT_EQ(sunk, 100);
  pthread_setattr_default_np(&usual);
  pthread_attr_destroy(&none);
  pthread_attr_destroy(&usual);
}

INSTANTIATE_TEST_SUITE_P(Threads, Ordered, testing::Values(1, 2, 5));

/// Those that this process may use.
int64_t processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

TEST(Threads, AreBounded) {
  EXPECT_EQ(threads_for(1), 1);
  EXPECT_EQ(threads_for(0), processors());
  EXPECT_EQ(threads_for(1000000), 4 * processors());
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int i = 0; CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(threads_for(0), 1) << "only those that this process may use count";
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  EXPECT_GE(threads_for(1000000), 4);
  EXPECT_LT(threads_for(1000000), 1000000);
}

}  // namespace
}  // namespace stream
