// Every layout of tensor, sequence, pipeline and data parallelism against one process: initial
// weights bit for bit; losses, norms, gradients (seen in the first step's moments), weights and
// moments after some steps within rounding; two runs of a layout bit for bit; memory as planned.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/trainer/engine/layout_run.h"

namespace {

using namespace layout_run;

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
  return most;
}
double largest(const std::vector<float>& a) {
  double most = 0;
  for (const float x : a) most = std::max(most, std::abs(double{x}));
  return most;
}

/// The single-process run is computed once for each model.
const Outcome& one_process(const Layout& l) {
  static std::map<std::string, Outcome> known;
  const std::string key = l.family + (l.dropout ? "+" : "") + std::to_string(l.depth) +
                          std::to_string(int(l.fp8.format)) + std::to_string(int(l.fp8.recipe)) +
                          std::to_string(int(l.fp8.weight_gradients)) + (l.muon ? "muon" : "");
  if (known.count(key) == 0)
    known[key] = run(
        {.family = l.family, .dropout = l.dropout, .depth = l.depth, .fp8 = l.fp8, .muon = l.muon});
  return known[key];
}

class Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Layouts, EqualOneProcess) {
  const Layout& l = GetParam();
  const Outcome& wanted = one_process(l);
  const Outcome got = run(l);
  // fp32: sums of a few hundred products in another order differ by some 1e-6 of the largest; the
  // steps of AdamW, 3 of 1e-3 at most, turn that into at most a few 1e-2 of a step where a gradient
  // is small.
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(got.losses[step], wanted.losses[step], 1e-5) << "step " << step;
    EXPECT_NEAR(got.norms[step], wanted.norms[step], 1e-5 * wanted.norms[step]) << "step " << step;
    EXPECT_GT(wanted.norms[step], 0.5f) << "nothing is clipped";
  }
  EXPECT_NEAR(got.evaluations.back(), wanted.evaluations.back(), 1e-5);
  ASSERT_EQ(got.parameters.size(), wanted.parameters.size());
  for (const auto& [name, w] : wanted.parameters) {
    const Values& g = got.parameters.at(name);
    EXPECT_EQ(std::memcmp(g.initial.data(), w.initial.data(), w.initial.size() * 4), 0) << name;
    EXPECT_LE(difference(g.first_m, w.first_m), 1e-5 * largest(w.first_m) + 1e-9) << name;
    EXPECT_LE(difference(g.main, w.main), 1e-4) << name;
    EXPECT_LE(difference(g.m, w.m), 1e-3 * largest(w.m) + 1e-8) << name;
    EXPECT_LE(difference(g.v, w.v), 1e-3 * largest(w.v) + 1e-10) << name;
  }
}

std::vector<Layout> layouts() {
  using G = Recompute::Granularity;
  using M = Recompute::Method;
  const Recompute selective{G::selective, M::uniform, 1}, pairs{G::full, M::uniform, 2},
      one{G::full, M::block, 1};
  std::vector<Layout> all;
  for (const char* family :
       {"gpt2", "opt", "opt_post", "gpt_neox", "llama", "mistral", "qwen2", "qwen3"}) {
    const bool gpt2 = std::string(family) == "gpt2";
    all.push_back({.family = family, .tensor = 2, .dropout = gpt2});
    all.push_back({.family = family, .tensor = 2, .sequence = true, .dropout = true});
    all.push_back({.family = family, .pipeline = 2, .dropout = gpt2});
    all.push_back({.family = family,
                   .tensor = 2,
                   .pipeline = 2,
                   .sequence = true,
                   .schedule = ScheduleKind::zero_bubble,
                   .dropout = true});
    all.push_back({.family = family,
                   .pipeline = 2,
                   .schedule = ScheduleKind::interleaved,
                   .chunks = 2,
                   .dropout = true});
  }
  all.push_back({.family = "gpt_neox", .tensor = 4, .sequence = true, .recompute = selective});
  all.push_back({.family = "gpt_neox", .tensor = 2, .pipeline = 2, .recompute = pairs});
  all.push_back({.family = "llama", .tensor = 4, .sequence = true, .recompute = one});
  all.push_back({.family = "llama", .tensor = 4});
  all.push_back({.family = "gpt2", .tensor = 4, .dropout = true, .recompute = pairs});
  all.push_back({.family = "gpt2", .tensor = 4, .sequence = true, .recompute = selective});
  all.push_back({.family = "gpt2", .pipeline = 4, .dropout = true, .recompute = one});
  all.push_back({.family = "gpt2",
                 .pipeline = 4,
                 .schedule = ScheduleKind::zero_bubble,
                 .dropout = true,
                 .recompute = selective});
  all.push_back({.family = "opt", .pipeline = 3, .dropout = true, .layers = {1, 2, 1}});
  all.push_back({.family = "opt",
                 .pipeline = 2,
                 .schedule = ScheduleKind::interleaved,
                 .chunks = 2,
                 .layers = {1, 2, 2, 1},
                 .depth = 6});
  all.push_back({.family = "opt", .tensor = 2, .pipeline = 2, .recompute = pairs});
  all.push_back({.family = "llama",
                 .tensor = 2,
                 .pipeline = 2,
                 .sequence = true,
                 .schedule = ScheduleKind::interleaved,
                 .chunks = 2,
                 .recompute = selective});
  // With those of data_parallel_test.cc, every (tensor, pipeline, data, ZeRO) of four ranks.
  all.push_back({.tensor = 2, .dropout = true, .data = 2});
  all.push_back({.tensor = 2, .sequence = true, .dropout = true, .data = 2, .zero = 1});
  all.push_back({.tensor = 2, .sequence = true, .dropout = true, .data = 2, .zero = 2});
  all.push_back({.tensor = 2, .dropout = true, .data = 2, .zero = 3, .overlap = true});
  all.push_back({.pipeline = 2, .dropout = true, .data = 2});
  all.push_back({.pipeline = 2, .dropout = true, .data = 2, .zero = 1, .overlap = true});
  all.push_back({.pipeline = 2, .dropout = true, .data = 2, .zero = 3});
  all.push_back({.pipeline = 2, .schedule = ScheduleKind::zero_bubble, .data = 2});
  all.push_back({.family = "llama", .pipeline = 2, .data = 2, .zero = 2});
  all.push_back({.family = "opt_post", .tensor = 4, .sequence = true, .recompute = selective});
  all.push_back({.family = "opt_post", .tensor = 2, .dropout = true, .recompute = pairs});
  all.push_back({.family = "opt_post", .tensor = 2, .sequence = true, .data = 2, .zero = 3});
  all.push_back({.family = "opt_post", .pipeline = 2, .dropout = true, .data = 2, .zero = 2});
  all.push_back({.family = "qwen3", .tensor = 4, .sequence = true, .recompute = selective});
  all.push_back({.family = "qwen3", .tensor = 2, .recompute = pairs, .data = 2, .zero = 3});
  all.push_back({.family = "qwen3", .tensor = 2, .data = 2, .zero = 2});
  all.push_back(
      {.pipeline = 2, .schedule = ScheduleKind::interleaved, .chunks = 2, .data = 2, .zero = 3});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Layouts, testing::ValuesIn(layouts()));

/// FP8 rounds to 3 bits, so a sum in another order may give a neighbouring number. In the first
/// step each rank's scales are of its own part of a tensor.
class Fp8Layouts : public Layouts {};

TEST_P(Fp8Layouts, AreNearOneProcess) {
  const Layout& l = GetParam();
  const Outcome& wanted = one_process(l);
  const Outcome got = run(l);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(got.losses[step], wanted.losses[step], 3e-3) << "step " << step;
    EXPECT_NEAR(got.norms[step], wanted.norms[step], 0.03 * wanted.norms[step]) << "step " << step;
  }
  EXPECT_NEAR(got.evaluations.back(), wanted.evaluations.back(), 3e-3);
  for (const auto& [name, w] : wanted.parameters) {
    double square = 0, error = 0;
    for (size_t i = 0; i < w.first_m.size(); ++i) {
      const double e = double{got.parameters.at(name).first_m[i]} - double{w.first_m[i]};
      square += double{w.first_m[i]} * double{w.first_m[i]};
      error += e * e;
    }
    // Other scales are other roundings, of 2 bits in e5m2; a missing part would be a quarter of
    // all. Gradients of key biases are 0 but for rounding.
    if (name.find("linear_qkv.bias") != std::string::npos) continue;
    EXPECT_LE(error, 0.08 * square) << name;
  }
  const Outcome again = run(l);
  EXPECT_EQ(again.losses, got.losses) << "two runs differ";
  for (const auto& [name, values] : got.parameters)
    EXPECT_EQ(values.main, again.parameters.at(name).main) << name;
}

std::vector<Layout> fp8_layouts() {
  using Format = Fp8Options::Format;
  using Recipe = Fp8Options::Recipe;
  const Fp8Options delayed{.format = Format::hybrid, .recipe = Recipe::delayed},
      tensorwise{.format = Format::e4m3, .recipe = Recipe::tensorwise},
      plain_weights{.format = Format::hybrid, .weight_gradients = false},
      rowwise{.format = Format::hybrid, .recipe = Recipe::rowwise},
      blockwise{.format = Format::e4m3, .recipe = Recipe::blockwise};
  const Recompute selective{Recompute::Granularity::selective, Recompute::Method::uniform, 1},
      full{Recompute::Granularity::full, Recompute::Method::uniform, 1};
  const ScheduleKind late = ScheduleKind::zero_bubble, parts = ScheduleKind::interleaved;
  std::vector<Layout> all;
  for (const Fp8Options& fp8 : {delayed, tensorwise, plain_weights, rowwise, blockwise}) {
    for (const char* family : {"gpt2", "llama", "gpt_neox", "opt_post"}) {
      const auto add = [&](Layout l) {
        l.family = family;
        l.fp8 = fp8;
        all.push_back(l);
      };
      add({.tensor = 2});
      add({.tensor = 2, .sequence = true, .recompute = selective});
      add({.pipeline = 2, .schedule = parts, .chunks = 2});
      add({.tensor = 2, .pipeline = 2, .sequence = true, .schedule = late});
      add({.pipeline = 2, .schedule = late, .recompute = selective});
    }
    for (const int zero : {0, 1, 2, 3})
      all.push_back({.recompute = zero == 2 ? full : Recompute{},
                     .data = 2,
                     .zero = zero,
                     .overlap = zero == 1,
                     .fp8 = fp8});
    all.push_back({.tensor = 2, .sequence = true, .data = 2, .zero = 3, .fp8 = fp8});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Fp8Layouts, testing::ValuesIn(fp8_layouts()));
/// A matrix that tensor-parallel ranks share must be orthogonalized as a whole; its parts alone
/// would give another result.
std::vector<Layout> muon_layouts() {
  constexpr auto kDuplicated = MuonTensorMode::duplicated,
                 kDistributed = MuonTensorMode::distributed, kBlockwise = MuonTensorMode::blockwise;
  std::vector<Layout> all;
  for (const char* family : {"gpt2", "llama", "opt_post"}) {
    for (const MuonTensorMode mode : {kDuplicated, kDistributed}) {
      all.push_back({.family = family, .tensor = 2, .muon = mode});
      all.push_back({.family = family, .tensor = 4, .sequence = true, .muon = mode});
    }
    all.push_back({.family = family, .pipeline = 2, .muon = kBlockwise});
    all.push_back({.family = family, .data = 2, .zero = 1, .muon = kBlockwise});
  }
  all.push_back({.tensor = 2,
                 .pipeline = 2,
                 .sequence = true,
                 .schedule = ScheduleKind::zero_bubble,
                 .muon = kDistributed});
  all.push_back(
      {.pipeline = 2, .schedule = ScheduleKind::interleaved, .chunks = 2, .muon = kBlockwise});
  all.push_back({.tensor = 2, .data = 2, .zero = 1, .overlap = true, .muon = kDuplicated});
  all.push_back({.tensor = 2, .data = 2, .zero = 3, .overlap = true, .muon = kDistributed});
  all.push_back({.pipeline = 2, .data = 2, .zero = 1, .muon = kBlockwise});
  all.push_back({.pipeline = 2, .data = 2, .zero = 2, .overlap = true, .muon = kBlockwise});
  all.push_back({.data = 2, .zero = 3, .overlap = true, .muon = kBlockwise});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Muon, Layouts, testing::ValuesIn(muon_layouts()));

TEST(Layout, WhatCannotBeIsRefusedBeforeMemoryIsTaken) {
  const auto refusal = [](Layout l, auto change) {
    EngineOptions options = options_of(l);
    change(options);
    return layout_refusal(spec_of(l), options,
                          make_topology(0, l.tensor * l.pipeline * l.data, l.tensor, l.pipeline));
  };
  const auto nothing = [](EngineOptions&) {};
  EXPECT_EQ(refusal({.tensor = 2, .pipeline = 2, .sequence = true}, nothing), "");
  EXPECT_EQ(refusal({.tensor = 3}, nothing),
            "--tensor-model-parallel-size 3 does not divide --num-attention-heads 8");
  EXPECT_EQ(refusal({.family = "llama", .tensor = 8}, nothing),
            "--tensor-model-parallel-size 8 does not divide --num-query-groups 4");
  EXPECT_EQ(refusal({.tensor = 8, .sequence = true}, [](EngineOptions& o) { o.seq_length = 12; }),
            "--tensor-model-parallel-size 8 does not divide --seq-length 12, as "
            "--sequence-parallel needs");
  EXPECT_EQ(refusal({.pipeline = 2, .schedule = ScheduleKind::zero_bubble, .data = 2, .zero = 2},
                    nothing),
            "--pipeline-schedule zero-bubble needs whole gradients: --zero-stage 0 or 1, not 2");
  EXPECT_EQ(refusal({.pipeline = 5}, nothing), "4 layers: fewer than the 5 parts of the pipeline");
  EXPECT_EQ(refusal({.pipeline = 2}, [](EngineOptions& o) { o.chunks = 2; }),
            "2 model chunks a rank: more than one for the interleaved schedule");
  EXPECT_EQ(refusal({.pipeline = 2, .layers = {1, 2}}, nothing),
            "3 layers in 2 stages: 4 in 2 expected");
  EXPECT_THROW(plan_engine({spec_of({}), options_of({}), make_topology(0, 3, 3, 1)}, nullptr),
               ShapeError);
}

TEST(Layout, FiftyStepsAgree) {
  constexpr int kMany = 50;
  const Outcome wanted = run({.dropout = true}, kMany);
  // A step's rounding, some 1e-7 of the loss, accumulates in the steps after it.
  for (const Layout& l :
       {Layout{.tensor = 2, .sequence = true, .dropout = true},
        Layout{.pipeline = 2, .schedule = ScheduleKind::zero_bubble, .dropout = true}}) {
    const Outcome got = run(l, kMany);
    for (size_t step = 0; step < kMany; ++step)
      EXPECT_NEAR(got.losses[step], wanted.losses[step], 5e-5) << l << ": step " << step;
  }
  EXPECT_LT(wanted.losses.back(), wanted.losses.front());
}

TEST(Layout, RunsTwiceWithTheSameBits) {
  for (const Layout& l : {Layout{.tensor = 2, .pipeline = 2, .sequence = true, .dropout = true},
                          Layout{.pipeline = 2, .schedule = ScheduleKind::zero_bubble}}) {
    const Outcome a = run(l), b = run(l);
    EXPECT_EQ(a.losses, b.losses) << l;
    for (const auto& [name, values] : a.parameters) {
      EXPECT_EQ(values.main, b.parameters.at(name).main) << l << ": " << name;
      EXPECT_EQ(values.v, b.parameters.at(name).v) << l << ": " << name;
    }
  }
}

}  // namespace
