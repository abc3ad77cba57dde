// SPDX-License-Identifier: MIT
// Every reader of foreign bytes on the kept inputs (tests/fuzz/corpus/TARGET): first inputs, and
// those that once broke a reader. Then each of them changed a little by the mutators, with fixed
// seeds. tests/fuzz/run does it for hours, guided by coverage.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/targets.h"
#include "tests/sanitized.h"

namespace fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> kept_inputs(std::string_view target) {
  std::vector<fs::path> paths;
  const fs::path folder = fs::path(FUZZ_CORPUS) / target;
  std::error_code none;  // some targets have first inputs of seeds.cc alone
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  for (const fs::path& path : paths) {
    std::ifstream in(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  for (Seed& seed : seeds())
    if (seed.target == target) inputs.push_back(std::move(seed.bytes));
  return inputs;
}

Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class FuzzReplay : public ::testing::TestWithParam<size_t> {};

TEST_P(FuzzReplay, KeptInputsEndWell) {
  const Target& target = targets()[GetParam()];
  const std::vector<std::string> inputs = kept_inputs(target.name);
  ASSERT_FALSE(inputs.empty()) << target.name;
  for (const std::string& input : inputs) {
    EXPECT_NO_THROW(run_target(target, bytes_of(input)));
    if (target.mutate == nullptr) continue;
    std::string changed = input;
    for (uint64_t seed = 0; seed < static_cast<uint64_t>(rounds(200)); ++seed) {
      changed = target.mutate(seed % 5 == 0 ? input : changed, seed);
      EXPECT_NO_THROW(run_target(target, bytes_of(changed))) << "seed " << seed;
    }
  }
}

// If a reader refused a first input, nothing behind the refusal would be tested.
TEST(FuzzSeeds, AreReadToTheirEnd) {
  for (const Seed& seed : seeds()) {
    const Target* target = find_target(seed.target);
    ASSERT_NE(target, nullptr) << seed.target;
    EXPECT_NO_THROW(target->run(bytes_of(seed.bytes))) << seed.target << " " << seed.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplay, ::testing::Range(size_t{0}, targets().size()),
                         [](const auto& info) { return std::string(targets()[info.param].name); });

}  // namespace
}  // namespace fuzz
