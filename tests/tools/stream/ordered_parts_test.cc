// SPDX-License-Identifier: MIT
// Ordered parts: order, the limit on waiting bytes, and failures at every stage.
#include "tools/stream/ordered_parts.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using namespace std::chrono_literals;

/// `count` parts of part_number pieces; early parts are the slowest.
stream::OrderedPartsJob numbered_parts(int64_t threads, int count, int& next, std::string& out) {
  return {
      .threads = threads,
      .source = [&next, count]() -> stream::PartWork {
        if (next == count) return nullptr;
        return [part = next++, count](const stream::GivePiece& give) {
          for (int i = 0; i < part; ++i) {
            std::this_thread::sleep_for((count - part) * 100us);
            give({.bytes = std::to_string(part) + "." + std::to_string(i) + " ", .documents = 1});
          }
        };
      },
      .sink = [&out](const stream::Piece& piece) { out += piece.bytes; }};
}

TEST(OrderedParts, PiecesComeInTheOrderOfParts) {
  int next = 0;
  std::string one;
  stream::run_ordered_parts(numbered_parts(1, 20, next, one));
  for (const int64_t threads : {2, 5}) {
    next = 0;
    std::string many;
    stream::run_ordered_parts(numbered_parts(threads, 20, next, many));
    EXPECT_EQ(one, many);
  }
  EXPECT_THAT(one, testing::StartsWith("1.0 2.0 2.1 3.0"));
}

TEST(OrderedParts, PiecesThatWaitAreBounded) {
  constexpr int64_t kPiece = 1000;
  std::atomic<int64_t> made = 0;
  int64_t most = 0;
  int64_t sunk = 0;
  int parts = 0;
  stream::run_ordered_parts({.threads = 4,
                             .memory = 5 * kPiece,
                             .source = [&]() -> stream::PartWork {
                               if (parts++ == 6) return nullptr;
                               return [&](const stream::GivePiece& give) {
                                 for (int i = 0; i < 50; ++i) {
                                   give({.bytes = std::string(kPiece, 'x')});
                                   ++made;
                                 }
                               };
                             },
                             .sink =
                                 [&](const stream::Piece&) {
                                   std::this_thread::sleep_for(100us);
                                   most = std::max(most, made - sunk);
                                   ++sunk;
                                 }});
  EXPECT_EQ(sunk, 300);
  // Five wait, one more is let in for the first part, one is sunk, one counted late by each thread.
  EXPECT_LE(most, 5 + 1 + 1 + 4);
}

TEST(OrderedParts, TheEarliestFailureComesAfterThePiecesBeforeIt) {
  for (const int64_t threads : {1, 4}) {
    int next = 0;
    std::string out;
    const auto run = [&] {
      stream::run_ordered_parts({.threads = threads,
                                 .source = [&]() -> stream::PartWork {
                                   return [part = next++](const stream::GivePiece& give) {
                                     give({.bytes = std::to_string(part)});
                                     if (part == 3) std::this_thread::sleep_for(5ms);
                                     if (part >= 3)
                                       throw std::runtime_error("part " + std::to_string(part));
                                   };
                                 },
                                 .sink = [&](const stream::Piece& piece) { out += piece.bytes; }});
    };
    EXPECT_THAT(run, testing::ThrowsMessage<std::runtime_error>("part 3"));
    EXPECT_EQ(out, "0123");
  }
}

TEST(OrderedParts, AFailingSinkOrSourceEndsTheRun) {
  for (const int64_t threads : {1, 4}) {
    const auto endless = [&](const std::function<void(const stream::Piece&)>& sink) {
      stream::run_ordered_parts({.threads = threads,
                                 .memory = 10,
                                 .source = []() -> stream::PartWork {
                                   return [](const stream::GivePiece& give) {
                                     for (int i = 0; i < 100; ++i) give({.bytes = "12345678"});
                                   };
                                 },
                                 .sink = sink});
    };
    EXPECT_THAT([&] { endless([](const stream::Piece&) { throw std::runtime_error("disk"); }); },
                testing::ThrowsMessage<std::runtime_error>("disk"));
    int calls = 0;
    EXPECT_THAT(
        [&] {
          stream::run_ordered_parts({.threads = threads,
                                     .source = [&]() -> stream::PartWork {
                                       if (calls++ == 2) throw std::runtime_error("source");
                                       return [](const stream::GivePiece&) {};
                                     },
                                     .sink = [](const stream::Piece&) {}});
        },
        testing::ThrowsMessage<std::runtime_error>("source"));
  }
}

}  // namespace
