// Data-parallel ranks against one process: losses, norms, weights and optimizer state, in every
// ZeRO stage and with either optimizer; memory as planned; a gradient that is not finite named on
// every rank.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/trainer/engine/ranks.h"
#include "tests/trainer/model/model_golden.h"
#include "trainer/data/batch_loader.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace {

using namespace trainer;
using golden::kB;
using golden::kS;

constexpr int64_t kSamples = 16;  ///< In a step of all ranks.
constexpr int kSteps = 4;

/// Whole tensors, assembled from the ranks' parts.
struct Model {
  std::map<std::string, std::vector<float>> main;
  std::map<std::string, std::vector<float>> states;  ///< By state and parameter.
  std::vector<float> losses, norms;
  float evaluation = 0;
  bool operator==(const Model&) const = default;
};

uint32_t hash(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

uint32_t seed_of(int64_t step, int64_t sample, int64_t s) {
  return static_cast<uint32_t>((step * kSamples + sample) * 64 + s);
}
float mask_of(uint32_t seed) { return hash(seed * 3 + 7) % 5 == 0 ? 0.0f : 1.0f; }

/// Tokens that count in the loss of a step of all ranks.
int64_t total_tokens(int64_t step) {
  int64_t total = 0;
  for (int64_t sample = 0; sample < kSamples; ++sample)
    for (int64_t s = 0; s < kS; ++s) total += mask_of(seed_of(step, sample, s)) != 0;
  return total;
}

/// This rank's samples of a step's kSamples, in Megatron's order.
int64_t fill(Engine& engine, int64_t step, const EngineOptions& options) {
  const HostBatch batch = engine.host_batch();
  const Topology& t = engine.topology();
  const int64_t width = options.micro_batch_size;
  const int64_t microbatches = kSamples / (width * t.data_size);
  for (int64_t m = 0; m < microbatches; ++m) {
    for (int64_t s = 0; s < kS; ++s) {
      for (int64_t b = 0; b < width; ++b) {
        const int64_t sample = (m * t.data_size + t.data_rank) * width + b;
        const size_t at = static_cast<size_t>((m * kS + s) * width + b);
        const uint32_t seed = seed_of(step, sample, s);
        batch.tokens[at] = static_cast<int32_t>(hash(seed) % 29);
        batch.labels[at] = static_cast<int32_t>(hash(seed + 1) % 29);
        batch.positions[at] = static_cast<int32_t>(s);
        batch.loss_mask[at] = mask_of(seed);
      }
    }
  }
  if (options.per_token_loss)
    weigh_tokens(batch.loss_mask, microbatches, t.data_size, total_tokens(step));
  return microbatches;
}

void put(std::vector<float>& whole, const ParamView& view, const Tensor& kept) {
  whole.resize(static_cast<size_t>(view.param->elements()));
  if (kept) std::copy_n(kept.flat().as<float>(), view.kept.count, whole.begin() + view.kept.first);
}

/// kSteps steps and an evaluation on each rank of `world`.
Model train(int world, const std::string& family, EngineOptions options, int layers = 3) {
  ModelSpec spec = golden::tiny(family);
  spec.num_layers = layers;
  options.max_microbatches = kSamples / (options.micro_batch_size * world);
  Model model;
  std::mutex mutex;
  const auto body = [&](Groups groups) {
    ops::cpu::CpuOps ops(1);
    Engine engine(spec, options, ops, std::move(groups));
    engine.initialise();
    std::vector<float> losses, norms;
    for (int64_t step = 1; step <= kSteps; ++step) {
      const int64_t microbatches = fill(engine, step, options);
      engine.step(step, microbatches, 1e-2f / static_cast<float>(step), 0.1f);
      const ops::StepState state = engine.result();
      losses.push_back(state.loss);
      norms.push_back(state.grad_norm);
    }
    const float evaluation = engine.evaluate(fill(engine, 99, options));
    const std::lock_guard<std::mutex> lock(mutex);
    if (!model.losses.empty()) {
      EXPECT_EQ(losses, model.losses) << "ranks disagree";
      EXPECT_EQ(norms, model.norms) << "ranks disagree";
      EXPECT_EQ(evaluation, model.evaluation) << "ranks disagree";
    }
    model.losses = losses;
    model.norms = norms;
    model.evaluation = evaluation;
    for (const ParamView& view : engine.parameters()) {
      const std::string& name = view.param->spec.name;
      put(model.main[name], view, view.main);
      for (const StateView& state : view.states)
        put(model.states[std::string(state.name) + " " + name], view, state.tensor);
    }
    EXPECT_EQ(engine.peak_bytes(), engine.memory_plan().total_bytes);
  };
  if (world == 1)
    body(solo_groups());
  else
    ranks::run_ranks(world, 1, 1, body);
  return model;
}

void expect_near(const Model& got, const Model& wanted, double tolerance) {
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], wanted.losses[i], tolerance * wanted.losses[i]) << "step " << i;
    EXPECT_NEAR(got.norms[i], wanted.norms[i], 10 * tolerance * wanted.norms[i]) << "step " << i;
  }
  EXPECT_NEAR(got.evaluation, wanted.evaluation, tolerance * wanted.evaluation);
  // Adam's steps do not shrink with the gradient, so what differs in rounding can move a weight by
  // a share of the rate; moments are means of gradients and keep their relative precision.
  for (const auto& arrays : {&Model::main, &Model::states}) {
    for (const auto& [name, values] : wanted.*arrays) {
      if (name.find("linear_qkv.bias") != std::string::npos) continue;  // Key biases: gradient 0.
      EXPECT_LE(golden::relative_error((got.*arrays).at(name).data(), values), 100 * tolerance)
          << name;
    }
  }
}

EngineOptions options_of(const std::string& family, int stage, bool overlap) {
  EngineOptions options = golden::options_for(family);
  options.zero_stage = stage;
  options.overlap_grad_reduce = overlap;
  options.overlap_param_gather = overlap;
  return options;
}

class DataParallel : public testing::TestWithParam<int> {};

TEST_P(DataParallel, EqualsOneProcessAndItself) {
  const int stage = GetParam();
  const std::pair<const char*, int> runs[] = {
      {"gpt2_dropout", 2}, {"gpt2_dropout", 4}, {"llama", 2}, {"opt_post_dropout", 2}};
  for (const auto& [family, world] : runs) {
    SCOPED_TRACE(std::string(family) + " on " + std::to_string(world));
    const Model wanted = train(1, family, options_of(family, 0, false));
    const Model plain = train(world, family, options_of(family, stage, false));
    expect_near(plain, wanted, 1e-6);
    // When gradients are sent and weights received changes no bit.
    EXPECT_EQ(train(world, family, options_of(family, stage, true)), plain);
  }
}

TEST_P(DataParallel, MuonEqualsOneProcessAndItself) {
  const std::pair<const char*, int> runs[] = {
      {"gpt2_dropout", 2}, {"gpt2_dropout", 4}, {"llama", 2}, {"opt_post_dropout", 2}};
  for (const auto& [family, world] : runs) {
    SCOPED_TRACE(std::string(family) + " on " + std::to_string(world));
    EngineOptions options = options_of(family, 0, false);
    options.optimizer = OptimizerKind::muon;
    // In bf16 a difference in the last digit of fp32 could be rounded either way.
    options.muon.product_dtype = DType::f32;
    const Model wanted = train(1, family, options);
    options.zero_stage = GetParam();
    const Model plain = train(world, family, options);
    expect_near(plain, wanted, 1e-6);
    options.muon.product_dtype = DType::bf16;
    const Model rounded = train(world, family, options);
    EXPECT_NE(rounded, plain);
    options.overlap_grad_reduce = options.overlap_param_gather = true;
    EXPECT_EQ(train(world, family, options), rounded);
    options.cpu_offload = true;
    EXPECT_EQ(train(world, family, options), rounded);
  }
}

// One process with one micro-batch of all samples: its mean is the mean over all tokens that count.
TEST_P(DataParallel, TokensCountTheSameWhateverMicroBatchHoldsThem) {
  for (const char* family : {"gpt2", "llama"}) {
    EngineOptions whole = options_of(family, 0, false);
    whole.micro_batch_size = kSamples;
    EngineOptions parts = options_of(family, GetParam(), false);
    parts.per_token_loss = true;
    expect_near(train(2, family, parts), train(1, family, whole), 1e-6);
  }
}

TEST_P(DataParallel, RecomputeFetchesTheSameWeights) {
  EngineOptions options = options_of("gpt2_dropout", GetParam(), true);
  const Model wanted = train(2, "gpt2_dropout", options, 5);
  for (const Recompute::Method method : {Recompute::Method::uniform, Recompute::Method::block}) {
    options.recompute = {Recompute::Granularity::full, method, 2};
    EXPECT_EQ(train(2, "gpt2_dropout", options, 5), wanted);
  }
}

TEST_P(DataParallel, OffloadedStateChangesNoBit) {
  EngineOptions options = options_of("gpt2", GetParam(), true);
  for (const int world : {1, 2}) {
    options.cpu_offload = false;
    const Model wanted = train(world, "gpt2", options);
    options.cpu_offload = true;
    EXPECT_EQ(train(world, "gpt2", options), wanted);
  }
}

TEST_P(DataParallel, GradientsMayBeAddedInBf16) {
  EngineOptions options = options_of("gpt2", GetParam(), true);
  const Model wanted = train(1, "gpt2", options);
  options.grad_reduce_in_bf16 = true;
  const Model got = train(4, "gpt2", options);
  for (size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], wanted.losses[i], 4e-3 * wanted.losses[i]);
  EXPECT_NE(got.losses.back(), wanted.losses.back());
}

TEST_P(DataParallel, NotFiniteOnOneRankIsNamedOnAll) {
  ModelSpec spec = golden::tiny("gpt2");
  EngineOptions options = options_of("gpt2", GetParam(), true);
  options.max_microbatches = kSamples / (kB * 2);
  ranks::run_ranks(2, 1, 1, [&](Groups groups) {
    ops::cpu::CpuOps ops(1);
    Engine engine(spec, options, ops, std::move(groups));
    engine.initialise();
    const int64_t microbatches = fill(engine, 1, options);
    engine.step(1, microbatches, 1e-3f, 0);
    EXPECT_EQ(engine.result().skip, 0);
    EXPECT_TRUE(engine.nonfinite_gradients().empty());
    const int64_t rank = engine.topology().data_rank;
    HostBatch batch = engine.host_batch();
    fill(engine, 2, options);
    batch = engine.host_batch();
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.tokens[i] = batch.labels[i] = 1;
      batch.positions[i] = static_cast<int32_t>(static_cast<int64_t>(i) / kB % kS);
      batch.loss_mask[i] = 1;
    }
    if (rank == 1) batch.loss_mask[3] = std::numeric_limits<float>::quiet_NaN();
    engine.step(2, microbatches, 1e-3f, 0);
    EXPECT_EQ(engine.result().skip, 1);
    const std::vector<std::string> names = engine.nonfinite_gradients();
    ASSERT_FALSE(names.empty());
    EXPECT_EQ(names.front(), "embedding.word_embeddings.weight");
    std::vector<float> same{static_cast<float>(names.size()), 1.0f};
    engine.over_ranks(same, comm::Reduce::sum);
    EXPECT_EQ(same[0], 2 * static_cast<float>(names.size()));
    EXPECT_EQ(same[1], 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, DataParallel, testing::Values(0, 1, 2, 3));

TEST(ZeroMemory, PlansShrinkByWhatIsShared) {
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 32;
  spec.hidden_size = 4096;
  spec.num_attention_heads = 32;
  spec.max_position_embeddings = 2048;
  spec.vocab_size = 50257;
  spec.padded_vocab_size = 50304;
  complete(spec);
  EngineOptions options;
  options.seq_length = 2048;
  options.micro_batch_size = 1;
  options.model_dtype = DType::bf16;
  options.recompute.granularity = Recompute::Granularity::full;
  const double n = static_cast<double>(count_parameters(spec));
  const double outside =
      50304.0 * 4096 + 2048.0 * 4096;  // Embeddings: whole in gradients, weights.
  const double layer = (n - outside) / 32;
  const auto bytes = [&](int stage, bool offload) {
    options.zero_stage = stage;
    options.cpu_offload = offload;
    return plan_engine({spec, options, make_topology(0, 8, 1, 1)}, nullptr);
  };
  const double none = static_cast<double>(bytes(0, false).total_bytes);
  const double one = static_cast<double>(bytes(1, false).total_bytes);
  const double two = static_cast<double>(bytes(2, false).total_bytes);
  const double three = static_cast<double>(bytes(3, false).total_bytes);
  EXPECT_NEAR(none - one, 12 * n * 7 / 8, 0.001 * n);
  // Seven of eight layers' gradients fewer, but up to three layers' in transfer.
  EXPECT_NEAR(one - two, 4 * 32 * layer * 7 / 8, 3 * 4 * layer);
  EXPECT_NEAR(two - three, 2 * 32 * layer * 7 / 8 - 2 * 2 * layer, 0.01 * n);
  const EnginePlan offloaded = bytes(1, true);
  EXPECT_NEAR(one - static_cast<double>(offloaded.total_bytes), 12 * n / 8, 0.001 * n);
  EXPECT_NEAR(static_cast<double>(offloaded.host_bytes), 12 * n / 8, 0.001 * n);
  EXPECT_NE(offloaded.report.find("in host memory"), std::string::npos);
}

}  // namespace
