// The engine on a GPU where rounding does not matter: steps that fp16's loss scaling skips,
// numbers that are not finite under bf16, memory as planned, and a decoder against the training
// forward. Numbers against goldens: model_test.cc.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "tests/trainer/model/model_golden.h"
#include "trainer/generation/decoder.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cuda/cuda.h"

namespace {

using namespace golden;

class CudaEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (ops::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    gpu = ops::cuda::make_cuda_ops({.tune = false});
  }
  std::vector<float> main_parameters(Engine& engine) {
    std::vector<float> all;
    for (const ParamView& view : engine.parameters()) {
      const std::vector<float> part = values(engine, view.main);
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  std::unique_ptr<ops::Ops> gpu;
};

// Megatron's rule for the scale: after `hysteresis` bad steps in a row it halves at each further
// one, after `window` good ones it doubles. Skipped steps change nothing; replayed steps do the
// same as queued ones.
TEST_F(CudaEngine, OverflowsAreSkippedUntilTheScaleFits) {
  const Arrays golden = read_golden("gpt2");
  EngineOptions options = options_for("gpt2");
  options.model_dtype = DType::f16;
  options.loss_scaler = {
      .dynamic = true, .initial = 0x1p32f, .min = 1, .window = 3, .hysteresis = 2};
  Engine engine(tiny("gpt2"), options, *gpu);
  ASSERT_NO_FATAL_FAILURE(load_weights(engine, golden));
  float scale = 0x1p32f;
  int64_t skipped = 0, applied = 0, good_in_a_row = 0, tracker = 2;
  std::vector<float> before = main_parameters(engine);
  for (int64_t step = 1; step <= 40; ++step) {
    fill_batch(engine, golden);
    engine.step(step, kM, 1e-3f, 0.1f);
    const ops::StepState state = engine.result();
    EXPECT_EQ(state.used_loss_scale, scale) << "step " << step;
    const std::vector<float> after = main_parameters(engine);
    if (state.skip) {
      ++skipped;
      good_in_a_row = 0;
      if (--tracker <= 0) scale = std::max(scale / 2, 1.0f);
      EXPECT_EQ(after, before) << "step " << step << " was skipped and changed weights";
    } else {
      ++applied;
      if (++good_in_a_row == 3) {
        good_in_a_row = 0;
        tracker = 2;
        scale *= 2;
      }
      EXPECT_NE(after, before) << "step " << step;
      EXPECT_TRUE(std::isfinite(state.grad_norm));
    }
    EXPECT_EQ(state.skipped_steps, skipped) << "step " << step;
    EXPECT_EQ(state.updates, applied) << "step " << step;
    EXPECT_TRUE(std::isfinite(state.loss)) << "step " << step;
    before = after;
  }
  EXPECT_GT(skipped, 5);
  EXPECT_GT(applied, 8);
}

TEST_F(CudaEngine, NotFiniteUnderBf16ChangesNothingAndIsNamed) {
  const Arrays golden = read_golden("gpt2");
  EngineOptions options = options_for("gpt2");
  options.model_dtype = DType::bf16;
  Engine engine(tiny("gpt2"), options, *gpu);
  ASSERT_NO_FATAL_FAILURE(load_weights(engine, golden));
  for (int64_t step = 1; step <= 3; ++step) {  // the third is a replayed one
    fill_batch(engine, golden);
    engine.step(step, kM, 1e-3f, 0.1f);
    EXPECT_EQ(engine.result().skip, 0);
  }
  const ParamView* poisoned = nullptr;
  for (const ParamView& view : engine.parameters()) {
    if (view.param->spec.name.find("layers.1.mlp.linear_fc1.bias") != std::string::npos)
      poisoned = &view;
  }
  ASSERT_NE(poisoned, nullptr);
  engine.ops().run(
      ops::Fill{.dst = poisoned->main, .value = std::numeric_limits<float>::infinity()});
  engine.refresh_model_parameters();
  const std::vector<float> before = main_parameters(engine);
  fill_batch(engine, golden);
  engine.step(4, kM, 1e-3f, 0.1f);
  EXPECT_EQ(engine.result().skip, 1);
  EXPECT_EQ(engine.result().updates, 3);
  const std::vector<float> after = main_parameters(engine);
  EXPECT_EQ(std::memcmp(after.data(), before.data(), before.size() * sizeof(float)), 0);
  const std::vector<std::string> names = engine.nonfinite_gradients();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.front(), "embedding.word_embeddings.weight");
}

// The device memory used from before the engine to after its steps, libraries' and graph's memory
// included, against the plan that --dry-run prints.
TEST_F(CudaEngine, MemoryIsWhatWasPlanned) {
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 12;
  spec.hidden_size = 768;
  spec.num_attention_heads = 12;
  spec.max_position_embeddings = 1024;
  spec.vocab_size = 50257;
  spec.padded_vocab_size = 50304;
  complete(spec);
  EngineOptions options;
  options.seq_length = 1024;
  options.micro_batch_size = 32;
  options.model_dtype = DType::bf16;
  const int64_t before = gpu->free_bytes();
  const EnginePlan plan = plan_engine({spec, options}, gpu.get());
  Engine engine(spec, options, *gpu);
  engine.initialise();
  for (int64_t step = 1; step <= 3; ++step) {
    const HostBatch batch = engine.host_batch();
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.tokens[i] = batch.labels[i] = static_cast<int32_t>((i * 7919) % 50257);
      batch.positions[i] = static_cast<int32_t>(i / 32);
      batch.loss_mask[i] = 1;
    }
    engine.step(step, 1, 1e-4f, 0.1f);
  }
  EXPECT_TRUE(std::isfinite(engine.result().loss));
  const int64_t used = before - gpu->free_bytes();
  EXPECT_EQ(plan.total_bytes, engine.memory_plan().total_bytes);
  EXPECT_NEAR(static_cast<double>(used), static_cast<double>(plan.total_bytes),
              0.05 * static_cast<double>(plan.total_bytes));
  std::printf("planned %.2f GB, used %.2f GB\n", static_cast<double>(plan.total_bytes) / 1e9,
              static_cast<double>(used) / 1e9);
}

// The same weights, token by token, on both devices.
TEST_F(CudaEngine, DecoderEqualsTheCpus) {
  for (const char* family : {"gpt2", "opt", "gpt_neox", "llama", "mistral", "qwen2", "qwen3"}) {
    const ModelSpec spec = tiny(family);
    const Arrays golden = read_golden(family);
    ops::cpu::CpuOps cpu(4);
    std::vector<std::vector<float>> scores;
    for (ops::Ops* ops : {static_cast<ops::Ops*>(&cpu), gpu.get()}) {
      Decoder decoder(spec, DType::f32, kS, *ops);
      for (const Decoder::Parameter& p : decoder.parameters()) {
        ops->upload(p.tensor, golden.at("init." + p.param->spec.name).data());
        ops->synchronize();
      }
      std::vector<float> all = decoder.append(std::vector<int32_t>{3, 1, 4, 1, 5});
      for (int32_t token : {9, 2, 6}) {
        const std::vector<float> next = decoder.append(std::vector<int32_t>{token});
        all.insert(all.end(), next.begin(), next.end());
      }
      scores.push_back(all);
    }
    ASSERT_EQ(scores[0].size(), scores[1].size());
    EXPECT_LE(relative_error(scores[1].data(), scores[0]), 1e-5) << family;
  }
}

}  // namespace
