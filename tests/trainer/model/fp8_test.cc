// Whole models with linears in FP8, on the CPU: close to fp32, learning, the same bits for every
// kind of recompute and after resuming, with norms that linears apply and norms that are written;
// layers and gradients kept in the model dtype.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainer/engine/engine.h"
#include "trainer/model/fp8.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/philox.h"

namespace {

using namespace trainer;
using Format = Fp8Options::Format;
using Recipe = Fp8Options::Recipe;

constexpr int64_t kS = 16, kB = 2, kM = 2, kLayers = 3;
constexpr Recipe kRecipes[] = {Recipe::delayed, Recipe::tensorwise, Recipe::rowwise,
                               Recipe::blockwise};

ModelSpec small(const std::string& family) {
  ModelSpec spec = family_defaults(family);
  spec.num_layers = kLayers;
  spec.hidden_size = 32;
  spec.num_attention_heads = 4;
  spec.num_query_groups = family == "llama" ? 2 : 4;
  spec.ffn_hidden_size = family == "llama" ? 48 : 128;
  spec.max_position_embeddings = kS;
  spec.vocab_size = 61;
  spec.padded_vocab_size = 64;
  spec.hidden_dropout = spec.attention_dropout = 0;
  complete(spec);
  return spec;
}

EngineOptions options_for(const Fp8Options& fp8) {
  EngineOptions options;
  options.seq_length = kS;
  options.micro_batch_size = kB;
  options.max_microbatches = kM;
  options.adam_eps = 1e-6f;
  options.fp8 = fp8;
  return options;
}
Fp8Options fp8(Format format, Recipe recipe) { return {.format = format, .recipe = recipe}; }

/// Labels follow from tokens, so that there is something to learn.
void fill(Engine& engine, uint32_t step) {
  const HostBatch batch = engine.host_batch();
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    batch.tokens[i] =
        static_cast<int32_t>(ops::philox({static_cast<uint32_t>(i), step, 0, 0}, 1, 2).x % 61);
    batch.labels[i] = (batch.tokens[i] * 7 + 3) % 61;
    batch.positions[i] = static_cast<int32_t>(i % size_t(kS * kB) / size_t(kB));
    batch.loss_mask[i] = 1;
  }
}

struct Training {
  std::vector<float> losses, norms, main;
  std::map<std::string, std::vector<float>> first_moments;
  bool operator==(const Training&) const = default;
};
Training train(const std::string& family, const EngineOptions& options, int steps,
               int evaluate_at = -1) {
  ops::cpu::CpuOps ops(2);
  Engine engine(small(family), options, ops);
  engine.initialise();
  Training run;
  if (evaluate_at == 0) {
    fill(engine, 1000);
    EXPECT_NEAR(engine.evaluate(kM), std::log(61.0f), 0.3f);
  }
  for (int step = 1; step <= steps; ++step) {
    fill(engine, static_cast<uint32_t>(step));
    engine.step(step, kM, 3e-3f, 0.1f);
    const ops::StepState state = engine.result();
    EXPECT_EQ(state.skip, 0) << step;
    run.losses.push_back(state.loss);
    run.norms.push_back(state.grad_norm);
    if (step == evaluate_at) {
      fill(engine, 1000);
      EXPECT_LT(std::abs(engine.evaluate(kM) - state.loss), 1.5f);
    }
  }
  for (const ParamView& view : engine.parameters())
    run.main.insert(run.main.end(), view.main.as<float>(),
                    view.main.as<float>() + view.main.elements());
  for (const ParamView& view : engine.parameters())
    for (const StateView& state : view.states)
      if (std::string_view(state.name) == "exp_avg") {
        const float* m = state.tensor.as<float>();
        run.first_moments[view.param->spec.name] = {m, m + state.tensor.elements()};
      }
  return run;
}

/// Every parameter's gradient of a first step is near the one wanted.
void expect_near_gradients(const Training& run, const Training& wanted, const std::string& at) {
  EXPECT_FALSE(wanted.first_moments.empty());
  for (const auto& [name, w] : wanted.first_moments) {
    const std::vector<float>& m = run.first_moments.at(name);
    double square = 0, error = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      square += double{w[i]} * double{w[i]};
      error += (double{m[i]} - double{w[i]}) * (double{m[i]} - double{w[i]});
    }
    // A missing part is all of a bias; roundings to 2 bits are some hundredths.
    EXPECT_LE(error, 0.08 * square) << at << " " << name;
  }
}

TEST(Fp8Model, StaysNearFp32AndLearns) {
  for (const char* family : {"gpt2", "gpt_neox", "llama", "opt"}) {
    const Training plain = train(family, options_for({}), 40);
    for (const Recipe recipe : kRecipes) {
      for (const Format format : {Format::e4m3, Format::hybrid}) {
        const Training run = train(family, options_for(fp8(format, recipe)), 40);
        const std::string at = std::string(family) + " " + std::to_string(int(recipe)) + " " +
                               std::to_string(int(format));
        // The first loss sees the forward's rounding alone, of 2^-4 an operand at most.
        EXPECT_NEAR(run.losses[0], plain.losses[0], 3e-3) << at;
        EXPECT_NE(run.losses[0], plain.losses[0]) << at;
        EXPECT_NEAR(run.norms[0], plain.norms[0], 0.03 * plain.norms[0]) << at;
        EXPECT_NEAR(run.losses.back(), plain.losses.back(), 0.05) << at;
        EXPECT_LT(run.losses.back(), run.losses[0] - 0.5f) << at;
      }
    }
  }
}

TEST(Fp8Model, EveryRecomputationGivesTheSameBits) {
  using G = Recompute::Granularity;
  using M = Recompute::Method;
  for (const char* family : {"gpt2", "gpt_neox", "llama"}) {
    for (const Recipe recipe : kRecipes) {
      EngineOptions options = options_for(fp8(Format::hybrid, recipe));
      const Training wanted = train(family, options, 3);
      for (const Recompute recompute :
           {Recompute{G::selective, M::uniform, 1}, Recompute{G::full, M::uniform, 1},
            Recompute{G::full, M::uniform, 2}, Recompute{G::full, M::block, 1}}) {
        options.recompute = recompute;
        EXPECT_EQ(train(family, options, 3), wanted)
            << family << " " << int(recipe) << " " << int(recompute.granularity);
      }
    }
  }
}

// A norm that a linear applies while it rounds has the bits of a norm that is written before.
TEST(Fp8Model, NormsInTheRoundingPassChangeNoBit) {
  using G = Recompute::Granularity;
  using M = Recompute::Method;
  for (const char* family : {"gpt2", "gpt_neox", "llama", "opt"})
    for (const Recipe recipe : kRecipes)
      for (const Recompute recompute :
           {Recompute{}, Recompute{G::selective, M::uniform, 1}, Recompute{G::full, M::uniform, 2},
            Recompute{G::full, M::block, 1}}) {
        EngineOptions options = options_for(fp8(Format::hybrid, recipe));
        options.recompute = recompute;
        options.fp8.fuse_norms = false;
        const Training written = train(family, options, 3, 2);
        options.fp8.fuse_norms = true;
        EXPECT_EQ(train(family, options, 3, 2), written)
            << family << " " << int(recipe) << " " << int(recompute.granularity);
      }
}

/// What the norms and quantizing passes of a planned step with one micro-batch and an evaluation
/// are.
struct NormCalls {
  int written = 0, statistics = 0, quantized = 0;  ///< ... norms, and passes that apply one.
  bool operator==(const NormCalls&) const = default;
};
NormCalls norm_calls(const ModelSpec& spec, EngineOptions options, ops::Ops* target,
                     const Topology& topology = {}) {
  options.max_microbatches = 1;
  std::vector<ops::AnyArgs> calls;
  plan_engine({spec, options, topology}, target, &calls);
  NormCalls out;
  for (const ops::AnyArgs& call : calls) {
    if (const auto* norm = std::get_if<ops::ResidualNormForward>(&call)) {
      out.written += bool(norm->y);
      out.statistics += !norm->y && norm->rstd;
    }
    if (const auto* pass = std::get_if<ops::Quantize>(&call)) out.quantized += bool(pass->norm);
    if (const auto* pass = std::get_if<ops::QuantizeInBlocks>(&call))
      out.quantized += bool(pass->norm);
  }
  return out;
}

// A norm's output is written only where something reads it: a layer in the model dtype, the head,
// and what the comments below name. Counts are of a step and an evaluation.
TEST(Fp8Model, NormOutputsAreWrittenOnlyWhereTheyAreRead) {
  ops::cpu::CpuOps cpu(1);
  for (const char* family : {"gpt2", "gpt_neox", "llama"}) {
    ModelSpec spec = small(family);
    spec.ffn_hidden_size = 64;  // for two tensor-parallel ranks
    for (const Recipe recipe : kRecipes) {
      EngineOptions options = options_for(fp8(Format::hybrid, recipe));
      // tensorwise looks for each tensor's largest value first, delayed only where it knows none.
      const bool again = recipe == Recipe::tensorwise || recipe == Recipe::delayed;
      const int step = 2 * kLayers * (again ? 2 : 1);
      const int evaluation = 2 * kLayers * (recipe == Recipe::tensorwise ? 2 : 1);
      const NormCalls fused{2, 4 * kLayers, step + evaluation};
      const NormCalls plain{4 * kLayers + 2, 0, 0};
      EXPECT_EQ(norm_calls(spec, options, &cpu), fused) << family << " " << int(recipe);
      EXPECT_EQ(norm_calls(spec, options, nullptr), ops::kGpusQuantizeNorms ? fused : plain)
          << "the device decides, without one as a GPU";
      options.fp8.fuse_norms = false;
      EXPECT_EQ(norm_calls(spec, options, &cpu), plain) << family << " " << int(recipe);
      options.fp8.fuse_norms = true;
      EXPECT_EQ(norm_calls(spec, options, nullptr), fused) << family << " " << int(recipe);
      // A layer that is not in FP8.
      options.fp8.plain_layers_at_start = 1;
      EXPECT_EQ(norm_calls(spec, options, nullptr).written, 4 + 2);
      options.fp8.plain_layers_at_start = 0;
      // Tensor-parallel ranks each have all rows, unless the stream is divided: then the others
      // read this rank's.
      const Topology two = make_topology(0, 2, 2, 1);
      EXPECT_EQ(norm_calls(spec, options, nullptr, two), fused) << family << " " << int(recipe);
      options.sequence_parallel = true;
      EXPECT_EQ(norm_calls(spec, options, nullptr, two), plain) << family << " " << int(recipe);
      options.sequence_parallel = false;
      // Gradients of weights in the model dtype.
      options.fp8.weight_gradients = false;
      EXPECT_EQ(norm_calls(spec, options, nullptr), plain) << family << " " << int(recipe);
    }
  }
  // The stream itself.
  ModelSpec post = small("opt");
  post.post_norm = true;
  complete(post);
  EngineOptions options = options_for(fp8(Format::hybrid, Recipe::delayed));
  options.fp8.fuse_norms = true;
  EXPECT_EQ(norm_calls(post, options, nullptr).quantized, 0);
  EXPECT_EQ(norm_calls(post, options, nullptr).statistics, 0);
  // What selective recompute drops is made again from the statistics, not by a norm.
  options.recompute.granularity = Recompute::Granularity::selective;
  const NormCalls dropped = norm_calls(small("gpt2"), options, nullptr);
  EXPECT_EQ(dropped.written, 2);
  EXPECT_EQ(dropped.statistics, 4 * kLayers);
  EXPECT_EQ(dropped.quantized, 2 * kLayers * (2 + 1 + 1));
}

// Selective recompute makes all norms' outputs of a layer again, where they are written.
TEST(Fp8Model, NormOutputsThatAreNotWrittenTakeNoMemory) {
  ModelSpec spec = small("gpt2");
  spec.hidden_size = 1024;
  spec.ffn_hidden_size = 4096;
  spec.kv_channels = 0;
  complete(spec);
  EngineOptions options = options_for(fp8(Format::hybrid, Recipe::delayed));
  options.recompute.granularity = Recompute::Granularity::selective;
  int64_t bytes[2] = {};
  for (const bool fuse : {false, true}) {
    options.fp8.fuse_norms = fuse;
    bytes[fuse] = plan_engine({spec, options}, nullptr).total_bytes;
  }
  EXPECT_LT(bytes[1], bytes[0]);
}

TEST(Fp8Model, EvaluationChangesNoTrainingBit) {
  for (const Recipe recipe : kRecipes) {
    const EngineOptions options = options_for(fp8(Format::hybrid, recipe));
    EXPECT_EQ(train("gpt2", options, 4, 2), train("gpt2", options, 4));
    EXPECT_EQ(train("gpt2", options, 4, 0), train("gpt2", options, 4)) << "before the first step";
  }
}

TEST(Fp8Model, LayersLeftOutComputeAsBefore) {
  Fp8Options options = fp8(Format::hybrid, Recipe::tensorwise);
  options.plain_layers_at_start = 1;
  options.plain_layers_at_end = 2;
  EXPECT_EQ(train("gpt2", options_for(options), 3), train("gpt2", options_for({}), 3));
  options.plain_layers_at_end = 1;
  EXPECT_NE(train("gpt2", options_for(options), 3), train("gpt2", options_for({}), 3));
}

TEST(Fp8Model, FormatsDifferInGradientsAlone) {
  const Training e4m3 = train("gpt2", options_for(fp8(Format::e4m3, Recipe::delayed)), 1);
  const Training hybrid = train("gpt2", options_for(fp8(Format::hybrid, Recipe::delayed)), 1);
  EXPECT_EQ(e4m3.losses, hybrid.losses);
  EXPECT_NE(e4m3.norms, hybrid.norms);
}

// A margin of 8 leaves e4m3 the numbers of 1.75 and less, and more of the small ones vanish.
TEST(Fp8Model, MarginCountsInTheFirstStepToo) {
  Fp8Options options = fp8(Format::e4m3, Recipe::delayed);
  const Training without = train("gpt2", options_for(options), 1);
  options.margin = 8;
  EXPECT_NE(train("gpt2", options_for(options), 1).losses, without.losses);
}

TEST(Fp8Model, WeightGradientsInTheModelDtype) {
  for (const char* family : {"gpt2", "llama"}) {
    Fp8Options options = fp8(Format::hybrid, Recipe::delayed);
    const Training with = train(family, options_for(options), 1);
    options.weight_gradients = false;
    const Training without = train(family, options_for(options), 1),
                   plain = train(family, options_for({}), 1);
    EXPECT_EQ(without.losses, with.losses) << "the forward pass is the same";
    EXPECT_NEAR(without.norms[0], plain.norms[0], 0.03 * plain.norms[0]);
    EXPECT_NE(without.norms, with.norms);
    expect_near_gradients(without, plain, std::string(family) + " without");
    expect_near_gradients(with, plain, std::string(family) + " with");
  }
}

// Weights that only one path reads must be quantized for it: gradients of a first step against
// fp32's, parameter by parameter.
TEST(Fp8Model, EveryGradientIsNearFp32) {
  for (const char* family : {"gpt2", "gpt_neox", "llama", "opt"}) {
    const Training plain = train(family, options_for({}), 1);
    for (const Recipe recipe : kRecipes)
      for (const bool power_of_two : {true, false}) {
        Fp8Options options = fp8(Format::hybrid, recipe);
        options.power_of_two = power_of_two;
        expect_near_gradients(train(family, options_for(options), 1), plain,
                              std::string(family) + " " + std::to_string(int(recipe)));
      }
  }
}

// With powers of two and rows of less than 128 values, rowwise and blockwise round nearly all
// values alike, so only exact scales are compared between these two.
TEST(Fp8Model, RecipesAndTheirOptionsDiffer) {
  std::vector<Training> exact = {
      train("gpt2", options_for(fp8(Format::hybrid, Recipe::tensorwise)), 1)};
  for (const Recipe recipe : {Recipe::rowwise, Recipe::blockwise}) {
    Fp8Options options = fp8(Format::hybrid, recipe);
    const auto losses = [&] { return train("gpt2", options_for(options), 1).losses; };
    const std::vector<float> powers = losses();
    options.margin = 8;
    EXPECT_NE(losses(), powers);
    options.margin = 0;
    options.power_of_two = false;
    exact.push_back(train("gpt2", options_for(options), 1));
    EXPECT_NE(exact.back().losses, powers);
    options.weight_gradients = false;
    EXPECT_EQ(losses(), exact.back().losses);
    EXPECT_NE(train("gpt2", options_for(options), 1).norms, exact.back().norms);
  }
  for (size_t i = 0; i < exact.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(exact[i].losses, exact[j].losses) << i << " " << j;
}

// The scale of every operand of every linear of every layer follows its own largest value.
TEST(Fp8Model, EveryScaleFollowsItsOwnTensor) {
  ops::cpu::CpuOps ops(1);
  Fp8Options options = fp8(Format::hybrid, Recipe::delayed);
  options.history_length = 2;
  Fp8 scales(options, small("gpt2"));
  const int64_t n = scales.tensors();
  ASSERT_EQ(n, 3 * 4 * kLayers);
  const auto rows = static_cast<size_t>(n);
  std::vector<float> scale(4 * rows), amax(rows), history(2 * rows);
  for (size_t i = 0; i < rows; ++i) amax[i] = std::ldexp(1.0f, static_cast<int>(i % 12) - 6);
  const std::vector<float> seen = amax;
  const auto tensor = [](std::vector<float>& values, int64_t count, int64_t columns) {
    return ops::Tensor(values.data(), ops::DType::f32, ops::Device::cpu, {count, columns});
  };
  scales.place(tensor(scale, n, 4), tensor(amax, n, 1).flat(), tensor(history, n, 2));
  scales.update(ops, *solo_groups().world);
  for (size_t i = 0; i < rows; ++i) {
    const bool gradient = i >= rows / 3 * 2;
    EXPECT_EQ(history[2 * i], seen[i]) << i;
    EXPECT_EQ(scale[4 * i + ops::kScaleFactor], (gradient ? 57344.0f : 448.0f) / seen[i]) << i;
    EXPECT_EQ(amax[i], 0) << i;
  }
}

TEST(Fp8Model, MemoryPlanIsExact) {
  for (const char* family : {"llama", "gpt2"}) {
    ModelSpec spec = small(family);
    // Then branches are added by the norms, whose outputs would take the branches' place.
    if (!spec.gated()) spec.hidden_dropout = 0.1f;
    for (const Recipe recipe : kRecipes) {
      int64_t bytes[2] = {};  // with norms that are written, and applied by the linears
      for (const bool fuse : {false, true}) {
        ops::cpu::CpuOps ops(2);
        EngineOptions options = options_for(fp8(Format::hybrid, recipe));
        options.fp8.fuse_norms = fuse;
        Engine engine(spec, options, ops);
        engine.initialise();
        fill(engine, 1);
        engine.step(1, kM, 3e-3f, 0.1f);
        EXPECT_EQ(engine.result().skip, 0);
        EXPECT_EQ(engine.peak_bytes(), engine.memory_plan().total_bytes)
            << family << " " << int(recipe);
        bytes[fuse] = engine.peak_bytes();
      }
      EXPECT_LE(bytes[1], bytes[0]) << family << " " << int(recipe);
    }
  }
}

// A weight that is infinite makes gradients that are not finite; the step is skipped and they are
// named.
TEST(Fp8Model, NotFiniteIsSkippedAndNamed) {
  for (const Recipe recipe : kRecipes) {
    ops::cpu::CpuOps ops(2);
    Engine engine(small("gpt2"), options_for(fp8(Format::hybrid, recipe)), ops);
    engine.initialise();
    for (const ParamView& view : engine.parameters())
      if (view.param->spec.name.find("layers.1.mlp.linear_fc1.weight") != std::string::npos)
        view.main.as<float>()[5] = std::numeric_limits<float>::infinity();
    engine.refresh_model_parameters();
    fill(engine, 1);
    engine.step(1, kM, 3e-3f, 0.1f);
    EXPECT_EQ(engine.result().skip, 1) << int(recipe);
    EXPECT_FALSE(engine.nonfinite_gradients().empty()) << int(recipe);
  }
}

TEST(Fp8Model, RefusesSizesThatTheHardwareCannotMultiply) {
  EngineOptions options = options_for(fp8(Format::hybrid, Recipe::delayed));
  ModelSpec spec = small("gpt2");
  options.seq_length = 12;
  options.micro_batch_size = 1;
  EXPECT_EQ(layout_refusal(spec, options, {}),
            "--micro-batch-size 1 times --seq-length 12: --fp8-format needs a multiple of 16");
  spec.ffn_hidden_size = 72;
  options.seq_length = 16;
  EXPECT_EQ(layout_refusal(spec, options, {}),
            "--ffn-hidden-size 72: --fp8-format needs a multiple of 16");
  spec.ffn_hidden_size = 144;
  EXPECT_EQ(layout_refusal(spec, options, make_topology(0, 2, 2, 1)),
            "--ffn-hidden-size 144 is 72 on each of 2 tensor-parallel ranks: --fp8-format needs a "
            "multiple of 16");
  spec = small("llama");
  spec.num_attention_heads = 2;
  spec.num_query_groups = 1;
  spec.kv_channels = 4;
  EXPECT_EQ(
      layout_refusal(spec, options, {}),
      "--num-attention-heads 2 times --kv-channels 4 is 8: --fp8-format needs a multiple of 16");
  spec.kv_channels = 6;
  EXPECT_EQ(layout_refusal(spec, options, {}),
            "--num-attention-heads 2 and twice --num-query-groups 1 times --kv-channels 6 is 24: "
            "--fp8-format needs a multiple of 16");
  spec.hidden_size = 40;
  EXPECT_EQ(layout_refusal(spec, options, {}),
            "--hidden-size 40: --fp8-format needs a multiple of 16");
}

}  // namespace
