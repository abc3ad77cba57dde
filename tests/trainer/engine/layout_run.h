// A layout of a small model, and a run of it on ranks that are threads of the test's process:
// losses, norms and whole tensors.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

namespace layout_run {

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
  bool offload = false, evaluate_first = false;

  int world() const { return tensor * pipeline * data; }
};

inline std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << l.family << ", tensor " << l.tensor << (l.sequence ? " + sequence" : "")
             << ", pipeline " << l.pipeline << ", schedule " << int(l.schedule) << ", chunks "
             << l.chunks << (l.dropout ? ", dropout" : "") << ", recompute "
             << int(l.recompute.granularity) << " of " << l.recompute.num_layers << ", data "
             << l.data << ", ZeRO " << l.zero << (l.overlap ? ", overlap" : "") << ", fp8 "
             << int(l.fp8.format) << int(l.fp8.recipe) << l.fp8.weight_gradients
             << (l.fp8.param_gather ? " gathered" : "")
             << (l.fp8.fuse_norms ? (*l.fp8.fuse_norms ? " with norms" : " after norms") : "")
             << (l.offload ? ", offload" : "")
             << (l.muon ? ", muon " + std::to_string(int(*l.muon)) : "");
}

inline ModelSpec spec_of(const Layout& l) {
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

inline EngineOptions options_of(const Layout& l) {
  EngineOptions options;
  options.seq_length = kS;
  options.micro_batch_size = kB;
  options.max_microbatches = kM / l.data;
  options.adam_eps = 1e-6f;  // as in model_golden.h: some gradients are 0 but for rounding.
  options.head_rows = 13;
  options.clip_grad = 0.5;  // less than the norm of the first steps.
  options.zero_stage = l.zero;
  options.overlap_grad_reduce = options.overlap_param_gather = l.overlap;
  options.cpu_offload = l.offload;
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
inline void fill_batch(Engine& engine, uint32_t step) {
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
  std::vector<float> evaluations;  ///< Before the first step, and after the last.
};

/// Copies a rank's part of a tensor into the whole; parts on several ranks must be equal.
inline void place_part(const ParamView& view, const Tensor& part, std::vector<float>& whole) {
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

inline Outcome run(const Layout& l, int steps = kSteps) {
  Outcome outcome;
  std::mutex mutex;
  ranks::run_ranks(l.world(), l.tensor, l.pipeline, [&](Groups groups) {
    ops::cpu::CpuOps ops(1);
    const Topology topology = groups.topology;
    Engine engine(spec_of(l), options_of(l), ops, std::move(groups));
    engine.initialise();
    std::vector<float> losses, norms, evaluations;
    const auto evaluate = [&] {
      fill_batch(engine, 99);
      evaluations.push_back(engine.evaluate(kM / l.data));
    };
    const auto collect = [&](auto field, auto tensor) {
      const std::lock_guard<std::mutex> lock(mutex);
      for (const ParamView& view : engine.parameters())
        place_part(view, tensor(view), outcome.parameters[view.param->spec.name].*field);
    };
    collect(&Values::initial, [](const ParamView& v) { return v.main; });
    if (l.evaluate_first) evaluate();
    for (int step = 0; step < steps; ++step) {
      fill_batch(engine, static_cast<uint32_t>(step));
      // Fewer micro-batches than planned for, once.
      const int64_t fewer = std::max<int64_t>(1, (kM - 2) / l.data);
      engine.step(step + 1, step == 1 ? fewer : kM / l.data, 1e-3f, 0.1f);
      losses.push_back(engine.result().loss);
      norms.push_back(engine.result().grad_norm);
      if (step == 0)
        collect(&Values::first_m, [](const ParamView& v) { return v.states[0].tensor; });
    }
    collect(&Values::main, [](const ParamView& v) { return v.main; });
    collect(&Values::m, [](const ParamView& v) { return v.states[0].tensor; });
    collect(&Values::v, [](const ParamView& v) { return v.states.back().tensor; });
    evaluate();
    EXPECT_EQ(engine.peak_bytes(), engine.memory_plan().total_bytes) << l;
    EXPECT_EQ(plan_engine({spec_of(l), options_of(l), topology}, &ops).total_bytes,
              engine.memory_plan().total_bytes)
        << l;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!outcome.losses.empty()) {
      EXPECT_EQ(outcome.losses, losses) << l << ": ranks tell different losses";
      EXPECT_EQ(outcome.norms, norms) << l << ": ranks tell different norms";
      EXPECT_EQ(outcome.evaluations, evaluations) << l;
    }
    outcome.losses = losses;
    outcome.norms = norms;
    outcome.evaluations = evaluations;
  });
  return outcome;
}

/// Every bit of two runs is the same.
inline void expect_same_bits(const Outcome& got, const Outcome& wanted) {
  EXPECT_EQ(got.losses, wanted.losses);
  EXPECT_EQ(got.norms, wanted.norms);
  EXPECT_EQ(got.evaluations, wanted.evaluations);
  ASSERT_EQ(got.parameters.size(), wanted.parameters.size());
  for (const auto& [name, w] : wanted.parameters) {
    const Values& g = got.parameters.at(name);
    EXPECT_EQ(g.initial, w.initial) << name;
    EXPECT_EQ(g.main, w.main) << name;
    EXPECT_EQ(g.m, w.m) << name;
    EXPECT_EQ(g.v, w.v) << name;
  }
}

}  // namespace layout_run
