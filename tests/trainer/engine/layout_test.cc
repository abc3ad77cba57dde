// Every layout of tensor, sequence, pipeline and data parallelism against one process: initial
// weights bit for bit; losses, norms, gradients (seen in the first step's moments), weights and
// moments after some steps within rounding; two runs of a layout bit for bit; memory as planned.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/trainer/engine/ranks.h"
#include "trainer/engine/engine.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/philox.h"

namespace {

using namespace trainer;

constexpr int64_t kS = 16, kB = 2, kM = 4;
constexpr int kSteps = 3;

struct Layout {
  std::string family = "gpt2";
  int tensor = 1, pipeline = 1;
  bool sequence = false;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int chunks = 1;
  bool dropout = false;
  Recompute recompute = {};
  std::vector<int64_t> layers = {};
  int data = 1, zero = 0;
  bool overlap = false;
  int64_t depth = 4;
  Fp8Options fp8 = {};
  std::optional<MuonTensorMode> muon = {};

  int world() const { return tensor * pipeline * data; }
};

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << l.family << ", tensor " << l.tensor << (l.sequence ? " + sequence" : "")
             << ", pipeline " << l.pipeline << ", schedule " << int(l.schedule) << ", chunks "
             << l.chunks << (l.dropout ? ", dropout" : "") << ", recompute "
             << int(l.recompute.granularity) << " of " << l.recompute.num_layers << ", data "
             << l.data << ", ZeRO " << l.zero << (l.overlap ? ", overlap" : "") << ", fp8 "
             << int(l.fp8.format) << int(l.fp8.recipe) << l.fp8.weight_gradients
             << (l.muon ? ", muon " + std::to_string(int(*l.muon)) : "");
}

ModelSpec spec_of(const Layout& l) {
  const bool post = l.family == "opt_post";
  ModelSpec spec = family_defaults(post ? "opt" : l.family);
  spec.post_norm = post;
  if (post) {
    spec.embedding_size = 12;
    spec.init_method_std = l.fp8.on() ? 0.1f : 0.2f;  // gradients that are clipped
  }
  spec.num_layers = l.depth;
  spec.hidden_size = 32;
  spec.num_attention_heads = 8;
  spec.num_query_groups = spec.gated() ? 4 : 8;
  spec.ffn_hidden_size = spec.gated() && !l.fp8.on() ? 40 : 64;
  if (l.fp8.recipe == Fp8Options::Recipe::blockwise) {  // several blocks, the last ones partial
    spec.hidden_size = 160;
    spec.ffn_hidden_size = 320;
    if (post) spec.init_method_std *= 0.45f;  // sums of as large values as with 32
  }
  if (l.family == "qwen3") spec.kv_channels = 6;
  if (l.family == "gpt_neox") spec.rotary_percent = 0.5f;  // of 4 channels, a pair
  if (l.family == "mistral") spec.sliding_window = 5;
  spec.max_position_embeddings = kS + 2;
  spec.vocab_size = 61;
  spec.padded_vocab_size = 64;
  spec.hidden_dropout = l.dropout && !spec.parallel_residual ? 0.1f : 0.0f;
  spec.attention_dropout = l.dropout ? 0.2f : 0.0f;
  complete(spec);
  return spec;
}

EngineOptions options_of(const Layout& l) {
  EngineOptions options;
  options.seq_length = kS;
  options.micro_batch_size = kB;
  options.max_microbatches = kM / l.data;
  options.adam_eps = 1e-6f;  // as in model_golden.h: some gradients are 0 but for rounding.
  options.head_rows = 13;
  options.clip_grad = 0.5;  // less than the norm of the first steps.
  options.zero_stage = l.zero;
  options.overlap_grad_reduce = options.overlap_param_gather = l.overlap;
  options.recompute = l.recompute;
  options.sequence_parallel = l.sequence;
  options.schedule = l.schedule;
  options.chunks = l.chunks;
  options.layers_per_stage = l.layers;
  options.fp8 = l.fp8;
  if (l.muon) {
    options.optimizer = OptimizerKind::muon;
    options.muon.tensor_mode = *l.muon;
    options.muon.product_dtype = DType::f32;  // bf16 would amplify the last digit of fp32.
  }
  return options;
}

/// This rank's micro-batches of a step: number m of rank r is number m * data + r of all.
void fill_batch(Engine& engine, uint32_t step) {
  const HostBatch batch = engine.host_batch();
  const Topology& t = engine.topology();
  const size_t rows = size_t(kS * kB);
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const size_t whole = (i / rows * size_t(t.data_size) + size_t(t.data_rank)) * rows + i % rows;
    const ops::Philox4 w = ops::philox({static_cast<uint32_t>(whole), step, 0, 0}, 5, 6);
    batch.tokens[i] = static_cast<int32_t>(w.x % 61);
    batch.labels[i] = static_cast<int32_t>(w.y % 61);
    batch.positions[i] = static_cast<int32_t>(i % rows / size_t(kB));
    batch.loss_mask[i] = w.z % 5 == 0 ? 0.0f : 1.0f;
    if (!batch.first_key.empty()) batch.first_key[i] = std::max(0, batch.positions[i] - 4);
  }
}

/// The results of a run: whole tensors, by parameter.
struct Values {
  std::vector<float> initial, first_m, main, m, v;
};
struct Outcome {
  std::map<std::string, Values> parameters;
  std::vector<float> losses, norms;
  float evaluation = 0;
};

/// Copies a rank's part of a tensor into the whole; parts on several ranks must be equal.
void place_part(const ParamView& view, const Tensor& part, std::vector<float>& whole) {
  const LocalParam& p = *view.param;
  if (whole.empty()) whole.assign(static_cast<size_t>(p.spec.elements()), std::nanf(""));
  const int64_t columns = p.spec.shape.size() == 2 ? p.spec.shape[1] : 1;
  const int64_t local_columns = p.shape.size() == 2 ? p.shape[1] : 1;
  const int64_t part_rows = p.shape[0] / p.spec.split_parts;
  const int64_t whole_rows = p.spec.shape[0] / p.spec.split_parts;
  for (int64_t i = 0; i < view.kept.count; ++i) {
    const int64_t r = (view.kept.first + i) / local_columns;
    const int64_t c = (view.kept.first + i) % local_columns;
    const int64_t row =
        r / part_rows * whole_rows + r % part_rows + (p.spec.split == 0 ? p.first : 0);
    float& to = whole[size_t(row * columns + c + (p.spec.split == 1 ? p.first : 0))];
    const float value = part.flat().as<float>()[i];
    EXPECT_TRUE(std::isnan(to) || to == value) << p.spec.name << ": copies differ";
    to = value;
  }
}

Outcome run(const Layout& l, int steps = kSteps) {
  Outcome outcome;
  std::mutex mutex;
  ranks::run_ranks(l.world(), l.tensor, l.pipeline, [&](Groups groups) {
    ops::cpu::CpuOps ops(1);
    const Topology topology = groups.topology;
    Engine engine(spec_of(l), options_of(l), ops, std::move(groups));
    engine.initialise();
    std::vector<float> losses, norms;
    const auto collect = [&](auto field, auto tensor) {
      const std::lock_guard<std::mutex> lock(mutex);
      for (const ParamView& view : engine.parameters())
        place_part(view, tensor(view), outcome.parameters[view.param->spec.name].*field);
    };
    collect(&Values::initial, [](const ParamView& v) { return v.main; });
    for (int step = 0; step < steps; ++step) {
      fill_batch(engine, static_cast<uint32_t>(step));
      // Fewer micro-batches than planned for, once.
      engine.step(step + 1, (step == 1 ? kM - 2 : kM) / l.data, 1e-3f, 0.1f);
      losses.push_back(engine.result().loss);
      norms.push_back(engine.result().grad_norm);
      if (step == 0)
        collect(&Values::first_m, [](const ParamView& v) { return v.states[0].tensor; });
    }
    collect(&Values::main, [](const ParamView& v) { return v.main; });
    collect(&Values::m, [](const ParamView& v) { return v.states[0].tensor; });
    collect(&Values::v, [](const ParamView& v) { return v.states.back().tensor; });
    fill_batch(engine, 99);
    const float evaluation = engine.evaluate(kM / l.data);
    EXPECT_EQ(engine.peak_bytes(), engine.memory_plan().total_bytes) << l;
    EXPECT_EQ(plan_engine({spec_of(l), options_of(l), topology}, &ops).total_bytes,
              engine.memory_plan().total_bytes)
        << l;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!outcome.losses.empty()) {
      EXPECT_EQ(outcome.losses, losses) << l << ": ranks tell different losses";
      EXPECT_EQ(outcome.norms, norms) << l << ": ranks tell different norms";
      EXPECT_EQ(outcome.evaluation, evaluation) << l;
    }
    outcome.losses = losses;
    outcome.norms = norms;
    outcome.evaluation = evaluation;
  });
  return outcome;
}

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
  EXPECT_NEAR(got.evaluation, wanted.evaluation, 1e-5);
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
  EXPECT_NEAR(got.evaluation, wanted.evaluation, 3e-3);
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
                          make_topology(0, l.tensor * l.pipeline, l.tensor, l.pipeline));
  };
  const auto nothing = [](EngineOptions&) {};
  EXPECT_EQ(refusal({.tensor = 2, .pipeline = 2, .sequence = true}, nothing), "");
  EXPECT_EQ(refusal({.tensor = 3}, nothing),
            "num_attention_heads 8 cannot be divided among 3 tensor-parallel ranks");
  EXPECT_EQ(refusal({.family = "llama", .tensor = 8}, nothing),
            "num_query_groups 4 cannot be divided among 8 tensor-parallel ranks");
  EXPECT_EQ(refusal({.tensor = 8, .sequence = true}, [](EngineOptions& o) { o.seq_length = 12; }),
            "sequence parallel: seq_length 12 cannot be divided among 8 tensor-parallel ranks");
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
