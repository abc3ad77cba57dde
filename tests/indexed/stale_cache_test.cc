// SPDX-License-Identifier: MIT
// Cache files that lie within the bounds of a dataset and are not its own: none is used.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "libindexed/builder.h"
#include "libindexed/training_data.h"
#include "tests/indexed/scratch.h"

namespace indexed {
namespace {

// mv and rsync keep old times, and arrays of other data may lie within the bounds of this.
TEST(TrainingData, CachesOfOtherDataAreNotUsed) {
  ScratchFolder folder;
  using Lengths = std::vector<int32_t>;
  const Lengths before = {12, 40, 30, 8};
  const auto write = [&](const Lengths& lengths) {
    IndexedDatasetBuilder builder(folder / "a", {.existing = Existing::replace, .manifest = false});
    for (const int32_t& length : lengths) {
      std::vector<int32_t> tokens(static_cast<size_t>(length));
      std::iota(tokens.begin(), tokens.end(), 100 * length);
      builder.add_document(tokens, {&length, 1});
    }
    builder.finish();
    std::filesystem::last_write_time(
        folder / "a.idx", std::filesystem::file_time_type::clock::now() - std::chrono::hours(24));
  };
  TrainingDataOptions options{.data_path = {folder / "a"},
                              .split = "1",
                              .seq_length = 8,
                              .num_samples = {{9, 0, 0}},
                              .cache = CacheUse::write,
                              .cache_path = folder / "cache"};
  int built = 0;
  options.on_build = [&](const std::string&) { ++built; };
  const auto samples = [&](CacheUse use) {
    options.cache = use;
    const TrainingData data = TrainingData::build(options);
    std::vector<std::vector<int32_t>> out;
    for (int64_t i = 0; i < data.split(0)->num_samples(); ++i) {
      out.emplace_back(9, -1);
      data.read(*data.split(0), i, out.back());
    }
    return out;
  };
  write(before);
  const std::vector<CacheFile> files = TrainingData::build(options).cache_files();
  built = 0;
  samples(CacheUse::read);
  EXPECT_EQ(built, 0) << "the cache is used";
  for (const Lengths& after : {Lengths{13, 41, 31, 9},     // longer: every offset is in bounds
                               Lengths{12, 40, 30, 8, 0},  // one more, without a token
                               Lengths{12, 40, 30, 8, 3},  // one more
                               Lengths{11, 41, 30, 8},     // a token moved to its neighbour
                               // The last one in the order is long enough for one sample more.
                               Lengths{20, 40, 30, 8}, Lengths{12, 48, 30, 8},
                               Lengths{12, 40, 38, 8}, Lengths{12, 40, 30, 16}}) {
    write(after);
    built = 0;
    EXPECT_EQ(samples(CacheUse::read), samples(CacheUse::none));
    EXPECT_EQ(built, 2) << "built, not read";
  }
  // One number in bounds that stands for another: a sample or a document twice.
  write(before);
  for (const size_t file : {0U, 2U}) {
    const std::string whole = read_whole(files[file].path);
    std::string changed = whole;
    std::copy_n(whole.end() - 8, 4, changed.end() - 4);
    write_whole(files[file].path, changed);
    built = 0;
    EXPECT_EQ(samples(CacheUse::read), samples(CacheUse::none));
    EXPECT_EQ(built, 2) << file;
    write_whole(files[file].path, whole);
  }
}

}  // namespace
}  // namespace indexed
