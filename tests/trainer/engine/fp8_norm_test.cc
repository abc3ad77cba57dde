// Norms that linears in FP8 apply while they round the stream: the same bits as with norms that are
// written before, in every kind of layout.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <vector>

#include "tests/trainer/engine/layout_run.h"

namespace {

using namespace layout_run;
using Recipe = Fp8Options::Recipe;

class Fp8Norms : public testing::TestWithParam<Layout> {};

TEST_P(Fp8Norms, ChangeNoBit) {
  Layout l = GetParam();
  l.evaluate_first = true;
  l.fp8.fuse_norms = false;
  const Outcome wanted = run(l);
  l.fp8.fuse_norms = true;
  const Outcome got = run(l);
  expect_same_bits(got, wanted);
}

std::vector<Layout> layouts() {
  using G = Recompute::Granularity;
  using M = Recompute::Method;
  const Recompute selective{G::selective, M::uniform, 1}, pairs{G::full, M::uniform, 2},
      one{G::full, M::block, 1};
  std::vector<Layout> all;
  for (const Recipe recipe :
       {Recipe::delayed, Recipe::tensorwise, Recipe::rowwise, Recipe::blockwise}) {
    const Fp8Options fp8{.format = Fp8Options::Format::hybrid, .recipe = recipe};
    const bool gathers = recipe != Recipe::rowwise;
    all.push_back({.dropout = true, .fp8 = fp8});  // branches are added by the norms
    all.push_back({.tensor = 2, .dropout = true, .recompute = selective, .fp8 = fp8});
    all.push_back({.family = "llama", .tensor = 2, .recompute = one, .fp8 = fp8});
    all.push_back({.family = "gpt_neox", .tensor = 2, .dropout = true, .fp8 = fp8});
    all.push_back({.tensor = 2, .sequence = true, .dropout = true, .fp8 = fp8});
    all.push_back({.pipeline = 2, .dropout = true, .recompute = pairs, .fp8 = fp8});
    all.push_back({.pipeline = 2,
                   .schedule = ScheduleKind::interleaved,
                   .chunks = 2,
                   .recompute = selective,
                   .data = 2,
                   .zero = 3,
                   .overlap = true,
                   .fp8 = fp8});
    all.back().fp8.param_gather = gathers;
    all.push_back({.tensor = 2,
                   .pipeline = 2,
                   .schedule = ScheduleKind::zero_bubble,
                   .dropout = true,
                   .fp8 = fp8});
    all.push_back({.family = "gpt_neox",
                   .pipeline = 2,
                   .schedule = ScheduleKind::zero_bubble,
                   .recompute = selective,
                   .fp8 = fp8});
    all.push_back({.data = 2, .zero = 1, .overlap = true, .fp8 = fp8, .offload = true});
    all.back().fp8.param_gather = gathers;
    all.push_back({.family = "opt_post", .tensor = 2, .fp8 = fp8});  // no norm is left out
  }
  // Layers and gradients in the model dtype beside those in FP8.
  const Fp8Options ends_plain{
      .format = Fp8Options::Format::hybrid, .plain_layers_at_start = 1, .plain_layers_at_end = 1},
      plain_weights{.format = Fp8Options::Format::hybrid, .weight_gradients = false};
  for (const Fp8Options& fp8 : {ends_plain, plain_weights})
    all.push_back({.pipeline = 2, .dropout = true, .recompute = selective, .fp8 = fp8});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Norms, testing::ValuesIn(layouts()));

}  // namespace
