// Muon's flags: names, defaults, what is refused by name, what has no effect.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/trainer/config/small_config.h"
#include "tools/cli/parse.h"

namespace trainer {
namespace {

TEST(MuonFlags, AreMegatrons) {
  const auto value = [](const std::vector<std::string>& words, std::string_view flag) {
    TrainConfig config;
    const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
    cli::parse_arguments(rows, words);
    return cli::find_row(rows, flag)->show().front();
  };
  EXPECT_EQ(value({}, "optimizer"), "adam");
  for (const char* name : {"muon", "dist_muon", "adam", "adamw"})
    EXPECT_EQ(value({"--optimizer", name}, "optimizer"), name);
  EXPECT_EQ(value({}, "muon-momentum"), "0.9");
  EXPECT_EQ(value({}, "muon-nesterov"), "false");
  EXPECT_EQ(value({"--muon-use-nesterov"}, "muon-nesterov"), "true");
  EXPECT_EQ(value({}, "muon-no-split-qkv"), "false");
  EXPECT_EQ(value({"--muon-no-split-qkv"}, "muon-no-split-qkv"), "true");
  EXPECT_EQ(value({}, "muon-num-ns-steps"), "5");
  EXPECT_EQ(value({}, "muon-coefficient-type"), "quintic");
  EXPECT_EQ(value({}, "muon-scale-mode"), "spectral");
  EXPECT_EQ(value({}, "muon-extra-scale-factor"), "1");
  EXPECT_EQ(value({}, "muon-fp32-matmul-prec"), "medium");
  EXPECT_EQ(value({}, "muon-tp-mode"), "blockwise");
  EXPECT_EQ(value({}, "muon-scalar-optimizer"), "adam");
  for (const auto& [flag, word] : {std::pair("optimizer", "sgd"),
                                   {"muon-scale-mode", "other"},
                                   {"muon-tp-mode", "other"},
                                   {"muon-coefficient-type", "custom"},
                                   {"muon-num-ns-steps", "0"}})
    EXPECT_THROW(value({std::string("--") + flag, word}, flag), cli::UsageError) << flag;
  const auto refusal = [&](const std::vector<std::string>& words) {
    try {
      value(words, "lr");
    } catch (const cli::UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({"--muon-fp32-matmul-prec", "low"}),
            "--muon-fp32-matmul-prec low: permitted is medium or high or highest: PyTorch has no "
            "other precision");
  EXPECT_EQ(refusal({"--muon-scalar-optimizer", "lion"}),
            "--muon-scalar-optimizer lion: permitted is adam: parameters other than matrices have "
            "AdamW here");
}

TEST(MuonFlags, AreIdleWithoutIt) {
  TrainConfig config = small_config();
  config.muon_tp_mode = "duplicated";
  const auto notes = [&] { return derive_and_check(config, {"muon-tp-mode"}, 1); };
  EXPECT_THAT(notes(),
              testing::ElementsAre("--muon-tp-mode changes nothing without --optimizer muon"));
  EXPECT_FALSE(config.derived.muon);
  for (const char* name : {"muon", "dist_muon"}) {
    config.optimizer = name;
    EXPECT_THAT(notes(), testing::IsEmpty());
    EXPECT_TRUE(config.derived.muon);
  }
  config.zero_stage = 2;
  EXPECT_THAT(derive_and_check(config, {}, 4), testing::IsEmpty());
  EXPECT_THAT(derive_and_check(config, {}, 8),
              testing::ElementsAre(
                  "--zero-stage 2 with --optimizer dist_muon: the four matrices of a layer leave "
                  "some of 8 data-parallel ranks without any; --zero-stage 1 shares them evenly"));
}

}  // namespace
}  // namespace trainer
