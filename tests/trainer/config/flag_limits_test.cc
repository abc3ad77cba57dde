// What each flag of the trainer takes: the words in which it refuses another value, held to
// tests/golden/trainer/flag_limits.txt, and that the limits it names are those it keeps. Where a
// limit changes, the line that the failure prints belongs into that file.
//
// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <regex>
#include <set>

#include "tests/trainer/config/small_config.h"
#include "tools/cli/flags.h"
#include "tools/cli/parse.h"
#include "trainer/config/flags.h"

namespace trainer {
namespace {

/// How a flag takes a value: "" or its refusal.
std::string refusal(const std::function<void(const cli::Values&)>& set, const std::string& value) {
  try {
    set({value});
    return "";
  } catch (const cli::UsageError& error) {
    return error.what();
  }
}

std::string in_full(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  return buffer;
}

TEST(FlagLimits, AreThoseOfTheFile) {
  std::ifstream in(GOLDEN_DIR "/trainer/flag_limits.txt");
  std::set<std::string> known;
  for (std::string line; std::getline(in, line);) known.insert(line);
  ASSERT_FALSE(known.empty());
  TrainConfig config;
  std::set<std::string> found;
  for (const cli::Row& row : cli::bind_rows(flag_table(), config)) {
    if (row.arity == cli::Arity::none || !row.set) continue;
    const std::string words = refusal(row.set, "?");
    if (words.starts_with("expected")) found.insert(std::string(row.name) + ": " + words);
  }
  std::string fresh, gone;
  for (const std::string& line : found)
    if (!known.contains(line)) fresh += line + "\n";
  for (const std::string& line : known)
    if (!found.contains(line)) gone += line + "\n";
  EXPECT_EQ(fresh, "");
  EXPECT_EQ(gone, "");
}

TEST(FlagLimits, AreKeptToTheNumber) {
  const std::regex range(
      "expected a (whole number|number) (?:from (\\S+) to (\\S+)|of at least (\\S+))");
  TrainConfig config;
  int whole = 0, real = 0;
  for (const cli::Row& row : cli::bind_rows(flag_table(), config)) {
    if (row.arity == cli::Arity::none || !row.set) continue;
    const std::string words = refusal(row.set, "?");
    std::smatch parts;
    if (!std::regex_search(words, parts, range)) continue;
    SCOPED_TRACE(row.name);
    const std::string least = parts[2].matched ? parts[2] : parts[4], most = parts[3];
    EXPECT_EQ(refusal(row.set, least), "");
    EXPECT_EQ(refusal(row.set, most.empty() ? "1000000000" : most), "");
    if (parts[1] == "whole number") {
      ++whole;
      const int64_t low = std::stoll(least), high = most.empty() ? INT64_MAX : std::stoll(most);
      EXPECT_EQ(refusal(row.set, std::to_string(low - 1)), words);
      if (high < INT64_MAX) {
        EXPECT_EQ(refusal(row.set, std::to_string(high + 1)), words);
      }
    } else {
      ++real;
      EXPECT_EQ(refusal(row.set, in_full(std::nextafter(std::stod(least), -INFINITY))), words);
      if (!most.empty()) {
        EXPECT_EQ(refusal(row.set, in_full(std::nextafter(std::stod(most), INFINITY))), words);
      }
    }
  }
  EXPECT_GT(whole, 30);
  EXPECT_GT(real, 10);
}

TEST(FlagLimits, AWindowIsTwoNumbers) {
  TrainConfig config;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), config);
  const auto row = std::ranges::find(rows, "window-size", &cli::Row::name);
  ASSERT_NE(row, rows.end());
  const auto window = [&](const std::string& value) {
    const std::string why = refusal(row->set, value);
    return why.empty() ? std::to_string(config.sliding_window) : why;
  };
  EXPECT_EQ(window("127,0"), "128");
  EXPECT_EQ(window("(127, 0)"), "128");
  EXPECT_EQ(window("-1,0"), "0");
  EXPECT_EQ(window("268435455,0"), "268435456");
  EXPECT_THAT(window("268435456,0"), testing::HasSubstr("from -1 to 268435455"));
  EXPECT_THAT(window("127"), testing::HasSubstr("expected LEFT,RIGHT"));
  EXPECT_THAT(window("127,1"), testing::HasSubstr("expected a whole number from 0 to 0"));
}

// Megatron's loop asks `if args.exit_interval and ...`; it divides by --eval-interval.
TEST(FlagLimits, ZeroIsOffAsInMegatron) {
  TrainConfig none;
  const std::vector<cli::Row> rows = cli::bind_rows(flag_table(), none);
  EXPECT_NE(refusal(cli::find_row(rows, "eval-interval")->set, "0"), "");
  TrainConfig config = small_config();
  config.save_interval = config.exit_interval = 0;
  config.exit_duration_in_mins = 0;
  config.eval_iters = -1;
  derive_and_check(config, {}, 1);
  EXPECT_FALSE(config.save_interval);
  EXPECT_FALSE(config.exit_interval);
  EXPECT_FALSE(config.exit_duration_in_mins);
  EXPECT_EQ(config.eval_iters, 0);
  config.save_interval = config.exit_interval = 1;
  config.exit_duration_in_mins = 1e-9;
  config.eval_iters = 1;
  derive_and_check(config, {}, 1);
  EXPECT_EQ(config.save_interval, 1);
  EXPECT_EQ(config.exit_interval, 1);
  EXPECT_EQ(config.exit_duration_in_mins, 1e-9);
  EXPECT_EQ(config.eval_iters, 1);
}

}  // namespace
}  // namespace trainer
