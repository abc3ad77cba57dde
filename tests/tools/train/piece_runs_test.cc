// SPDX-License-Identifier: MIT
// Counted pieces on disk: their sum is exact for any number of runs and any memory to read them
// with; the limit of counts is the lowest that fits, found here by trying all.
#include "tools/train/piece_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "tests/own.h"

namespace train {
namespace {

using Counts = std::map<std::string, int64_t>;

std::string random_piece(std::mt19937& random) {
  const size_t longest = random() % 50 == 0 ? 9000 : random() % 8 == 0 ? 300 : 6;
  std::string piece(1 + random() % longest, ' ');
  for (char& c : piece) c = static_cast<char>(random() % 5 == 0 ? random() : 'a' + random() % 4);
  return piece;
}

Counts summed(const PieceRuns& runs, int64_t buffer_bytes) {
  Counts out;
  std::string last;
  runs.sum(buffer_bytes, [&](std::string_view piece, int64_t count) {
    EXPECT_TRUE(out.empty() || last < piece) << "ascending, each piece once";
    last = piece;
    out[last] = count;
  });
  return out;
}

TEST(PieceRuns, SumIsExactForAnyRunsAndAnyMemory) {
  std::mt19937 random(3);
  const tests::OwnFolder folder;
  for (const int num_runs : {0, 1, 2, 9}) {
    PieceRuns runs(folder / "vocab.json");
    EXPECT_TRUE(runs.empty());
    Counts expected;
    int64_t bytes = 0;
    for (int run = 0; run < num_runs; ++run) {
      Counts one;
      for (int i = 0; i < 800; ++i)
        one[random_piece(random)] += static_cast<int64_t>(1 + random() % 3) << random() % 36;
      tok::PieceCounts counts;
      for (const auto& [piece, count] : one) {
        counts.add(piece, count);
        expected[piece] += count;
        bytes += 12 + static_cast<int64_t>(piece.size());
      }
      runs.add(counts);
      runs.add(tok::PieceCounts());  // an empty run is none
      EXPECT_FALSE(runs.empty());
    }
    EXPECT_EQ(runs.bytes(), bytes);
    for (const int64_t memory : {0, 20'000, 1'000'000, 100'000'000})
      EXPECT_EQ(summed(runs, memory), expected) << num_runs << " runs, " << memory;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the file has no name";
}

/// The lowest limit whose pieces fit into `memory`, by trying all.
Limit by_trying(const std::vector<std::pair<std::string, int64_t>>& pieces, int64_t memory) {
  Limit limit;
  for (;; ++limit.least_count) {
    int64_t kept = 0, bytes = 0;
    limit.pieces = limit.occurrences = 0;
    for (const auto& [piece, count] : pieces) {
      if (count >= limit.least_count) {
        ++kept;
        bytes += static_cast<int64_t>(piece.size());
      } else {
        ++limit.pieces;
        limit.occurrences += count;
      }
    }
    if (limit.least_count == LimitFinder::kMany ||
        static_cast<int64_t>(tok::training_memory_bytes(kept, bytes)) <= memory)
      return limit;
  }
}

TEST(LimitFinder, FindsTheLowestCountThatFits) {
  std::mt19937 random(5);
  std::vector<std::pair<std::string, int64_t>> pieces;
  LimitFinder finder;
  int64_t bytes = 0;
  // Many rare pieces, and some around the class that is never left out.
  const int64_t frequent[] = {LimitFinder::kMany - 2, LimitFinder::kMany - 1, LimitFinder::kMany,
                              LimitFinder::kMany + 1, 1 << 20};
  for (int i = 0; i < 400; ++i) {
    const int64_t count =
        i % 4 == 0 ? frequent[random() % 5] : 1 + static_cast<int64_t>(random() % 12);
    pieces.emplace_back(random_piece(random).substr(0, 40), count);
    finder.add(pieces.back().first, count);
    bytes += static_cast<int64_t>(pieces.back().first.size());
  }
  const int64_t all = static_cast<int64_t>(tok::training_memory_bytes(400, bytes));
  EXPECT_EQ(finder.find(all).least_count, 1);
  EXPECT_EQ(finder.find(all - 1).least_count, 2);
  EXPECT_EQ(finder.find(0).least_count, LimitFinder::kMany) << "frequent pieces always stay";
  for (int64_t memory = 0; memory <= all + 1000; memory += all / 30) {
    const Limit found = finder.find(memory), expected = by_trying(pieces, memory);
    EXPECT_EQ(found.least_count, expected.least_count) << memory;
    EXPECT_EQ(found.pieces, expected.pieces) << memory;
    EXPECT_EQ(found.occurrences, expected.occurrences) << memory;
  }
}

}  // namespace
}  // namespace train
