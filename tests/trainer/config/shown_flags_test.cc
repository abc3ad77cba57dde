// What a command shows of the flags that were given: none is lost.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <set>

#include "tools/cli/parse.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

// A flag without a value of its own, such as Megatron's older names, is not printed itself: the
// flags that it sets are.
TEST(FlagTable, WhatIsNotShownSetsOthersThatAre) {
  TrainConfig config;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
  std::set<std::string_view> shown;
  for (const cli::Row& row : rows)
    if (row.show) shown.insert(row.name);
  for (const cli::Row& row : rows) {
    const bool works = row.no_effect.empty() && row.refused.empty();
    EXPECT_TRUE(row.show || !works || !row.sets.empty() || row.name == "neox-config") << row.name;
    for (const std::string_view other : row.sets) EXPECT_TRUE(shown.contains(other)) << row.name;
  }
}

TEST(FlagTable, WhatAFlagSetsCountsAsGivenToo) {
  TrainConfig config;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
  const std::vector<std::string> words = {"--window-size", "3,0"};
  const cli::Parsed line = cli::parse_arguments(rows, words);
  EXPECT_EQ(line.given, (Given{"sliding-window", "window-size"}));
  cli::Parsed file;
  cli::read_config(rows, "enable-zbh1-pipeline = true", "c.toml", file);
  EXPECT_EQ(file.given, (Given{"enable-zbh1-pipeline", "pipeline-schedule"}));
  cli::Parsed off;
  cli::read_config(rows, "enable-zbh1-pipeline = false\nfp8-hybrid = false", "c.toml", off);
  EXPECT_EQ(off.given, (Given{"enable-zbh1-pipeline", "fp8-hybrid"}));
  EXPECT_EQ(config.fp8_format, "");
}

TEST(FlagTable, TwoNamesOfOneValueMayNotContradict) {
  const auto error = [](const std::vector<std::string>& words) -> std::string {
    TrainConfig config;
    try {
      cli::parse_arguments(cli::bind_rows(flag_table(), config), words);
    } catch (const cli::UsageError& refusal) {
      return refusal.what();
    }
    return "";
  };
  EXPECT_EQ(error({"--pipeline-schedule", "1f1b", "--enable-zbh1-pipeline"}),
            "--enable-zbh1-pipeline and --pipeline-schedule 1f1b contradict each other");
  EXPECT_EQ(error({"--window-size", "127,0", "--sliding-window", "64"}),
            "--window-size 127,0 and --sliding-window 64 contradict each other");
  EXPECT_EQ(error({"--window-size", "127,0", "--sliding-window", "128"}), "");
  EXPECT_EQ(error({"--recompute-method", "block", "--activations-checkpoint-method", "uniform"}),
            "--activations-checkpoint-method uniform and --recompute-method block contradict each "
            "other");
}

}  // namespace
}  // namespace trainer
