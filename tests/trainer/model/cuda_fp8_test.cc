// Models in FP8 on a GPU: close to the CPU's FP8 and to bf16; the same bits with and without
// recording, for every kind of recompute, and with norms that linears apply; steps that are not
// finite are skipped, named, and do not affect the scales.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/trainer/model/model_golden.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cuda/cuda.h"
#include "trainer/ops/philox.h"

namespace {

using namespace trainer;

constexpr int64_t kRows = 64, kBatch = 4, kMicroBatches = 2;

ModelSpec spec_of(const std::string& family) {
  ModelSpec spec = family_defaults(family);
  spec.num_layers = 3;
  spec.hidden_size = 128;
  spec.num_attention_heads = 2;
  spec.num_query_groups = 2;
  spec.ffn_hidden_size = family == "llama" ? 320 : 512;
  spec.max_position_embeddings = kRows;
  spec.vocab_size = 500;
  spec.padded_vocab_size = 512;
  spec.hidden_dropout = spec.attention_dropout = 0;
  complete(spec);
  return spec;
}

constexpr Fp8Options::Recipe kRecipes[] = {
    Fp8Options::Recipe::delayed, Fp8Options::Recipe::tensorwise, Fp8Options::Recipe::rowwise,
    Fp8Options::Recipe::blockwise};

struct Outcome {
  std::vector<float> losses, norms, main;
  bool operator==(const Outcome&) const = default;
};

class CudaFp8Model : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (ops::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    gpu = ops::cuda::make_cuda_ops({.tune = false});
    if (!gpu->fp8_objection(ops::Fp8Scales::parts).empty())
      GTEST_SKIP() << gpu->fp8_objection(ops::Fp8Scales::parts);
  }
  static EngineOptions options_of(DType dtype, Fp8Options fp8) {
    EngineOptions options;
    options.seq_length = kRows;
    options.micro_batch_size = kBatch;
    options.max_microbatches = kMicroBatches;
    options.model_dtype = dtype;
    options.adam_eps = 1e-6f;
    options.fp8 = fp8;
    return options;
  }
  static void fill(Engine& engine, int64_t step) {
    const HostBatch batch = engine.host_batch();
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      const ops::Philox4 w =
          ops::philox({static_cast<uint32_t>(i), static_cast<uint32_t>(step), 0, 0}, 1, 2);
      batch.tokens[i] = static_cast<int32_t>(w.x % 500);
      batch.labels[i] = (batch.tokens[i] * 5 + 3) % 500;
      batch.positions[i] = static_cast<int32_t>(i % size_t(kRows * kBatch) / size_t(kBatch));
      batch.loss_mask[i] = 1;
    }
  }
  Outcome train(ops::Ops& ops, const EngineOptions& options, int64_t steps) {
    Engine engine(spec_of(GetParam()), options, ops);
    engine.initialise();
    Outcome outcome;
    for (int64_t step = 1; step <= steps; ++step) {
      fill(engine, step);
      engine.step(step, kMicroBatches, 1e-3f, 0.1f);
      outcome.losses.push_back(engine.result().loss);
      outcome.norms.push_back(engine.result().grad_norm);
    }
    EXPECT_EQ(engine.peak_bytes(), engine.memory_plan().total_bytes);
    for (const ParamView& view : engine.parameters()) {
      std::vector<float> part(static_cast<size_t>(view.main.elements()));
      ops.download(part.data(), view.main);
      ops.synchronize();
      outcome.main.insert(outcome.main.end(), part.begin(), part.end());
    }
    return outcome;
  }
  static Fp8Options hybrid(Fp8Options::Recipe recipe) {
    return {.format = Fp8Options::Format::hybrid, .recipe = recipe};
  }
  void not_finite_is_skipped(Fp8Options::Recipe recipe);
  std::unique_ptr<ops::Ops> gpu;
};

TEST_P(CudaFp8Model, IsNearTheCpuAndNearBf16) {
  ops::cpu::CpuOps cpu(4);
  const Outcome plain = train(*gpu, options_of(DType::bf16, {}), 20);
  for (const auto recipe : kRecipes) {
    const Outcome there = train(cpu, options_of(DType::f32, hybrid(recipe)), 20);
    const Outcome here = train(*gpu, options_of(DType::bf16, hybrid(recipe)), 20);
    EXPECT_NEAR(here.losses[0], there.losses[0], 2e-3);
    EXPECT_NEAR(here.norms[0], there.norms[0], 0.02 * there.norms[0]);
    for (size_t step = 0; step < 20; ++step) {
      EXPECT_NEAR(here.losses[step], there.losses[step], 0.03) << "step " << step;
      EXPECT_NEAR(here.losses[step], plain.losses[step], 0.04) << "step " << step;
    }
    EXPECT_LT(here.losses.back(), here.losses.front() - 0.05f);
  }
}

TEST_P(CudaFp8Model, TheSameBitsRecordedRecomputedAndAgain) {
  using G = Recompute::Granularity;
  using M = Recompute::Method;
  for (const auto recipe : kRecipes) {
    EngineOptions options = options_of(DType::bf16, hybrid(recipe));
    const Outcome wanted = train(*gpu, options, 5);
    EXPECT_TRUE(train(*gpu, options, 5) == wanted) << "again";
    options.capture = false;
    EXPECT_TRUE(train(*gpu, options, 5) == wanted) << "call by call";
    for (const Recompute recompute :
         {Recompute{G::selective, M::uniform, 1}, Recompute{G::full, M::uniform, 1},
          Recompute{G::full, M::block, 2}}) {
      options.recompute = recompute;
      options.capture = true;
      EXPECT_TRUE(train(*gpu, options, 5) == wanted) << int(recompute.granularity);
    }
  }
}

// Norms that linears apply while they round have the bits of norms that are written before.
TEST_P(CudaFp8Model, NormsInTheRoundingPassChangeNoBit) {
  using G = Recompute::Granularity;
  for (const auto recipe : kRecipes) {
    EngineOptions options = options_of(DType::bf16, hybrid(recipe));
    options.fp8.fuse_norms = false;
    const Outcome written = train(*gpu, options, 5);
    options.fp8.fuse_norms = true;
    EXPECT_TRUE(train(*gpu, options, 5) == written) << "recipe " << int(recipe);
    EXPECT_TRUE(train(*gpu, options, 5) == written) << "again, recipe " << int(recipe);
    options.capture = false;
    EXPECT_TRUE(train(*gpu, options, 5) == written) << "call by call, recipe " << int(recipe);
    for (const G granularity : {G::selective, G::full}) {
      options.recompute.granularity = granularity;
      options.capture = true;
      EXPECT_TRUE(train(*gpu, options, 5) == written)
          << "recompute " << int(granularity) << ", recipe " << int(recipe);
    }
  }
}

TEST_P(CudaFp8Model, NotFiniteIsSkippedNamedAndForgotten) {
  for (const auto recipe : kRecipes) not_finite_is_skipped(recipe);
}

void CudaFp8Model::not_finite_is_skipped(Fp8Options::Recipe recipe) {
  Engine engine(spec_of(GetParam()), options_of(DType::bf16, hybrid(recipe)), *gpu);
  engine.initialise();
  const auto step = [&](int64_t number) {
    fill(engine, number);
    engine.step(number, kMicroBatches, 1e-3f, 0.1f);
    return engine.result();
  };
  for (int64_t number = 1; number <= 3; ++number) EXPECT_EQ(step(number).skip, 0);
  const ParamView* norm = nullptr;
  for (const ParamView& view : engine.parameters())
    if (view.param->spec.name.find("layers.1.input_layernorm.weight") != std::string::npos)
      norm = &view;
  ASSERT_NE(norm, nullptr);
  std::vector<float> before(static_cast<size_t>(norm->main.elements()));
  gpu->download(before.data(), norm->main);
  gpu->synchronize();
  gpu->run(ops::Fill{.dst = norm->main, .value = std::numeric_limits<float>::infinity()});
  engine.refresh_model_parameters();
  EXPECT_EQ(step(4).skip, 1);
  EXPECT_FALSE(engine.nonfinite_gradients().empty());
  gpu->upload(norm->main, before.data());
  gpu->synchronize();
  engine.refresh_model_parameters();
  for (int64_t number = 5; number <= 7; ++number) {
    const ops::StepState state = step(number);
    EXPECT_EQ(state.skip, 0) << number;
    EXPECT_TRUE(std::isfinite(state.loss));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CudaFp8Model,
                         testing::Values("gpt2", "gpt_neox", "llama", "opt"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

}  // namespace
