// Files of timed choices: what is stored, which choice wins where several have timed the same
// product, and files that are damaged, foreign or inaccessible. Needs no GPU.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/gemm_choices.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace ops::cuda {
namespace {

class GemmChoicesTest : public testing::Test {
 protected:
  GemmChoicesTest() {
    std::string name = std::filesystem::temp_directory_path() / "gemm_choices.XXXXXX";
    folder_ = ::mkdtemp(name.data());
    run_ = folder_ + "/run.txt";
    cache_ = folder_ + "/cache.txt";
  }
  ~GemmChoicesTest() override { std::filesystem::remove_all(folder_); }

  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static GemmChoice choice(const GemmChoices& choices, const std::string& key) {
    const GemmChoice* found = choices.find(key);
    return found != nullptr ? *found : GemmChoice{};
  }

  const GemmChoice a_{std::string("\x00\x7f\xff", 3), 1.2345678f}, b_{"bb", 2};
  std::string folder_, run_, cache_;
};

TEST_F(GemmChoicesTest, AreReadBackAsTheyWere) {
  GemmChoices({run_}, "kind").add({{"1 2", a_}, {"3 4", b_}});
  const GemmChoices again({run_}, "kind");
  EXPECT_EQ(choice(again, "1 2"), a_);
  EXPECT_EQ(choice(again, "3 4"), b_);
  EXPECT_EQ(again.find("1"), nullptr);
}

TEST_F(GemmChoicesTest, OfProcessesThatTimeAtOnceTheFirstIsHeard) {
  GemmChoices first({run_}, "kind"), second({run_}, "kind");
  first.add({{"k", a_}});
  second.add({{"k", b_}, {"only", b_}});
  EXPECT_EQ(choice(second, "k"), a_);
  EXPECT_EQ(choice(second, "only"), b_);
  const GemmChoices third({run_}, "kind");
  EXPECT_EQ(choice(third, "k"), a_);
  EXPECT_EQ(choice(third, "only"), b_);

  // Really in parallel: all end with the same choice for each key.
  std::vector<GemmChoices> ranks(8, GemmChoices({run_}, "kind"));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      for (int key = 0; key < 50; ++key)
        ranks[rank].add({{std::to_string(key), {std::to_string(rank), 1}}});
    });
  for (std::thread& thread : threads) thread.join();
  for (int key = 0; key < 50; ++key)
    for (const GemmChoices& rank : ranks)
      EXPECT_EQ(choice(rank, std::to_string(key)), choice(ranks[0], std::to_string(key)));
}

TEST_F(GemmChoicesTest, ARunsFileDecidesAndTheCacheTeachesIt) {
  GemmChoices({cache_}, "kind").add({{"shared", a_}, {"both", a_}});
  GemmChoices({run_}, "kind").add({{"both", b_}});
  GemmChoices run({run_, cache_}, "kind");
  EXPECT_EQ(choice(run, "both"), b_);
  EXPECT_EQ(choice(run, "shared"), a_);
  // Timed before the cache had it.
  GemmChoices late({run_, folder_ + "/new.txt"}, "kind");
  GemmChoices({folder_ + "/new.txt"}, "kind").add({{"late", a_}});
  late.add({{"late", b_}});
  EXPECT_EQ(choice(late, "late"), a_);
  EXPECT_EQ(choice(GemmChoices({run_}, "kind"), "late"), a_);
}

TEST_F(GemmChoicesTest, WhatAKilledProcessLeftIsSkipped) {
  GemmChoices({run_}, "kind").add({{"whole", a_}});
  const std::string whole = read(run_);
  write(run_, whole + "kind|torn|6262");
  EXPECT_EQ(GemmChoices({run_}, "kind").find("torn"), nullptr);
  GemmChoices({run_}, "kind").add({{"torn", b_}});
  const GemmChoices after({run_}, "kind");
  EXPECT_EQ(choice(after, "torn"), b_);
  EXPECT_EQ(choice(after, "whole"), a_);
  for (const char* row : {"x", "x|6|1", "x|zz|1", "x|62|", "x|62|1 2", "x|62|-1", "x||1"}) {
    write(run_, std::string("kind|") + row + "\n");
    EXPECT_EQ(GemmChoices({run_}, "kind").find("x"), nullptr) << row;
  }
}

// A run that continues after the cache was deleted computes the same bits.
TEST_F(GemmChoicesTest, WhatOneFileKnowsAllKnow) {
  GemmChoices({cache_}, "kind").add({{"cached", a_}});
  GemmChoices({run_}, "kind").add({{"own", b_}});
  GemmChoices({run_, cache_}, "kind");
  for (const std::string& file : {run_, cache_}) {
    const GemmChoices alone({file}, "kind");
    EXPECT_EQ(choice(alone, "cached"), a_) << file;
    EXPECT_EQ(choice(alone, "own"), b_) << file;
  }
  // What others write later is there after any add().
  GemmChoices early({run_}, "kind");
  GemmChoices({run_}, "kind").add({{"later", a_}});
  EXPECT_EQ(early.find("later"), nullptr);
  early.add({});
  EXPECT_EQ(choice(early, "later"), a_);
}

TEST_F(GemmChoicesTest, OfAnotherLibraryCountAsNone) {
  GemmChoices({run_}, "library 1").add({{"k", a_}, {"old", a_}});
  GemmChoices next({run_}, "library 10");
  EXPECT_EQ(next.find("k"), nullptr);
  next.add({{"k", b_}});
  EXPECT_EQ(choice(GemmChoices({run_}, "library 10"), "k"), b_);
  EXPECT_EQ(GemmChoices({run_}, "library 10").find("old"), nullptr);
  EXPECT_EQ(choice(GemmChoices({run_}, "library 1"), "k"), a_);
}

TEST_F(GemmChoicesTest, WithoutAFileTheyLastAsLongAsTheProcess) {
  GemmChoices choices({folder_ + "/not/there"}, "kind");
  choices.add({{"k", a_}});
  EXPECT_EQ(choice(choices, "k"), a_);
}

}  // namespace
}  // namespace ops::cuda
