// Whole models against PyTorch: loss, every gradient, 20 AdamW steps, in fp32 within 1e-5;
// recompute and threads bit for bit; overfitting one batch; the parameter table.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "tests/trainer/model/model_golden.h"
#include "trainer/engine/engine.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/spec/params.h"

namespace {

using namespace trainer;
using namespace golden;

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, LossGradientsAndTwentySteps) {
  const std::string family = GetParam();
  const Arrays golden = read_golden(family);
  ops::cpu::CpuOps ops(2);
  Engine engine(tiny(family), options_for(family), ops);
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
    EXPECT_EQ(state.skip, 0);
    if (step > 0) continue;
    for (const ParamView& view : engine.parameters())
      EXPECT_LE(relative_error(view.grad.as<float>(), golden.at("grad." + view.param->spec.name)),
                1e-5)
          << view.param->spec.name;
  }
  for (const ParamView& view : engine.parameters()) {
    const std::string& name = view.param->spec.name;
    std::vector<float> wanted = golden.at("final." + name);
    const std::vector<float>& grad = golden.at("grad." + name);
    for (size_t i = 0; i < wanted.size(); ++i) {
      // A key bias moves all scores of a query alike: its true gradient is 0, and Adam turns
      // rounding errors into steps. It only has to stay close.
      if (std::abs(grad[i]) > 1e-12f || name.find("linear_qkv.bias") == std::string::npos) continue;
      EXPECT_NEAR(view.main.as<float>()[i], wanted[i], 1e-4) << name;
      wanted[i] = view.main.as<float>()[i];
    }
    EXPECT_LE(relative_error(view.main.as<float>(), wanted), 1e-5) << name;
  }
  EXPECT_TRUE(engine.nonfinite_gradients().empty());
}

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Values("gpt2", "gpt2_dropout", "gpt2_documents", "opt",
                                         "opt_post", "opt_post_dropout", "projected", "gpt_neox",
                                         "llama", "mistral", "qwen2", "qwen3", "scaled",
                                         "interpolated"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

/// Three steps from drawn weights with dropout; all main parameters afterwards, and the last loss.
std::vector<float> three_steps(const EngineOptions& options, int threads,
                               const std::string& golden_name, int64_t layers) {
  const Arrays golden = read_golden(golden_name);
  ModelSpec spec = tiny(golden_name);
  spec.num_layers = layers;
  ops::cpu::CpuOps ops(threads);
  Engine engine(spec, options, ops);
  engine.initialise();
  std::vector<float> result;
  for (int64_t step = 1; step <= 3; ++step) {
    fill_batch(engine, golden);
    engine.step(step, kM, 1e-2f, 0.1f);
    result.push_back(engine.result().loss);
  }
  for (const ParamView& view : engine.parameters())
    result.insert(result.end(), view.main.as<float>(),
                  view.main.as<float>() + view.main.elements());
  return result;
}

TEST(Recompute, EveryKindGivesTheSameBits) {
  using G = Recompute::Granularity;
  using M = Recompute::Method;
  for (const char* family : {"gpt2", "gpt2_dropout", "gpt_neox", "llama", "qwen2", "qwen3",
                             "scaled", "mistral", "opt_post", "opt_post_dropout", "projected"}) {
    EngineOptions options = options_for(family);
    const std::vector<float> wanted = three_steps(options, 2, family, 5);
    for (const Recompute recompute :
         {Recompute{G::selective, M::uniform, 1}, Recompute{G::full, M::uniform, 1},
          Recompute{G::full, M::uniform, 2}, Recompute{G::full, M::uniform, 5},
          Recompute{G::full, M::block, 2}, Recompute{G::full, M::block, 9}}) {
      options.recompute = recompute;
      EXPECT_EQ(three_steps(options, 2, family, 5), wanted)
          << family << " " << int(recompute.granularity) << " " << int(recompute.method) << " "
          << recompute.num_layers;
    }
  }
}

TEST(Recompute, SavesWhatItShould) {
  ModelSpec spec = tiny("gpt2");
  spec.num_layers = 12;
  EngineOptions options = options_for("gpt2");
  const int64_t all = plan_engine({spec, options}, nullptr).total_bytes;
  options.recompute.granularity = Recompute::Granularity::selective;
  const int64_t selective = plan_engine({spec, options}, nullptr).total_bytes;
  options.recompute.granularity = Recompute::Granularity::full;
  const int64_t full = plan_engine({spec, options}, nullptr).total_bytes;
  // Of 16 hidden sizes a token and layer, selective keeps 10 and full 1.
  const int64_t unit = 12 * kS * kB * spec.hidden_size * 4;
  EXPECT_GT(all - selective, 4 * unit);
  EXPECT_GT(all - full, 12 * unit);
}

TEST(Engine, ThreadsChangeNoBit) {
  const EngineOptions options = options_for("gpt2_dropout");
  EXPECT_EQ(three_steps(options, 1, "gpt2_dropout", 2), three_steps(options, 5, "gpt2_dropout", 2));
}

TEST(Engine, ResidualFusionAndHeadChunksChangeOnlyRounding) {
  EngineOptions options = options_for("gpt2");
  const std::vector<float> wanted = three_steps(options, 2, "gpt2", 2);
  options.fuse_residual = false;
  options.head_rows = 0;
  const std::vector<float> got = three_steps(options, 2, "gpt2", 2);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5 * wanted[i]);
}

TEST(Engine, LearnsOneBatchByHeart) {
  const Arrays golden = read_golden("gpt2");
  ModelSpec spec = tiny("gpt2");
  ops::cpu::CpuOps ops(2);
  EngineOptions options = options_for("gpt2");
  Engine engine(spec, options, ops);
  engine.initialise();
  float loss = 0;
  for (int64_t step = 1; step <= 300; ++step) {
    fill_batch(engine, golden);
    engine.step(step, kM, 1e-2f, 0.0f);
    loss = engine.result().loss;
    if (step == 1) {
      EXPECT_NEAR(loss, std::log(32.0), 0.1);  // Small weights: every id is as likely.
    }
  }
  EXPECT_LT(loss, 0.02f);
}

TEST(Engine, MicroBatchesAddUpToOneLargeBatch) {
  // Two micro-batches with equal masks against one of twice the size: the same samples, the same
  // gradient.
  Arrays golden = read_golden("gpt2");
  std::fill(golden["loss_mask"].begin(), golden["loss_mask"].end(), 1.0f);
  ops::cpu::CpuOps ops(2);
  EngineOptions small = options_for("gpt2"), large = small;
  large.micro_batch_size = 2 * kB;
  large.max_microbatches = 1;
  Engine a(tiny("gpt2"), small, ops), b(tiny("gpt2"), large, ops);
  ASSERT_NO_FATAL_FAILURE(load_weights(a, golden));
  ASSERT_NO_FATAL_FAILURE(load_weights(b, golden));
  fill_batch(a, golden);
  Arrays joined = golden;
  for (const char* name : {"tokens", "labels", "positions", "loss_mask"})
    for (size_t i = 0; i < kM * kS * kB; ++i) {  // (M, S, B) to (S, M * B)
      const size_t m = i / (kS * kB), s = i / kB % kS, column = i % kB;
      joined[name][s * kM * kB + m * kB + column] = golden[name][i];
    }
  fill_batch(b, joined);
  a.step(1, kM, 1e-3f, 0);
  b.step(1, 1, 1e-3f, 0);
  EXPECT_NEAR(a.result().loss, b.result().loss, 1e-5);
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    const Tensor g = b.parameters()[i].grad;
    EXPECT_LE(relative_error(a.parameters()[i].grad.as<float>(),
                             {g.as<float>(), g.as<float>() + g.elements()}),
              2e-5)
        << a.parameters()[i].param->spec.name;
  }
}

TEST(Engine, OutputLayersAreDrawnWithTheirOwnDeviation) {
  ops::cpu::CpuOps ops(1);
  const auto deviations = [&](float output_init_std) {
    EngineOptions options = options_for("gpt2");
    options.output_init_std = output_init_std;
    Engine engine(tiny("gpt2"), options, ops);
    engine.initialise();
    std::map<Init, double> squares, elements;
    for (const ParamView& view : engine.parameters()) {
      const float* at = view.main.as<float>();
      for (int64_t i = 0; i < view.main.elements(); ++i)
        squares[view.param->spec.init] += double{at[i]} * double{at[i]};
      elements[view.param->spec.init] += static_cast<double>(view.main.elements());
    }
    for (auto& [init, sum] : squares) sum = std::sqrt(sum / elements.at(init));
    return squares;
  };
  // About 2000 elements: the deviation of their deviation is 1.6%.
  EXPECT_NEAR(deviations(0).at(Init::scaled_normal), 0.02 / 2, 0.001);
  EXPECT_NEAR(deviations(0.5f).at(Init::scaled_normal), 0.5, 0.05);
  EXPECT_NEAR(deviations(0.5f).at(Init::normal), 0.02, 0.002);
}

TEST(Engine, BadGradientsAreSkippedAndNamed) {
  const Arrays golden = read_golden("gpt2");
  ops::cpu::CpuOps ops(2);
  EngineOptions options = options_for("gpt2");
  options.loss_scaler = {.dynamic = true, .initial = 1024, .min = 1, .window = 2, .hysteresis = 1};
  Engine engine(tiny("gpt2"), options, ops);
  ASSERT_NO_FATAL_FAILURE(load_weights(engine, golden));
  const Tensor fc2 = engine.parameters()[13].main;
  ASSERT_EQ(engine.parameters()[13].param->spec.name, "decoder.layers.0.mlp.linear_fc2.bias");
  const float saved = fc2.as<float>()[3];
  fc2.as<float>()[3] = INFINITY;
  fill_batch(engine, golden);
  engine.step(1, kM, 1e-2f, 0.1f);
  ops::StepState state = engine.result();
  EXPECT_EQ(state.skip, 1);
  EXPECT_EQ(state.updates, 0);
  EXPECT_EQ(state.loss_scale, 512);
  EXPECT_FALSE(engine.nonfinite_gradients().empty());
  fc2.as<float>()[3] = saved;
  for (const ParamView& view : engine.parameters())
    EXPECT_EQ(std::memcmp(view.main.data, golden.at("init." + view.param->spec.name).data(),
                          size_t(view.main.bytes())),
              0)
        << view.param->spec.name;
  // With the scale still on, a good step is the golden's: the scale is undone exactly (a power of
  // two).
  fill_batch(engine, golden);
  engine.step(2, kM, 1e-3f, 0.1f);
  state = engine.result();
  EXPECT_NEAR(state.grad_norm, golden.at("norm")[0], 1e-5 * golden.at("norm")[0]);
  EXPECT_EQ(state.updates, 1);
}

TEST(Engine, ResumesFromItsTensorsBitForBit) {
  const Arrays golden = read_golden("gpt2_dropout");
  ops::cpu::CpuOps ops(2);
  Engine straight(tiny("gpt2_dropout"), options_for("gpt2_dropout"), ops),
      resumed(tiny("gpt2_dropout"), options_for("gpt2_dropout"), ops);
  straight.initialise();
  const auto run = [&](Engine& engine, int64_t begin, int64_t end) {
    for (int64_t step = begin; step <= end; ++step) {
      fill_batch(engine, golden);
      engine.step(step, kM, 1e-2f, 0.1f);
    }
  };
  run(straight, 1, 2);
  resumed.initialise();
  for (size_t i = 0; i < straight.parameters().size(); ++i) {
    const ParamView &from = straight.parameters()[i], &to = resumed.parameters()[i];
    for (const auto& [a, b] :
         {std::pair(from.main, to.main), std::pair(from.states[0].tensor, to.states[0].tensor),
          std::pair(from.states[1].tensor, to.states[1].tensor)})
      std::memcpy(b.data, a.data, size_t(a.bytes()));
  }
  resumed.set_state(straight.state());
  resumed.refresh_model_parameters();
  run(straight, 3, 4);
  run(resumed, 3, 4);
  EXPECT_EQ(straight.result().loss, resumed.result().loss);
  EXPECT_EQ(straight.result(1).loss, resumed.result(1).loss);
  for (size_t i = 0; i < straight.parameters().size(); ++i)
    EXPECT_EQ(std::memcmp(straight.parameters()[i].main.data, resumed.parameters()[i].main.data,
                          size_t(straight.parameters()[i].main.bytes())),
              0);
}

TEST(ParamTable, CountsAndNames) {
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 12;
  spec.hidden_size = 768;
  spec.num_attention_heads = 12;
  spec.max_position_embeddings = 1024;
  spec.vocab_size = 50257;
  complete(spec);
  EXPECT_EQ(count_parameters(spec), 124439808);  // GPT-2 small
  spec.padded_vocab_size = 50304;
  const std::vector<ParamSpec> table = param_table(spec);
  std::set<std::string> names;
  for (const ParamSpec& p : table) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    EXPECT_EQ(p.decay, p.shape.size() == 2) << p.name;
  }
  EXPECT_EQ(table.size(), 2u + 12 * 12 + 2);
  EXPECT_EQ(count_param_rows(spec), 2 + 12 * 12 + 2);
  // Four tensor-parallel ranks hold, together, every split parameter once and the others four
  // times.
  int64_t whole = 0, split = 0;
  for (const ParamSpec& p : table) (p.split < 0 ? whole : split) += p.elements();
  int64_t held = 0;
  for (int rank = 0; rank < 4; ++rank) {
    Place place = whole_model(spec);
    place.tensor_rank = rank;
    place.tensor_size = 4;
    for (const LocalParam& p : local_params(spec, place)) held += p.elements();
  }
  EXPECT_EQ(held, split + 4 * whole);
  Place place = whole_model(spec);
  place.tensor_size = 5;
  EXPECT_THROW(local_params(spec, place), ShapeError);
}

TEST(ParamTable, OfOpt350mIsItsOwn) {
  ModelSpec spec = family_defaults("opt");
  spec.post_norm = true;
  spec.embedding_size = 512;
  spec.num_layers = 24;
  spec.hidden_size = 1024;
  spec.num_attention_heads = 16;
  spec.max_position_embeddings = 2048;
  spec.vocab_size = 50272;
  complete(spec);
  EXPECT_EQ(count_parameters(spec), 331196416);
  std::set<std::string> names;
  for (const ParamSpec& param : param_table(spec)) names.insert(param.name);
  EXPECT_EQ(count_param_rows(spec), static_cast<int64_t>(names.size()));
  EXPECT_FALSE(names.contains("decoder.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(names.contains("decoder.layers.1.input_layernorm.weight"));
  EXPECT_TRUE(names.contains("decoder.final_layernorm.weight"));
  spec.embedding_size = 1024;  // as wide as the model: no projections
  complete(spec);
  EXPECT_EQ(spec.embedding_size, 0);
}

TEST(Plan, EveryCombinationPassesTheChecksOfAllOperations) {
  using G = Recompute::Granularity;
  for (const char* family : {"gpt2", "gpt2_dropout", "gpt2_documents", "opt", "gpt_neox", "llama",
                             "mistral", "qwen2", "qwen3", "scaled", "interpolated"})
    for (DType model : {DType::f32, DType::bf16, DType::f16})
      for (DType grad : {DType::f32, model})
        for (G granularity : {G::none, G::selective, G::full})
          for (bool fuse : {false, true}) {
            EngineOptions options = options_for(family);
            options.optimizer = fuse ? OptimizerKind::muon : OptimizerKind::adamw;
            options.model_dtype = model;
            options.grad_dtype = grad;
            options.moment_dtype = model == DType::bf16 ? DType::bf16 : DType::f32;
            options.recompute.granularity = granularity;
            options.fuse_residual = fuse;
            EXPECT_NO_THROW(EXPECT_GT(plan_engine({tiny(family), options}, nullptr).total_bytes, 0))
                << family;
          }
}

TEST(Plan, KnownSizes) {
  // GPT-3 6.7B on one card of 141 GB, with the flags that such a run would have.
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 32;
  spec.hidden_size = 4096;
  spec.num_attention_heads = 32;
  spec.max_position_embeddings = 2048;
  spec.vocab_size = 50257;
  spec.padded_vocab_size = 50304;
  spec.hidden_dropout = spec.attention_dropout = 0;
  complete(spec);
  const double n = static_cast<double>(count_parameters(spec));
  EXPECT_NEAR(n / 1e9, 6.66, 0.01);
  EngineOptions options;
  options.seq_length = 2048;
  options.micro_batch_size = 4;
  options.model_dtype = options.grad_dtype = DType::bf16;
  const EnginePlan all = plan_engine({spec, options}, nullptr);
  options.recompute.granularity = Recompute::Granularity::full;
  const EnginePlan full = plan_engine({spec, options}, nullptr);
  const double tokens = 4.0 * 2048, unit = tokens * 4096 * 2;  // one bf16 activation
  // 16 bytes a parameter; kept activations 16 units a layer, or 1 and the layer at work.
  EXPECT_NEAR(static_cast<double>(all.total_bytes), 16 * n + 32 * 16 * unit,
              0.05 * static_cast<double>(all.total_bytes));
  EXPECT_LT(static_cast<double>(full.total_bytes), 16 * n + (32 + 16 + 20) * unit);
  EXPECT_LT(full.total_bytes, int64_t{125} << 30);
  // 6 flops a parameter and token (embeddings' rows are no products), attention on half the square.
  const double products = 6 * tokens * (n - 2048 * 4096.0) + 3 * 2 * 2 * tokens * 1024 * 4096 * 32;
  EXPECT_NEAR(all.step_flops / products, 1, 0.02);
  // Recompute is each layer's forward once more, without fc2, whose output nobody needs.
  const double again = 32 * tokens * (2.0 * 8 * 4096 * 4096 + 2 * 2 * 1024 * 4096);
  EXPECT_NEAR((full.step_flops - all.step_flops) / again, 1, 0.02);
}

TEST(Plan, MuonHasOneNumberForEachElementOfAMatrixAndItsProducts) {
  ModelSpec spec = family_defaults("llama");
  spec.num_layers = 24;
  spec.hidden_size = 2048;
  spec.ffn_hidden_size = 5632;
  spec.num_attention_heads = 16;
  spec.max_position_embeddings = 2048;
  spec.vocab_size = spec.padded_vocab_size = 32000;
  complete(spec);
  double matrices = 0, others = 0;
  for (const ParamSpec& param : param_table(spec))
    (is_matrix(param) ? matrices : others) += static_cast<double>(param.elements());
  EngineOptions options;
  options.seq_length = 2048;
  options.micro_batch_size = 4;
  options.model_dtype = DType::bf16;
  const auto plan = [&](OptimizerKind kind, int zero, int data) {
    options.optimizer = kind;
    options.zero_stage = zero;
    return plan_engine({spec, options, make_topology(0, data, 1, 1)}, nullptr);
  };
  const EnginePlan adam = plan(OptimizerKind::adamw, 0, 1), muon = plan(OptimizerKind::muon, 0, 1);
  const auto bytes = [](const EnginePlan& p) { return static_cast<double>(p.total_bytes); };
  EXPECT_NEAR(bytes(adam) - bytes(muon), 4 * matrices, 1e6);
  // A step of the iteration takes 4 q^2 p + 2 q^3 on q x p; a matrix of 2048 x 2048 three times
  // for q, k and v, once for proj; fc1 of 2 x 5632 rows, fc2 of 5632 columns.
  const double q = 2048, square = 6 * q * q * q,
               wide = 4 * q * q * (3 * 5632.0) + 2 * 2 * q * q * q;
  EXPECT_NEAR((muon.step_flops - adam.step_flops) / (5 * 24 * (4 * square + wide)), 1, 0.01);
  // Shared among eight: an eighth of what is kept for each element, and 5% for padding.
  const EnginePlan shared = plan(OptimizerKind::muon, 1, 8);
  const double kept = 8 * matrices + 12 * others;
  const double saved = bytes(plan(OptimizerKind::muon, 0, 8)) - bytes(shared);
  // Padding from packing is in weights and gradients, too.
  EXPECT_NEAR(saved, kept * 7 / 8, 0.05 * (6 + 1) * matrices);
  const EnginePlan one_of_two = plan(OptimizerKind::muon, 1, 2);
  EXPECT_LT(shared.step_flops - adam.step_flops, 0.3 * (one_of_two.step_flops - adam.step_flops));
}

TEST(Plan, LayoutsTakeTheirShare) {
  // GPT-22B of Korthikanti et al. 2022, table 3: 48 layers of 6144, 64 heads.
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 48;
  spec.hidden_size = 6144;
  spec.num_attention_heads = 64;
  spec.max_position_embeddings = 2048;
  spec.vocab_size = spec.padded_vocab_size = 51200;
  spec.hidden_dropout = spec.attention_dropout = 0;
  complete(spec);
  EngineOptions options;
  options.seq_length = 2048;
  options.micro_batch_size = 4;
  options.model_dtype = options.grad_dtype = DType::bf16;
  const double n = static_cast<double>(count_parameters(spec));
  EXPECT_NEAR(n / 1e9, 22.1, 0.1);
  const double unit = 2048 * 4.0 * 6144 * 2;
  const auto plan = [&](int world, int tensor, int pipeline, int rank) {
    return static_cast<double>(
        plan_engine({spec, options, make_topology(rank, world, tensor, pipeline)}, nullptr)
            .total_bytes);
  };
  // Of a layer's 16 units the 4 of norms' inputs and outputs are whole on each tensor rank, unless
  // the sequence is divided; 16 bytes a parameter.
  const double whole = plan(4, 4, 1, 0);
  EXPECT_NEAR(whole, 16 * n / 4 + 48 * (4 + 12 / 4.0) * unit, 0.05 * whole);
  options.sequence_parallel = true;
  const double divided = plan(4, 4, 1, 0);
  EXPECT_NEAR(divided, 16 * n / 4 + 48 * 16 / 4.0 * unit, 0.05 * divided);
  // Four stages of 12 layers; the first holds four micro-batches, the last one.
  options.max_microbatches = 8;
  options.layers_per_stage = {12, 12, 12, 12};
  const double first = plan(4, 1, 4, 0), last = plan(4, 1, 4, 3);
  EXPECT_NEAR(first - last, 12 * 3 * 16 * unit, 0.08 * first);
}

TEST(ModelSpecTest, FlopsEqualMegatronsFormula) {
  ModelSpec spec = family_defaults("gpt2");
  spec.num_layers = 24;
  spec.hidden_size = 2048;
  spec.num_attention_heads = 16;
  spec.max_position_embeddings = 2048;
  spec.vocab_size = 50304;
  complete(spec);
  // 72 B s L h^2 (1 + s / 6h + V / 12hL), with B = 1 (equation 3, without recompute's quarter).
  const double s = 2048, l = 24, h = 2048, v = 50304;
  EXPECT_NEAR(
      flops_per_sample(spec, 2048) / (72 * s * l * h * h * (1 + s / (6 * h) + v / (12 * h * l))), 1,
      1e-12);
}

TEST(ModelSpecTest, RefusesWhatCannotBe) {
  ModelSpec spec = tiny("gpt2");
  spec.num_query_groups = 3;
  EXPECT_THROW(complete(spec), ShapeError);
  EXPECT_THROW(family_defaults("bert"), ShapeError);
  ops::cpu::CpuOps ops(1);
  EngineOptions options = options_for("gpt2");
  options.seq_length = 1000;
  EXPECT_THROW(Engine(tiny("gpt2"), options, ops), ShapeError);
}

}  // namespace
