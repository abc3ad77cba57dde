// SPDX-License-Identifier: MIT
// Near duplicates: words, the chance that documents meet, groups on disk and in memory.
#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/indexed/scratch.h"
#include "tools/dedup/groups.h"
#include "tools/dedup/min_hash.h"
#include "tools/dedup/shingles.h"

namespace {

using testing::IsEmpty;
using testing::SizeIs;

std::vector<uint64_t> shingles_of(const std::vector<std::string_view>& texts, int64_t ngram) {
  dedup::Shingler shingler(ngram);
  std::vector<uint64_t> all;
  const auto sink = [&](std::span<const uint64_t> next) {
    all.insert(all.end(), next.begin(), next.end());
  };
  for (const std::string_view text : texts) shingler.add(text, sink);
  shingler.finish(sink);
  return all;
}

std::vector<uint64_t> shingles_of(std::string_view text, int64_t ngram = 1) {
  return shingles_of(std::vector{text}, ngram);
}

std::vector<uint64_t> keys_of(const dedup::MinHash& hash, std::span<const uint64_t> shingles) {
  std::vector<uint64_t> minima, keys;
  hash.add(shingles, minima);
  hash.append_keys(minima, keys);
  return keys;
}

TEST(Shingles, OnlyWordsCount) {
  const std::vector<uint64_t> plain = shingles_of("the café has 3 doors");
  EXPECT_THAT(plain, SizeIs(5));
  EXPECT_EQ(plain, shingles_of("  The CAFÉ -- has\n(3) doors!"));
  EXPECT_NE(plain, shingles_of("the cafe has 3 doors"));
  EXPECT_NE(plain, shingles_of("the café has three doors"));
  EXPECT_THAT(shingles_of("snake_case is one"), SizeIs(3));
  EXPECT_THAT(shingles_of("... !? \n"), IsEmpty());
  EXPECT_THAT(shingles_of("हिन्दी में"), SizeIs(2)) << "marks belong to their word";
}

// Soft hyphens, joiners, marks of direction and a byte order mark are not seen by a reader.
TEST(Shingles, FormatCharactersAreNotSeen) {
  EXPECT_EQ(shingles_of("hy\u00adphen\u00adated \ufeffwords\u200e"),
            shingles_of("hyphenated words"));
  EXPECT_EQ(shingles_of("می\u200cخواهم"), shingles_of("میخواهم"));
  EXPECT_EQ(shingles_of("两\u2060岁"), shingles_of("两岁"));
  EXPECT_EQ(shingles_of("two\u200bwords"), shingles_of("two words")) << "a space of no width";
}

// What Python's str.lower makes of capitals: "ΟΔΟΣ" and "ὈΔΥΣΣΕΎΣ" end in the final sigma.
TEST(Shingles, CapitalsEqualTheirGreekText) {
  EXPECT_EQ(shingles_of("ΟΔΟΣ ΣΑΣ"), shingles_of("οδος σας"));
  EXPECT_EQ(shingles_of("ὈΔΥΣΣΕΎΣ"), shingles_of("ὀδυσσεύς"));
  EXPECT_NE(shingles_of("οδος"), shingles_of("οδοι"));
}

TEST(Shingles, CharactersAreWordsWhereThereAreNoSpaces) {
  EXPECT_THAT(shingles_of("吾輩は猫"), SizeIs(4));
  EXPECT_THAT(shingles_of("ไทย"), SizeIs(3));
  EXPECT_THAT(shingles_of("한국어 텍스트"), SizeIs(2)) << "Korean has spaces";
  EXPECT_THAT(shingles_of("𠀀𠀁"), SizeIs(2)) << "beyond the table";
}

TEST(Shingles, AnNGramIsItsWordsInOrder) {
  EXPECT_THAT(shingles_of("a b c d", 3), SizeIs(2));
  EXPECT_THAT(shingles_of("a b", 3), IsEmpty());
  EXPECT_EQ(shingles_of("a b c", 3)[0], shingles_of("x a b c", 3)[1]);
  EXPECT_NE(shingles_of("a b c", 3)[0], shingles_of("b a c", 3)[0]);
  EXPECT_NE(shingles_of("ab c", 2)[0], shingles_of("a bc", 2)[0]);
  EXPECT_EQ(shingles_of(std::vector<std::string_view>{"a", "b"}, 2), shingles_of("a b", 2))
      << "texts of one document";
}

TEST(Shingles, DocumentsEnd) {
  dedup::Shingler shingler(2);
  std::vector<uint64_t> all;
  const auto sink = [&](std::span<const uint64_t> next) {
    all.insert(all.end(), next.begin(), next.end());
  };
  shingler.add("a", sink);
  shingler.finish(sink);
  shingler.add("b", sink);
  shingler.finish(sink);
  EXPECT_THAT(all, IsEmpty());
}

TEST(Shingles, LongTextsComeInParts) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "word" + std::to_string(i) + " ";
  dedup::Shingler shingler(5);
  std::vector<uint64_t> parts;
  size_t longest = 0;
  const auto sink = [&](std::span<const uint64_t> next) {
    longest = std::max(longest, next.size());
    parts.insert(parts.end(), next.begin(), next.end());
  };
  shingler.add(text, sink);
  shingler.finish(sink);
  EXPECT_LT(longest, 10'000u);
  ASSERT_THAT(parts, SizeIs(30'000 - 4));
  for (const size_t at : {0, 8'190, 8'192, 8'196, 16'400, 29'990}) {
    std::string five;
    for (size_t i = at; i < at + 5; ++i) five += "word" + std::to_string(i) + " ";
    EXPECT_EQ(parts[at], shingles_of(five, 5).at(0)) << at;
  }
}

/// How many of `trials` pairs with similarity shared / (2 * size - shared) have a key in common.
int meetings(const dedup::MinHash& hash, size_t size, size_t shared, int trials) {
  std::mt19937_64 random(7);
  int met = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<uint64_t> a, b;
    for (size_t i = 0; i < size; ++i) {
      a.push_back(random());
      b.push_back(i < shared ? a.back() : random());
    }
    std::vector<uint64_t> keys = keys_of(hash, a);
    const std::vector<uint64_t> others = keys_of(hash, b);
    keys.insert(keys.end(), others.begin(), others.end());
    const auto bands = static_cast<size_t>(hash.bands());
    bool any = false;
    for (size_t i = 0; i < bands; ++i) any = any || keys[i] == keys[bands + i];
    met += any;
  }
  return met;
}

TEST(MinHash, DocumentsMeetWithTheChanceOfTheirSimilarity) {
  constexpr int64_t kBands = 14, kRows = 8;
  constexpr int kTrials = 2000;
  const dedup::MinHash hash(kBands, kRows, 1);
  for (const size_t shared : {50, 120, 160, 175, 190}) {
    const double similarity = static_cast<double>(shared) / static_cast<double>(400 - shared);
    const double chance = 1 - std::pow(1 - std::pow(similarity, double{kRows}), double{kBands});
    // Five standard deviations of the count, and one for the smallest chances.
    const double slack = 5 * std::sqrt(kTrials * chance * (1 - chance)) + 1;
    EXPECT_NEAR(meetings(hash, 200, shared, kTrials), kTrials * chance, slack) << similarity;
  }
}

TEST(MinHash, KeysAreTheSameEverywhere) {
  const dedup::MinHash hash(3, 20, 1);  // 60 orders: not whole blocks
  const std::vector<uint64_t> shingles = shingles_of("one two three four five six", 2);
  const std::vector<uint64_t> keys = keys_of(hash, shingles);
  EXPECT_THAT(keys, SizeIs(3));
  EXPECT_EQ(keys, keys_of(hash, std::vector<uint64_t>(shingles.rbegin(), shingles.rend())))
      << "a set has no order";
  EXPECT_EQ(keys[0], 5320010374974649327u);
  EXPECT_THAT(keys_of(hash, {}), testing::Each(dedup::kNoKey));
}

TEST(Groups, ChainsEndInTheirFirstDocument) {
  const indexed::ScratchFolder folder;
  // Keys of two bands: 1 is like 3 by the first, 3 like 0 by the second; 2 and 4 have none.
  const std::vector<uint64_t> keys = {5, 9, 7, 8, 0, 0, 7, 9, 0, 0, 6, 7};
  dedup::KeyStore store(folder / "out", 2);
  store.add(std::span(keys).first(6));
  store.add(std::span(keys).subspan(6));
  EXPECT_EQ(store.documents(), 6);
  for (const int64_t memory : {1, 1 << 20}) {
    dedup::Groups groups = store.group(2, memory);
    std::vector<uint32_t> firsts;
    for (uint32_t i = 0; i < 6; ++i) firsts.push_back(groups.first_of(i));
    EXPECT_THAT(firsts, testing::ElementsAre(0, 0, 2, 0, 4, 5));
  }
}

TEST(Groups, DoNotDependOnThreadsAndMemory) {
  const indexed::ScratchFolder folder;
  std::mt19937_64 random(3);
  std::vector<uint64_t> keys;
  for (int i = 0; i < 20000 * 3; ++i) keys.push_back(random() % 40000);
  dedup::KeyStore store(folder / "out", 3);
  store.add(keys);
  const auto firsts = [&](int64_t threads, int64_t memory) {
    dedup::Groups groups = store.group(threads, memory);
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < 20000; ++i) all.push_back(groups.first_of(i));
    return all;
  };
  const std::vector<uint32_t> expected = firsts(1, 1 << 30);
  EXPECT_EQ(expected, firsts(4, 1 << 16));
  EXPECT_GT(std::ranges::count(expected, 0u), 1);
}

}  // namespace
