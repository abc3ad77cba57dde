// FP8's flags: which of them go together.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/trainer/config/small_config.h"

namespace trainer {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

TrainConfig fp8_config(const std::string& recipe) {
  TrainConfig config = small_config();
  config.fp8_format = "hybrid";
  config.fp8_recipe = recipe;
  return config;
}

TEST(Fp8Flags, RowwiseAndBlockwiseDoNotLookBack) {
  for (const std::string recipe : {"rowwise", "blockwise"}) {
    TrainConfig config = fp8_config(recipe);
    EXPECT_EQ(error_of(config), "");
    config.fp8_amax_history_len = 1;
    EXPECT_EQ(error_of(config, 1, {"fp8-amax-history-len"}),
              "--fp8-amax-history-len: scales of --fp8-recipe " + recipe + " do not look back");
  }
}

TEST(Fp8Flags, PowersOfTwoAreOfRowsAndBlocks) {
  const auto notes = [](const std::string& recipe) {
    TrainConfig config = fp8_config(recipe);
    config.fp8_power_of_two_scales = false;
    return derive_and_check(config, {"no-fp8-power-of-two-scales"}, 1);
  };
  for (const char* recipe : {"delayed", "tensorwise"})
    EXPECT_THAT(notes(recipe), testing::Contains(HasSubstr("--no-fp8-power-of-two-scales changes "
                                                           "nothing: only scales of")));
  for (const char* recipe : {"rowwise", "blockwise"})
    EXPECT_THAT(notes(recipe), Each(Not(HasSubstr("power-of-two"))));
  TrainConfig plain = fp8_config("delayed");
  plain.fp8_format.clear();
  plain.fp8_power_of_two_scales = false;
  EXPECT_THAT(derive_and_check(plain, {"no-fp8-power-of-two-scales"}, 1),
              testing::Contains("--no-fp8-power-of-two-scales changes nothing without "
                                "--fp8-format"));
}

TEST(Fp8Flags, WeightsAreGatheredAsFp8WhereTheyAreGatheredAtAll) {
  TrainConfig config = fp8_config("delayed");
  config.fp8_param_gather = true;
  const std::string needs =
      "--fp8-param-gather needs --use-distributed-optimizer or --zero-stage 1 to 3: otherwise each "
      "rank updates all weights, and none are gathered";
  EXPECT_EQ(error_of(config, 2), needs);
  for (const auto& shared : {+[](TrainConfig& c) { c.use_distributed_optimizer = true; },
                             +[](TrainConfig& c) { c.zero_stage = 3; },
                             +[](TrainConfig& c) { c.optimizer = "dist_muon"; }}) {
    TrainConfig with = config;
    shared(with);
    EXPECT_EQ(error_of(with, 2), "");
    for (const char* recipe : {"tensorwise", "blockwise"}) {
      with.fp8_recipe = recipe;
      EXPECT_EQ(error_of(with, 2), "");
    }
    with.fp8_recipe = "rowwise";
    EXPECT_THAT(error_of(with, 2),
                testing::StartsWith("--fp8-param-gather: --fp8-recipe rowwise rounds a weight"));
  }
  EXPECT_THAT(derive_and_check(config, {"fp8-param-gather"}, 1),
              testing::Contains("--fp8-param-gather: nothing to gather on one data-parallel rank"));
  config.fp8_format.clear();
  EXPECT_THAT(derive_and_check(config, {"fp8-param-gather"}, 2),
              testing::Contains("--fp8-param-gather changes nothing without --fp8-format"));
}

}  // namespace
}  // namespace trainer
