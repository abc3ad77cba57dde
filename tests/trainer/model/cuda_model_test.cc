// Whole models on a GPU against the PyTorch goldens: fp32 as tightly as on the CPU, bf16 and fp16
// within their rounding; a recorded step against the same step queued call by call.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/trainer/optim/muon_golden.h"
#include "trainer/ops/cuda/cuda.h"

namespace {

using namespace golden;

class CudaModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (ops::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    ops::cuda::CudaOptions options;
    options.tune = false;
    gpu = ops::cuda::make_cuda_ops(options);
  }
  std::unique_ptr<ops::Ops> gpu;
};

TEST_P(CudaModel, Fp32EqualsPyTorch) {
  const std::string family = GetParam();
  const Arrays golden = read_golden(family);
  Engine engine(tiny(family), options_for(family), *gpu);
  ASSERT_NO_FATAL_FAILURE(load_weights(engine, golden));
  fill_batch(engine, golden);
  EXPECT_NEAR(engine.evaluate(kM), golden.at("evaluation")[0], 1e-5 * golden.at("evaluation")[0]);
  const std::vector<float>& losses = golden.at("loss");
  for (size_t step = 0; step < losses.size(); ++step) {
    fill_batch(engine, golden);
    engine.step(static_cast<int64_t>(step) + 1, kM, 1e-3f * static_cast<float>(1 + step % 3), 0.1f);
    const ops::StepState state = engine.result();
    EXPECT_NEAR(state.loss, losses[step], 1e-5 * losses[step]) << "step " << step;
    EXPECT_NEAR(state.grad_norm, golden.at("norm")[step], 1e-5 * golden.at("norm")[step])
        << "step " << step;
    if (step > 0) continue;
    for (const ParamView& view : engine.parameters())
      EXPECT_LE(relative_error(values(engine, view.grad).data(),
                               golden.at("grad." + view.param->spec.name)),
                1e-5)
          << view.param->spec.name;
  }
}

class CudaMuonModel : public testing::TestWithParam<MuonCase> {};

TEST_P(CudaMuonModel, Fp32EqualsPyTorchAndMegatron) {
  if (ops::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  const std::unique_ptr<ops::Ops> gpu = ops::cuda::make_cuda_ops({.tune = false});
  const auto& [name, family, muon] = GetParam();
  const Arrays start = read_golden(family), golden = read_golden("muon");
  const std::string at = std::string(name) + ".";
  EngineOptions options = options_for(family);
  options.optimizer = OptimizerKind::muon;
  options.muon = muon;
  Engine engine(tiny(family), options, *gpu);
  ASSERT_NO_FATAL_FAILURE(load_weights(engine, start));
  const std::vector<float>& losses = golden.at(at + "loss");
  for (size_t step = 0; step < losses.size(); ++step) {  // Replayed from the third on.
    fill_batch(engine, start);
    engine.step(static_cast<int64_t>(step) + 1, kM, 1e-3f * static_cast<float>(1 + step % 3), 0.1f);
    EXPECT_NEAR(engine.result().loss, losses[step], 1e-5 * losses[step]) << "step " << step;
  }
  for (const ParamView& view : engine.parameters()) {
    const ParamSpec& spec = view.param->spec;
    if (!is_matrix(spec)) continue;
    // As muon_test.cc, for twice as many roundings.
    EXPECT_LE(
        relative_error(values(engine, view.main).data(), golden.at(at + "final." + spec.name)),
        2e-5)
        << spec.name;
  }
  EXPECT_EQ(engine.peak_bytes(), engine.memory_plan().total_bytes);
}

INSTANTIATE_TEST_SUITE_P(Definitions, CudaMuonModel, testing::ValuesIn(muon_cases()),
                         [](const testing::TestParamInfo<MuonCase>& info) {
                           return std::string(info.param.name);
                         });

/// A bf16 model with bf16 products against the CPU's fp32 one: steps of the same size along nearly
/// the same matrices, and the same bits when repeated.
TEST(CudaMuonBf16, StaysNearAndRepeats) {
  if (ops::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  const std::unique_ptr<ops::Ops> gpu = ops::cuda::make_cuda_ops({.tune = false});
  const Arrays start = read_golden("gpt2"), golden = read_golden("muon");
  EngineOptions options = options_for("gpt2");
  options.optimizer = OptimizerKind::muon;
  options.model_dtype = DType::bf16;
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    Engine engine(tiny("gpt2"), options, *gpu);
    ASSERT_NO_FATAL_FAILURE(load_weights(engine, start));
    const std::vector<float>& losses = golden.at("megatron_gpt2.loss");
    std::vector<float>& all = runs.emplace_back();
    for (size_t step = 0; step < losses.size(); ++step) {
      fill_batch(engine, start);
      engine.step(static_cast<int64_t>(step) + 1, kM, 1e-3f * static_cast<float>(1 + step % 3),
                  0.1f);
      EXPECT_NEAR(engine.result().loss, losses[step], 0.02 * losses[step]) << "step " << step;
      all.push_back(engine.result().loss);
    }
    for (const ParamView& view : engine.parameters()) {
      const std::vector<float> part = values(engine, view.main);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST_P(CudaModel, SixteenBitsStayNear) {
  const std::string family = GetParam();
  // In 16 bits attention is cuDNN's, which draws its own dropout mask; fp32 above follows the law.
  if (family.ends_with("_dropout")) GTEST_SKIP() << "the golden's attention mask is not cuDNN's";
  const Arrays golden = read_golden(family);
  for (DType dtype : {DType::bf16, DType::f16}) {
    EngineOptions options = options_for(family);
    options.model_dtype = dtype;
    if (dtype == DType::f16) options.loss_scaler = {.dynamic = true, .initial = 1024};
    Engine engine(tiny(family), options, *gpu);
    ASSERT_NO_FATAL_FAILURE(load_weights(engine, golden));
    fill_batch(engine, golden);
    engine.step(1, kM, 1e-3f, 0.1f);
    const ops::StepState state = engine.result();
    EXPECT_EQ(state.skip, 0);
    // A logit is a sum of 16 products of numbers of unit size after two layers: a few units of the
    // last place (2^-8, 2^-11), averaged over 32 losses.
    const double unit = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
    EXPECT_NEAR(state.loss, golden.at("loss")[0], 4 * unit * golden.at("loss")[0]);
    // PyTorch's own fp16 run of "projected" is 5.5 units from its float64 norm.
    const double norm_units = family == "projected" ? 12 : 4;
    EXPECT_NEAR(state.grad_norm, golden.at("norm")[0], norm_units * unit * golden.at("norm")[0]);
    // PyTorch's own 16-bit runs of these models are up to 20 units from its float64 gradients.
    // ReLU's derivative jumps at 0: where rounding moves a pre-activation across, a whole unit's
    // share appears or goes, about a tenth of a gradient's largest element among 64 units and 40
    // tokens.
    const double gradient_units = family.starts_with("opt") ? 48 : 32;
    // Gradients are those of the scaled loss; a power of two is taken out exactly.
    for (const ParamView& view : engine.parameters()) {
      std::vector<float> grad = values(engine, view.grad);
      for (float& g : grad) g /= state.used_loss_scale;
      EXPECT_LE(relative_error(grad.data(), golden.at("grad." + view.param->spec.name)),
                gradient_units * unit)
          << view.param->spec.name;
    }
  }
}

TEST_P(CudaModel, RecordedStepsGiveTheSameBits) {
  const std::string family = GetParam();
  const Arrays golden = read_golden(family);
  const auto run = [&](bool capture) {
    EngineOptions options = options_for(family);
    options.model_dtype = DType::bf16;
    options.capture = capture;
    Engine engine(tiny(family), options, *gpu);
    engine.initialise();
    std::vector<float> result;
    for (int64_t step = 1; step <= 5; ++step) {
      fill_batch(engine, golden);
      engine.step(step, kM, 1e-3f, 0.1f);
      result.push_back(engine.result().loss);
    }
    for (const ParamView& view : engine.parameters()) {
      const std::vector<float> main = values(engine, view.main);
      result.insert(result.end(), main.begin(), main.end());
    }
    return result;
  };
  EXPECT_EQ(run(true), run(false));
}

INSTANTIATE_TEST_SUITE_P(Families, CudaModel,
                         testing::Values("gpt2", "gpt2_dropout", "gpt2_documents", "opt",
                                         "opt_post", "opt_post_dropout", "projected", "gpt_neox",
                                         "llama", "mistral", "qwen2", "qwen3", "scaled",
                                         "interpolated"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

}  // namespace
