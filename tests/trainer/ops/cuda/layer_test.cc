// Every CUDA operation inside a layer, forward and backward, against the CPU's; attention is in
// attention_test.cc. Sizes are chosen to reach every variant of a launcher: packs of a warp, of a
// block, odd sizes, one row, many rows.
// SPDX-License-Identifier: MIT
#include <utility>

#include "tests/own.h"
#include "tests/trainer/ops/cuda/pair.h"
#include "trainer/ops/cuda/launch.h"

namespace {

using namespace pair;

class CudaLayer : public PairTest {
 protected:
  Dropout drop(const Twin& state, int side, float p) {
    return {.p = p,
            .seed = 5,
            .site = dropout_site(3, DropoutKind::mlp_output),
            .first_position = 7,
            .first_sample = 11,
            .state = state[side]};
  }
  void check_residual_norm(const std::vector<int64_t>& widths);
};
ALL_DTYPES(CudaLayer);

void CudaLayer::check_residual_norm(const std::vector<int64_t>& widths) {
  const Twin s = state({.iteration = 42});
  for (const int64_t h : widths) {
    for (Norm norm : {Norm::layernorm, Norm::rmsnorm}) {
      for (float p : {0.0f, 0.25f}) {
        const int64_t rows = h < 1000 ? 37 : 5, b = 3;
        const Twin residual = random(model(), {rows, b, h}, 1, 0.3),
                   branch = random(model(), {rows, b, h});
        const Twin extra = random(model(), {h}), weight = random(model(), {h}, 0.3, 1),
                   bias = random(model(), {h});
        const Twin sum = empty(model(), {rows, b, h}), y = empty(model(), {rows, b, h});
        const Twin mean = empty(DType::f32, {rows, b}), rstd = empty(DType::f32, {rows, b});
        both([&](int i) {
          return ResidualNormForward{.norm = norm,
                                     .y = y[i],
                                     .residual_out = sum[i],
                                     .mean = norm == Norm::layernorm ? mean[i] : Tensor(),
                                     .rstd = rstd[i],
                                     .residual = residual[i],
                                     .branch = branch[i],
                                     .branch_bias = extra[i],
                                     .weight = weight[i],
                                     .bias = norm == Norm::layernorm ? bias[i] : Tensor(),
                                     .dropout = drop(s, i, p)};
        });
        const std::string at = " H " + std::to_string(h) + " p " + std::to_string(p);
        // The sum is rounded once. y sees that rounding divided by the row's deviation, about u,
        // and its own.
        expect_close("sum" + at, sum, 1.01, 0.01, 2);
        expect_close("y" + at, y, 1.01, 1.5, static_cast<double>(h));
        expect_close("rstd" + at, rstd, 0, 1, static_cast<double>(h));
        // Without y, the same bits of the rest.
        const Twin alone = empty(model(), {rows, b, h}), mean_alone = empty(DType::f32, {rows, b}),
                   rstd_alone = empty(DType::f32, {rows, b});
        both([&](int i) {
          return ResidualNormForward{.norm = norm,
                                     .residual_out = alone[i],
                                     .mean = norm == Norm::layernorm ? mean_alone[i] : Tensor(),
                                     .rstd = rstd_alone[i],
                                     .residual = residual[i],
                                     .branch = branch[i],
                                     .branch_bias = extra[i],
                                     .dropout = drop(s, i, p)};
        });
        EXPECT_TRUE(bytes(alone[1]) == bytes(sum[1])) << at;
        EXPECT_TRUE(bytes(rstd_alone[1]) == bytes(rstd[1])) << at;
        if (norm == Norm::layernorm) {
          EXPECT_TRUE(bytes(mean_alone[1]) == bytes(mean[1])) << at;
        }

        const Twin dy = random(model(), {rows, b, h}), arriving = random(model(), {rows, b, h});
        const Twin dresidual = empty(model(), {rows, b, h}), dbranch = empty(model(), {rows, b, h});
        const Twin dweight = random(DType::f32, {h}), dbias = random(DType::f32, {h});
        // Both sides start from the same sum: the GPU's, which is the rounded one.
        sides[1]->download(sum[0].data, [&] {
          const Twin wide = empty(DType::f32, {rows, b, h});
          sides[1]->run(ops::Copy{.dst = wide[1], .src = sum[1]});
          return wide[1];
        }());
        sides[1]->synchronize();
        both([&](int i) {
          return ResidualNormForward{.norm = norm,
                                     .y = y[i],
                                     .mean = norm == Norm::layernorm ? mean[i] : Tensor(),
                                     .rstd = rstd[i],
                                     .residual = sum[i],
                                     .weight = weight[i],
                                     .bias = norm == Norm::layernorm ? bias[i] : Tensor()};
        });
        both([&](int i) {
          ResidualNormBackward a{.norm = norm,
                                 .dresidual = dresidual[i],
                                 .dweight = dweight[i],
                                 .dy = dy[i],
                                 .dresidual_out = arriving[i],
                                 .x = sum[i],
                                 .rstd = rstd[i],
                                 .weight = weight[i],
                                 .accumulate = true,
                                 .dropout = drop(s, i, p)};
          if (norm == Norm::layernorm) {
            a.mean = mean[i];
            a.dbias = dbias[i];
          }
          if (p > 0) a.dbranch = dbranch[i];
          return a;
        });
        expect_close("dresidual" + at, dresidual, 1.01, 0.01, static_cast<double>(h));
        if (p > 0) expect_close("dbranch" + at, dbranch, 2.01, 0.02, static_cast<double>(h));
        expect_close("dweight" + at, dweight, 0, 0, static_cast<double>(rows * b));
        if (norm == Norm::layernorm)
          expect_close("dbias" + at, dbias, 0, 0, static_cast<double>(rows * b));
      }
    }
  }
}

TEST_P(CudaLayer, ResidualNorm) {
  check_residual_norm({8, 100, 257, 768, 1280, 1600, 2048, 4096, 5120, 8192, 9000});
}

TEST_P(CudaLayer, HeadNorm) {
  constexpr int64_t kS = 37, kB = 3;
  for (const int64_t d : {6, 64, 80, 128, 256}) {
    for (Norm norm : {Norm::layernorm, Norm::rmsnorm}) {
      for (const int64_t groups : {2, 6}) {
        const bool layer = norm == Norm::layernorm;
        const int64_t heads = 6, row = (heads + 2 * groups) * d, normed = heads + groups;
        const Twin x = random(model(), {kS, kB, row}, 1, 0.3), y = empty(model(), {kS, kB, row});
        const Twin mean = empty(DType::f32, {kS, kB, normed}),
                   rstd = empty(DType::f32, {kS, kB, normed});
        const Twin q = random(model(), {d}, 0.3, 1), k = random(model(), {d}, 0.3, 1),
                   q_bias = random(model(), {d}), k_bias = random(model(), {d});
        const auto of = [&](int i) {
          return ops::HeadNorm{.norm = norm,
                               .num_attention_heads = heads,
                               .num_query_groups = groups,
                               .x = x[i],
                               .mean = layer ? mean[i] : Tensor(),
                               .rstd = rstd[i],
                               .q_weight = q[i],
                               .k_weight = k[i]};
        };
        both([&](int i) {
          return HeadNormForward{.heads = of(i),
                                 .y = y[i],
                                 .q_bias = layer ? q_bias[i] : Tensor(),
                                 .k_bias = layer ? k_bias[i] : Tensor()};
        });
        const std::string at = " D " + std::to_string(d) + " G " + std::to_string(groups);
        expect_close("y" + at, y, 1.01, 0.01, static_cast<double>(d));
        expect_close("rstd" + at, rstd, 0, 0, static_cast<double>(d));
        if (layer) expect_close("mean" + at, mean, 0, 0, static_cast<double>(d));
        // In place, as the model does, over gradients that are added to.
        const Twin dy = random(model(), {kS, kB, row});
        const Twin dq = random(DType::f32, {d}), dk = random(DType::f32, {d}),
                   dqb = random(DType::f32, {d}), dkb = random(model(), {d});
        both([&](int i) {
          return HeadNormBackward{.heads = of(i),
                                  .dx = dy[i],
                                  .dy = dy[i],
                                  .dq_weight = dq[i],
                                  .dk_weight = dk[i],
                                  .dq_bias = layer ? dqb[i] : Tensor(),
                                  .dk_bias = layer ? dkb[i] : Tensor()};
        });
        const double terms = static_cast<double>(kS * kB * heads);
        expect_close("dx" + at, dy, 1.01, 0.01, static_cast<double>(d));
        expect_close("dq_weight" + at, dq, 0, 0, terms);
        expect_close("dk_weight" + at, dk, 0, 0, terms);
        if (layer) expect_close("dq_bias" + at, dqb, 0, 0, terms);
        if (layer) expect_close("dk_bias" + at, dkb, 1.01, 1.01, terms);
      }
    }
  }
}

// What a card with less shared memory, and without Hopper's products, does instead.
TEST_P(CudaLayer, OnASmallerCard) {
  const std::unique_ptr<Ops> small = cuda::make_cuda_ops({.tune = false, .as = {8, 6}});
  Ops* own = std::exchange(sides[1], small.get());
  check_residual_norm({1280, 4096, 8192});
  const Twin dy = random(model(), {1024, 768}), w = random(model(), {768, 512}, 0.1);
  const Twin before = random(model(), {1024, 512}), dx = empty(model(), {1024, 512});
  const Twin dbias = empty(DType::f32, {512});
  both([&](int i) {
    return LinearBackwardInput{.dx = dx[i],
                               .dy = dy[i],
                               .weight = w[i],
                               .pre_activation = before[i],
                               .activation = Activation::gelu_tanh,
                               .dbias = dbias[i],
                               .accumulate_bias = false};
  });
  expect_close("dx", dx, 2.2, 0.05, 768);
  expect_close("dbias", dbias, 0, 2.2, 1024 + 768);
  sides[1] = own;
}

// The list of GPU code that the build was given is what the driver finds.
TEST(CudaCode, IsWhatTheBuildSays) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  const std::vector<GpuCode> code = cuda::own_gpu_code();
  ASSERT_FALSE(code.empty());
  cudaDeviceProp device{};
  ASSERT_EQ(cudaGetDeviceProperties(&device, 0), cudaSuccess);
  const GpuCode* taken = code_for(code, {device.major, device.minor});
  ASSERT_NE(taken, nullptr);
  const cuda::KernelCode found = cuda::code_of_kernels();
  ASSERT_EQ(found.status, cudaSuccess) << cudaGetErrorString(found.status);
  const int number = taken->capability.major * 10 + taken->capability.minor;
  EXPECT_EQ(found.ptx, number);
  EXPECT_EQ(found.binary, taken->real ? number : device.major * 10 + device.minor);
  const std::string said = cuda::make_cuda_ops({.tune = false})->describe();
  EXPECT_EQ(said.find("compiled by the driver from PTX") != std::string::npos, !taken->real)
      << said;
}

TEST_P(CudaLayer, BranchBiasGradientIsTheColumnSumOfTheBranchGradient) {
  const Twin s = state({.iteration = 2});
  for (int64_t h : {96, 257, 768, 2048, 4096}) {
    for (float p : {0.0f, 0.1f}) {
      const int64_t rows = 200, b = 2;
      const Twin x = random(model(), {rows, b, h}), dy = random(model(), {rows, b, h}),
                 weight = random(model(), {h});
      const Twin mean = empty(DType::f32, {rows, b}), rstd = empty(DType::f32, {rows, b});
      const Twin y = empty(model(), {rows, b, h}), dresidual = empty(model(), {rows, b, h});
      const Twin dbranch = empty(model(), {rows, b, h}), dweight = empty(DType::f32, {h});
      const Twin whole = random(DType::f32, {h}), apart = copy_of(whole);
      both([&](int i) {
        return ResidualNormForward{
            .y = y[i], .mean = mean[i], .rstd = rstd[i], .residual = x[i], .weight = weight[i]};
      });
      both([&](int i) {
        return ResidualNormBackward{.dresidual = dresidual[i],
                                    .dbranch = p > 0 ? dbranch[i] : Tensor(),
                                    .dweight = dweight[i],
                                    .dbranch_bias = i == 1 ? whole[i] : Tensor(),
                                    .dy = dy[i],
                                    .x = x[i],
                                    .mean = mean[i],
                                    .rstd = rstd[i],
                                    .weight = weight[i],
                                    .accumulate = true,
                                    .dropout = drop(s, i, p)};
      });
      // The same numbers, once inside the norm's pass and once as a pass of their own on the GPU's
      // own output.
      sides[1]->run(ops::LinearBackwardWeight{
          .dbias = apart[1], .dy = p > 0 ? dbranch[1] : dresidual[1], .accumulate = true});
      sides[1]->download(whole[0].data, apart[1]);
      sides[1]->synchronize();
      expect_close("dbranch_bias H " + std::to_string(h), whole, 0, 0,
                   static_cast<double>(rows * b));
    }
  }
}

TEST_P(CudaLayer, NormSumAloneAndDropoutAlone) {
  const Twin s = state({.iteration = 1});
  const Twin residual = random(model(), {9, 2, 333}), branch = random(model(), {9, 2, 333});
  const Twin sum = empty(model(), {9, 2, 333}), dresidual = empty(model(), {9, 2, 333});
  const Twin dbranch = empty(model(), {9, 2, 333});
  both([&](int i) {
    return ResidualNormForward{.residual_out = sum[i],
                               .residual = residual[i],
                               .branch = branch[i],
                               .dropout = drop(s, i, 0.5f)};
  });
  expect_close("sum", sum, 1.01, 0, 2);
  both([&](int i) {
    return ResidualNormBackward{.dresidual = dresidual[i],
                                .dbranch = dbranch[i],
                                .dresidual_out = residual[i],
                                .dropout = drop(s, i, 0.5f)};
  });
  expect_close("dresidual", dresidual, 0, 0, 0);
  expect_close("dbranch", dbranch, 1.01, 0, 1);
}

TEST_P(CudaLayer, Embedding) {
  const Twin s = state({.iteration = 3});
  for (int64_t h : {24, 33, 768}) {
    for (float p : {0.0f, 0.1f}) {
      const int64_t length = 70, b = 5, v = 90;
      std::vector<int32_t> tokens, positions;
      for (int64_t i = 0; i < length * b; ++i) {
        // Half of the rows hold one token, so that its run crosses many windows; some belong to
        // another rank.
        tokens.push_back(i % 2 == 0 ? 17 : static_cast<int32_t>(i * 31 % 103));
        positions.push_back(static_cast<int32_t>(i / b));
      }
      const Twin t = integers({length, b}, tokens), q = integers({length, b}, positions);
      const Twin table = random(model(), {v, h}), places = random(model(), {length, h});
      const Twin x = empty(model(), {length, b, h}), dx = random(model(), {length, b, h});
      both([&](int i) {
        return EmbeddingForward{.x = x[i],
                                .tokens = t[i],
                                .token_table = table[i],
                                .positions = q[i],
                                .position_table = places[i],
                                .first_token = 4,
                                .dropout = drop(s, i, p)};
      });
      expect_close("x", x, 1.01, 0, 2);
      const Twin dtable = random(DType::f32, {v, h}), dplaces = empty(DType::f32, {length, h});
      both([&](int i) {
        return EmbeddingBackward{.dx = dx[i],
                                 .tokens = t[i],
                                 .dtoken_table = dtable[i],
                                 .positions = q[i],
                                 .dposition_table = dplaces[i],
                                 .first_token = 4,
                                 .accumulate_tokens = true,
                                 .accumulate_positions = false,
                                 .dropout = drop(s, i, p)};
      });
      expect_close("dtoken_table", dtable, 0, 0, static_cast<double>(length * b));
      expect_close("dposition_table", dplaces, 0, 0, static_cast<double>(b));
    }
  }
}

TEST_P(CudaLayer, Linear) {
  struct Size {
    int64_t rows, in, out;
  };
  for (const Size z : {Size{64, 64, 64}, Size{200, 96, 160}, Size{33, 17, 29}, Size{512, 768, 256},
                       Size{1, 64, 128}}) {
    for (Activation act :
         {Activation::none, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
      const Twin x = random(model(), {z.rows, z.in}), w = random(model(), {z.out, z.in}, 0.1);
      const Twin bias = random(model(), {z.out}), addend = random(model(), {z.rows, z.out});
      const Twin y = empty(model(), {z.rows, z.out}), pre = empty(model(), {z.rows, z.out});
      const bool plain = act == Activation::none;
      both([&](int i) {
        return LinearForward{.y = y[i],
                             .pre_activation = pre[i],
                             .x = x[i],
                             .weight = w[i],
                             .bias = bias[i],
                             .addend = plain ? addend[i] : Tensor(),
                             .activation = act};
      });
      const std::string at = " " + std::to_string(z.rows) + "x" + std::to_string(z.in) + "x" +
                             std::to_string(z.out) + " activation " +
                             std::to_string(static_cast<int>(act));
      const auto terms = static_cast<double>(z.in);
      // The activation reads the rounded sum or the sum itself: one rounding more, at most 1.13
      // steep. For rows that are not a multiple of 16 bytes, cuBLASLt uses an algorithm that rounds
      // the product before the bias is added: half a unit of a product of the largest size.
      const double odd = z.in % 8 != 0 ? 0.5 : 0;
      expect_close("pre" + at, pre, 1.01, odd, terms);
      expect_close("y" + at, y, 2.2, 0.05 + odd, terms);

      const Twin dy = random(model(), {z.rows, z.out}), before = random(model(), {z.rows, z.in});
      const Twin dx = empty(model(), {z.rows, z.in}), dbias = random(DType::f32, {z.in});
      const Twin more = random(model(), {z.rows, z.in});
      both([&](int i) {
        LinearBackwardInput a{.dx = dx[i], .dy = dy[i], .weight = w[i], .accumulate_bias = true};
        if (plain) {
          a.addend = more[i];
        } else {
          a.pre_activation = before[i];
          a.activation = act;
          a.dbias = dbias[i];
        }
        return a;
      });
      // dx may be rounded before the activation's slope (at most 1.13) and after; its sum adds
      // rounded numbers.
      expect_close("dx" + at, dx, 2.2, 0.05, static_cast<double>(z.out));
      if (!plain) expect_close("dbias" + at, dbias, 0, 2.2, static_cast<double>(z.rows + z.out));

      const Twin dweight = random(DType::f32, {z.out, z.in}), sums = random(DType::f32, {z.out});
      for (bool accumulate : {true, false}) {
        both([&](int i) {
          return LinearBackwardWeight{.dweight = dweight[i],
                                      .dbias = sums[i],
                                      .dy = dy[i],
                                      .x = x[i],
                                      .accumulate = accumulate};
        });
        expect_close("dweight" + at, dweight, 0, 0, static_cast<double>(z.rows));
        expect_close("dbias" + at, sums, 0, 0, static_cast<double>(z.rows));
      }
    }
  }
}

TEST_P(CudaLayer, TunedLinearIsTheSameFunction) {
  const tests::OwnFolder folder;
  std::unique_ptr<Ops> tuned = cuda::make_cuda_ops({.gemm_choices_path = folder / "gemm_choices"});
  Ops* untuned = sides[1];
  const Twin x = random(model(), {1024, 512}), w = random(model(), {768, 512}, 0.1),
             bias = random(model(), {768});
  const Twin pre = empty(model(), {1024, 768}), y = empty(model(), {1024, 768});
  const Twin dweight = empty(DType::f32, {768, 512}), dbias = empty(DType::f32, {768});
  const Twin dx = empty(model(), {1024, 512}), dbefore = empty(DType::f32, {512}),
             before = random(model(), {1024, 512});
  const auto forward = [&](int i) {
    return LinearForward{.y = y[i],
                         .pre_activation = pre[i],
                         .x = x[i],
                         .weight = w[i],
                         .bias = bias[i],
                         .activation = Activation::gelu_tanh};
  };
  const auto input = [&](int i) {
    return LinearBackwardInput{.dx = dx[i],
                               .dy = y[i],
                               .weight = w[i],
                               .pre_activation = before[i],
                               .activation = Activation::gelu_tanh,
                               .dbias = dbefore[i],
                               .accumulate_bias = false};
  };
  const auto weight = [&](int i) {
    return LinearBackwardWeight{
        .dweight = dweight[i], .dbias = dbias[i], .dy = y[i], .x = x[i], .accumulate = false};
  };
  const std::vector<AnyArgs> calls = {forward(1), input(1), weight(1)};
  tuned->prepare(calls);
  sides[1] = tuned.get();
  both(forward);
  expect_close("y", y, 2.2, 0.05, 512);
  // From here on both sides read the GPU's y.
  sides[1]->download(y[0].data, [&] {
    const Twin wide = empty(DType::f32, {1024, 768});
    sides[1]->run(ops::Copy{.dst = wide[1], .src = y[1]});
    return wide[1];
  }());
  sides[1]->synchronize();
  both(input);
  both(weight);
  expect_close("dx", dx, 2.2, 0.05, 768);
  expect_close("dbias before", dbefore, 0, 2.2, 1024 + 768);
  expect_close("dweight", dweight, 0, 0, 1024);
  expect_close("dbias", dbias, 0, 0, 1024);
  // A second Ops reads the choices back and computes the same bits.
  const std::vector<uint8_t> first = bytes(dweight[1]);
  sides[1] = untuned;
  tuned = cuda::make_cuda_ops({.gemm_choices_path = folder / "gemm_choices"});
  tuned->prepare(calls);
  tuned->run(weight(1));
  tuned->synchronize();
  EXPECT_EQ(first, bytes(dweight[1]));
}

TEST_P(CudaLayer, Activation) {
  for (Activation act : {Activation::none, Activation::gelu_tanh, Activation::gelu_erf,
                         Activation::relu, Activation::swiglu}) {
    for (int64_t columns : {64, 37}) {
      const int64_t wide = act == Activation::swiglu ? 2 * columns : columns;
      const Twin x = random(model(), {50, wide}, 2), y = empty(model(), {50, columns});
      const Twin dy = random(model(), {50, columns}), dx = empty(model(), {50, wide});
      both([&](int i) { return ActivationForward{y[i], x[i], act}; });
      both([&](int i) { return ActivationBackward{dx[i], dy[i], x[i], act}; });
      expect_close("y " + std::to_string(static_cast<int>(act)), y, 1.01, 0, 8);
      expect_close("dx " + std::to_string(static_cast<int>(act)), dx, 1.01, 0, 8);
    }
  }
}

TEST_P(CudaLayer, TheSameBitsEveryTime) {
  const int64_t length = 512, b = 4, h = 768;
  const Twin x = random(model(), {length, b, h}), dy = random(model(), {length, b, h}),
             w = random(model(), {h});
  const Twin mean = empty(DType::f32, {length, b}), rstd = empty(DType::f32, {length, b});
  const Twin y = empty(model(), {length, b, h}), matrix = random(model(), {4 * h, h}),
             table = empty(DType::f32, {97, h});
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length * b; ++i) tokens.push_back(static_cast<int32_t>(i * i % 97));
  const Twin t = integers({length, b}, tokens);
  std::vector<std::vector<uint8_t>> first;
  for (int time = 0; time < 3; ++time) {
    const Twin dx = empty(model(), {length, b, h}), dw = empty(DType::f32, {h}),
               db = empty(DType::f32, {h});
    const Twin dm = empty(DType::f32, {h, h}), sums = empty(DType::f32, {h}),
               wide = empty(model(), {length, b, 4 * h});
    sides[1]->run(ops::ResidualNormForward{
        .y = y[1], .mean = mean[1], .rstd = rstd[1], .residual = x[1], .weight = w[1]});
    sides[1]->run(ops::ResidualNormBackward{.dresidual = dx[1],
                                            .dweight = dw[1],
                                            .dbias = db[1],
                                            .dy = dy[1],
                                            .x = x[1],
                                            .mean = mean[1],
                                            .rstd = rstd[1],
                                            .weight = w[1],
                                            .accumulate = false});
    sides[1]->run(ops::LinearForward{.y = wide[1], .x = x[1], .weight = matrix[1]});
    sides[1]->run(ops::LinearBackwardWeight{
        .dweight = dm[1], .dbias = sums[1], .dy = dy[1], .x = x[1], .accumulate = false});
    sides[1]->run(ops::EmbeddingBackward{
        .dx = dy[1], .tokens = t[1], .dtoken_table = table[1], .accumulate_tokens = false});
    std::vector<std::vector<uint8_t>> now;
    for (const Twin* out : {&dx, &dw, &db, &dm, &sums, &wide, &table})
      now.push_back(bytes((*out)[1]));
    if (time == 0) first = now;
    EXPECT_EQ(first, now);
  }
}

// 2^31 elements and more: a launcher that counted in 32 bits would write nothing, or the wrong
// rows.
TEST_P(CudaLayer, MoreThanTwoToThe31Elements) {
  if (model() != DType::bf16) GTEST_SKIP() << "one dtype is enough";
  const int64_t h = 4096, length = (int64_t{1} << 31) / h + 8;
  if (sides[1]->free_bytes() < int64_t{20} << 30) GTEST_SKIP() << "not enough memory";
  Tensor x(nullptr, model(), Device::cuda, {length, 1, h}), y = x;
  for (Tensor* t : {&x, &y}) t->data = sides[1]->allocate(t->bytes());
  sides[1]->run(
      ops::NormalFill{.out = x.view({length, h}), .std = 1, .seed = 3, .whole_columns = h});
  const Twin w = random(model(), {h});
  sides[1]->run(ops::ResidualNormForward{.y = y, .residual = x, .weight = w[1]});
  const Twin row = empty(model(), {1, 1, h}), want = empty(model(), {1, 1, h});
  sides[1]->run(ops::Copy{.dst = row[1].view({1, h}), .src = x.slice(length - 1, 1).view({1, h})});
  sides[1]->run(ops::ResidualNormForward{.y = want[1], .residual = row[1], .weight = w[1]});
  EXPECT_EQ(bytes(y.slice(length - 1, 1)), bytes(want[1]));
  sides[1]->run(ops::ActivationForward{.y = y, .x = x, .activation = Activation::relu});
  sides[1]->run(ops::ActivationForward{.y = want[1], .x = row[1], .activation = Activation::relu});
  EXPECT_EQ(bytes(y.slice(length - 1, 1)), bytes(want[1]));
  for (Tensor* t : {&x, &y}) sides[1]->release(t->data);
}

}  // namespace
