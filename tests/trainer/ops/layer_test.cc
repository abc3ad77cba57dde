// Every CPU operation inside a layer, forward against a float64 form written here, backward
// against its central differences.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <numbers>

#include "tests/trainer/ops/numeric.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace {

using namespace ops;
using namespace numeric;

class LayerOps : public testing::Test {
 protected:
  Heap heap;
  cpu::CpuOps ops{2};
};

double activate(Activation a, double x) {
  switch (a) {
    case Activation::gelu_tanh:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::relu:
      return x > 0 ? x : 0;
    default:
      return x;
  }
}

/// y (R, O) = activation(x W^T + b).
Values linear(const std::vector<Values>& in, size_t rows, size_t inner, size_t outer,
              Activation activation) {
  Values y(rows * outer);
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < outer; ++o) {
      double sum = in.size() > 2 ? in[2][o] : 0;
      for (size_t i = 0; i < inner; ++i) sum += in[0][r * inner + i] * in[1][o * inner + i];
      y[r * outer + o] = activate(activation, sum);
    }
  return y;
}

TEST_F(LayerOps, LinearForwardAndBackward) {
  constexpr int64_t kRows = 70, kIn = 9, kOut = 11;
  for (Activation activation :
       {Activation::none, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
    const std::vector<Values> in = {random_values(kRows * kIn, 1),
                                    random_values(kOut * kIn, 2, 0.4), random_values(kOut, 3)};
    const Function f = [&](const std::vector<Values>& v) {
      return linear(v, kRows, kIn, kOut, activation);
    };
    const Tensor x = heap.floats({kRows, kIn}, in[0]), w = heap.floats({kOut, kIn}, in[1]),
                 b = heap.floats({kOut}, in[2]);
    Tensor y = heap.empty({kRows, kOut}), pre = heap.empty({kRows, kOut});
    ops.run(LinearForward{.y = y,
                          .pre_activation = pre,
                          .x = x,
                          .weight = w,
                          .bias = b,
                          .addend = {},
                          .activation = activation});
    expect_close("y", y, f(in), kIn);

    // The activation's derivative belongs to the next linear's input gradient: an identity weight
    // shows it.
    const Values cotangent = random_values(kRows * kOut, 4);
    Values identity(kOut * kOut, 0.0);
    for (size_t i = 0; i < kOut; ++i) identity[i * kOut + i] = 1;
    Tensor dpre = heap.empty({kRows, kOut}), dbias = heap.floats({kOut}, Values(kOut, 2.0));
    ops.run(LinearBackwardInput{.dx = dpre,
                                .dy = heap.floats({kRows, kOut}, cotangent),
                                .weight = heap.floats({kOut, kOut}, identity),
                                .pre_activation = pre,
                                .activation = activation,
                                .dbias = dbias,
                                .accumulate_bias = true,
                                .addend = {}});
    Values wanted = gradient(f, in, 2, cotangent);
    for (double& v : wanted) v += 2;
    expect_close("dbias", dbias, wanted, kRows);
    Tensor dw = heap.empty({kOut, kIn}), dx = heap.empty({kRows, kIn}), dbias2 = heap.empty({kOut});
    ops.run(LinearBackwardWeight{
        .dweight = dw, .dbias = dbias2, .dy = dpre, .x = x, .accumulate = false});
    ops.run(LinearBackwardInput{
        .dx = dx, .dy = dpre, .weight = w, .pre_activation = {}, .dbias = {}, .addend = {}});
    expect_close("dW", dw, gradient(f, in, 1, cotangent), kRows);
    expect_close("db", dbias2, gradient(f, in, 2, cotangent), kRows);
    expect_close("dx", dx, gradient(f, in, 0, cotangent), kOut);
    ops.run(
        LinearBackwardWeight{.dweight = dw, .dbias = {}, .dy = dpre, .x = x, .accumulate = true});
    Values twice = gradient(f, in, 1, cotangent);
    for (double& v : twice) v *= 2;
    expect_close("2 dW", dw, twice, 2 * kRows);
  }
}

TEST_F(LayerOps, LinearAddendInPlaceAndApart) {
  const Values x = random_values(5 * 4, 1), w = random_values(3 * 4, 2), add = random_values(15, 3);
  Values wanted = linear({x, w}, 5, 4, 3, Activation::none);
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += add[i];
  Tensor addend = heap.floats({5, 3}, add), y = heap.empty({5, 3});
  const Tensor tx = heap.floats({5, 4}, x), tw = heap.floats({3, 4}, w);
  ops.run(LinearForward{
      .y = y, .pre_activation = {}, .x = tx, .weight = tw, .bias = {}, .addend = addend});
  expect_close("apart", y, wanted, 4);
  ops.run(LinearForward{
      .y = addend, .pre_activation = {}, .x = tx, .weight = tw, .bias = {}, .addend = addend});
  expect_close("in place", addend, wanted, 4);
}

TEST_F(LayerOps, ActivationForwardAndBackward) {
  for (Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::swiglu}) {
    const bool gated = activation == Activation::swiglu;
    constexpr int64_t kRows = 6, kColumns = 10;
    const int64_t out = gated ? kColumns / 2 : kColumns;
    const Function f = [&](const std::vector<Values>& v) {
      Values y(static_cast<size_t>(kRows * out));
      for (size_t i = 0; i < y.size(); ++i) {
        const size_t r = i / static_cast<size_t>(out), c = i % static_cast<size_t>(out);
        const double g = v[0][r * kColumns + c];
        y[i] = gated ? g / (1 + std::exp(-g)) * v[0][r * kColumns + c + kColumns / 2]
                     : activate(activation, g);
      }
      return y;
    };
    const std::vector<Values> in = {random_values(kRows * kColumns, 5)};
    const Values cotangent = random_values(static_cast<size_t>(kRows * out), 6);
    const Tensor x = heap.floats({kRows, kColumns}, in[0]);
    Tensor y = heap.empty({kRows, out}), dx = heap.empty({kRows, kColumns});
    ops.run(ActivationForward{.y = y, .x = x, .activation = activation});
    ops.run(ActivationBackward{
        .dx = dx, .dy = heap.floats({kRows, out}, cotangent), .x = x, .activation = activation});
    expect_close("y", y, f(in), 1);
    expect_close("dx", dx, gradient(f, in, 0, cotangent), 1);
  }
}

/// in = {residual, branch, branch_bias, weight, bias} -> residual_out then y.
Values residual_norm(const std::vector<Values>& in, size_t rows, size_t columns, size_t batch,
                     Norm norm, double eps, const Dropout& dropout) {
  Values sum(rows * columns), y(rows * columns);
  for (size_t r = 0; r < rows; ++r) {
    double mean = 0, square = 0;
    for (size_t c = 0; c < columns; ++c) {
      const size_t i = r * columns + c;
      const double keep =
          keep_factor(dropout, int64_t(r / batch), int64_t(r % batch), int64_t(c), 3);
      sum[i] = in[0][i] + keep * (in[1][i] + in[2][c]);
      mean += sum[i] / double(columns);
    }
    if (norm == Norm::rmsnorm) mean = 0;
    for (size_t c = 0; c < columns; ++c)
      square += std::pow(sum[r * columns + c] - mean, 2) / double(columns);
    for (size_t c = 0; c < columns; ++c)
      y[r * columns + c] = (sum[r * columns + c] - mean) / std::sqrt(square + eps) * in[3][c] +
                           (norm == Norm::layernorm ? in[4][c] : 0);
  }
  sum.insert(sum.end(), y.begin(), y.end());
  return sum;
}

TEST_F(LayerOps, ResidualNormForwardAndBackward) {
  constexpr int64_t kS = 3, kB = 2, kH = 20, kCount = kS * kB * kH;
  StepState step;
  step.iteration = 3;
  for (Norm norm : {Norm::layernorm, Norm::rmsnorm}) {
    for (float p : {0.0f, 0.25f}) {
      const Dropout dropout{.p = p,
                            .seed = 11,
                            .site = dropout_site(2, DropoutKind::mlp_output),
                            .first_position = 5,
                            .first_sample = 7,
                            .state = heap.state(step)};
      const std::vector<Values> in = {random_values(kCount, 1), random_values(kCount, 2),
                                      random_values(kH, 3), random_values(kH, 4),
                                      random_values(kH, 5)};
      const Function f = [&](const std::vector<Values>& v) {
        return residual_norm(v, kS * kB, kH, kB, norm, 1e-5, dropout);
      };
      const bool layer = norm == Norm::layernorm;
      Tensor residual = heap.floats({kS, kB, kH}, in[0]), branch = heap.floats({kS, kB, kH}, in[1]),
             branch_bias = heap.floats({kH}, in[2]), weight = heap.floats({kH}, in[3]),
             bias = heap.floats({kH}, in[4]);
      Tensor y = heap.empty({kS, kB, kH}), sum = heap.empty({kS, kB, kH}),
             mean = heap.empty({kS, kB}), rstd = heap.empty({kS, kB});
      ops.run(ResidualNormForward{.norm = norm,
                                  .eps = 1e-5f,
                                  .y = y,
                                  .residual_out = sum,
                                  .mean = layer ? mean : Tensor(),
                                  .rstd = rstd,
                                  .residual = residual,
                                  .branch = branch,
                                  .branch_bias = branch_bias,
                                  .weight = weight,
                                  .bias = layer ? bias : Tensor(),
                                  .dropout = dropout});
      const Values wanted = f(in);
      expect_close("sum", sum, Values(wanted.begin(), wanted.begin() + kCount), 2);
      expect_close("y", y, Values(wanted.begin() + kCount, wanted.end()), kH);

      const Values cotangent = random_values(2 * kCount, 6);
      Tensor dsum = heap.floats({kS, kB, kH}, cotangent),
             dy = heap.floats({kS, kB, kH}, Values(cotangent.begin() + kCount, cotangent.end()));
      Tensor dweight = heap.floats({kH}, Values(kH, 1.0)),
             dbias = heap.floats({kH}, Values(kH, 1.0));
      Tensor fused_bias = heap.floats({kH}, Values(kH, 1.0));
      // In place, as the model does: dresidual over dresidual_out, dbranch over dy.
      ops.run(ResidualNormBackward{.norm = norm,
                                   .dresidual = dsum,
                                   .dbranch = p > 0 ? dy : Tensor(),
                                   .dweight = dweight,
                                   .dbias = layer ? dbias : Tensor(),
                                   .dbranch_bias = fused_bias,
                                   .dy = dy,
                                   .dresidual_out = dsum,
                                   .x = sum,
                                   .mean = layer ? mean : Tensor(),
                                   .rstd = rstd,
                                   .weight = weight,
                                   .accumulate = true,
                                   .dropout = dropout});
      expect_close("dresidual", dsum, gradient(f, in, 0, cotangent), kH);
      const Tensor dbranch = p > 0 ? dy : dsum;
      expect_close("dbranch", dbranch, gradient(f, in, 1, cotangent), kH);
      Values dw = gradient(f, in, 3, cotangent), db = gradient(f, in, 4, cotangent);
      for (double& v : dw) v += 1;
      for (double& v : db) v += 1;
      expect_close("dweight", dweight, dw, kS * kB);
      if (layer) expect_close("dbias", dbias, db, kS * kB);
      Tensor dbranch_bias = heap.empty({kH});
      ops.run(LinearBackwardWeight{
          .dweight = {}, .dbias = dbranch_bias, .dy = dbranch, .x = {}, .accumulate = false});
      expect_close("dbranch_bias", dbranch_bias, gradient(f, in, 2, cotangent), kS * kB * kH);
      Values with_one = gradient(f, in, 2, cotangent);
      for (double& v : with_one) v += 1;
      expect_close("dbranch_bias on the way", fused_bias, with_one, kS * kB * kH);
    }
  }
}

/// Each q and k head of rows (G, N/G + 2, D) normed; in: x, q weight, q bias, k weight, k bias.
Values head_norm(const std::vector<Values>& in, size_t heads, size_t per_group, size_t d, Norm norm,
                 double eps) {
  Values y = in[0];
  for (size_t head = 0; head < in[0].size() / d; ++head) {
    const size_t slot = head % heads % per_group;
    if (slot == per_group - 1) continue;
    const size_t at = slot == per_group - 2 ? 3 : 1;
    double mean = 0, square = 0;
    for (size_t c = 0; c < d; ++c) mean += in[0][head * d + c] / double(d);
    if (norm == Norm::rmsnorm) mean = 0;
    for (size_t c = 0; c < d; ++c)
      square += (in[0][head * d + c] - mean) * (in[0][head * d + c] - mean) / double(d);
    for (size_t c = 0; c < d; ++c)
      y[head * d + c] = (in[0][head * d + c] - mean) / std::sqrt(square + eps) * in[at][c] +
                        (norm == Norm::layernorm ? in[at + 1][c] : 0);
  }
  return y;
}

TEST_F(LayerOps, HeadNormForwardAndBackward) {
  constexpr int64_t kS = 70, kB = 2, kN = 4, kG = 2, kD = 6, kRow = (kN + 2 * kG) * kD,
                    kNormed = kN + kG, kCount = kS * kB * kRow;
  for (Norm norm : {Norm::layernorm, Norm::rmsnorm}) {
    const bool layer = norm == Norm::layernorm;
    const std::vector<Values> in = {random_values(kCount, 1), random_values(kD, 2),
                                    random_values(kD, 3), random_values(kD, 4),
                                    random_values(kD, 5)};
    const Function f = [&](const std::vector<Values>& v) {
      return head_norm(v, kN + 2 * kG, kN / kG + 2, kD, norm, 1e-5);
    };
    const HeadNorm heads{.norm = norm,
                         .num_attention_heads = kN,
                         .num_query_groups = kG,
                         .x = heap.floats({kS, kB, kRow}, in[0]),
                         .mean = layer ? heap.empty({kS, kB, kNormed}) : Tensor(),
                         .rstd = heap.empty({kS, kB, kNormed}),
                         .q_weight = heap.floats({kD}, in[1]),
                         .k_weight = heap.floats({kD}, in[3])};
    const Tensor q_bias = heap.floats({kD}, in[2]), k_bias = heap.floats({kD}, in[4]);
    const Tensor y = heap.empty({kS, kB, kRow});
    HeadNormForward forward{.heads = heads, .eps = 1e-5f, .y = y};
    if (layer) forward.q_bias = q_bias, forward.k_bias = k_bias;
    ops.run(forward);
    expect_close("y", y, f(in), kD);
    // In place, as generation does, and without what backward needs.
    HeadNormForward again = forward;
    again.heads.x = again.y = heap.floats({kS, kB, kRow}, in[0]);
    again.heads.mean = again.heads.rstd = {};
    ops.run(again);
    EXPECT_EQ(read(again.y), read(y));

    // d(x) of a few rows alone, numerically; sums over all rows through the weights.
    const Values cotangent = random_values(kCount, 6);
    std::vector<Values> few = in;
    few[0].resize(size_t(3 * kRow));
    const Values dx = gradient(f, few, 0, cotangent);
    const Tensor dy = heap.floats({kS, kB, kRow}, cotangent);
    const Tensor dq = heap.floats({kD}, Values(kD, 1.0)), dk = heap.floats({kD}, Values(kD, 1.0)),
                 dqb = heap.floats({kD}, Values(kD, 1.0)), dkb = heap.floats({kD}, Values(kD, 1.0));
    HeadNormBackward backward{
        .heads = heads, .dx = dy, .dy = dy, .dq_weight = dq, .dk_weight = dk, .accumulate = true};
    if (layer) backward.dq_bias = dqb, backward.dk_bias = dkb;
    ops.run(backward);
    const Values got = read(dy);
    for (size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(got[i], dx[i], tolerance(dx, 4 * kD)) << i;
    size_t which = 1;
    for (const Tensor& sum : {dq, dqb, dk, dkb}) {
      Values wanted = gradient(f, in, which, cotangent);
      for (double& v : wanted) v += 1;
      if (layer || which % 2 == 1) expect_close("sums", sum, wanted, kS * kB);
      ++which;
    }
  }
}

// Sums are kept in scratch memory, which an earlier and larger call leaves as it likes.
TEST_F(LayerOps, SumsOfHeadsDependOnNoCallBefore) {
  constexpr int64_t kD = 4, kRow = 3 * kD;
  const auto sums = [&](cpu::CpuOps& on, int64_t rows) {
    const Tensor weight = heap.floats({kD}, Values(kD, 1.0)), dq = heap.empty({kD}),
                 dk = heap.empty({kD});
    const HeadNorm heads{.norm = Norm::rmsnorm,
                         .num_attention_heads = 1,
                         .num_query_groups = 1,
                         .x = heap.floats({rows, 1, kRow}, random_values(rows * kRow, 3)),
                         .mean = {},
                         .rstd = heap.floats({rows, 1, 2}, Values(size_t(rows * 2), 0.5)),
                         .q_weight = weight,
                         .k_weight = weight};
    const Tensor dy = heap.floats({rows, 1, kRow}, random_values(rows * kRow, 4));
    on.run(HeadNormBackward{
        .heads = heads, .dx = dy, .dy = dy, .dq_weight = dq, .dk_weight = dk, .accumulate = false});
    Values out = read(dq);
    for (const double value : read(dk)) out.push_back(value);
    return out;
  };
  for (const int64_t rows : {1, 62, 63, 64, 65, 127, 128}) {
    cpu::CpuOps fresh(1), used(1);
    sums(used, 512);
    EXPECT_EQ(sums(used, rows), sums(fresh, rows)) << rows;
  }
}

// Without y, the sum and the statistics are the same bits.
TEST_F(LayerOps, ANormsStatisticsAlone) {
  constexpr int64_t kS = 5, kB = 3, kH = 80;
  const Dropout dropout{.p = 0.25f, .seed = 1, .site = 4, .state = heap.state({})};
  const auto random = [&](uint32_t seed) {
    return heap.floats({kS, kB, kH}, random_values(kS * kB * kH, seed, 3));
  };
  for (const Norm norm : {Norm::layernorm, Norm::rmsnorm})
    for (const bool adds : {false, true}) {
      ResidualNormForward whole{.norm = norm,
                                .y = heap.empty({kS, kB, kH}),
                                .residual_out = adds ? heap.empty({kS, kB, kH}) : Tensor(),
                                .mean = norm == Norm::layernorm ? heap.empty({kS, kB}) : Tensor(),
                                .rstd = heap.empty({kS, kB}),
                                .residual = random(1),
                                .branch = adds ? random(2) : Tensor(),
                                .branch_bias = {},
                                .weight = heap.floats({kH}, random_values(kH, 3)),
                                .bias = {},
                                .dropout = dropout};
      ResidualNormForward alone = whole;
      alone.y = alone.weight = {};
      if (adds) alone.residual_out = heap.empty({kS, kB, kH});
      alone.rstd = heap.empty({kS, kB});
      if (alone.mean) alone.mean = heap.empty({kS, kB});
      ops.run(whole);
      ops.run(alone);
      EXPECT_EQ(read(alone.rstd), read(whole.rstd));
      if (adds) {
        EXPECT_EQ(read(alone.residual_out), read(whole.residual_out));
      }
      if (alone.mean) {
        EXPECT_EQ(read(alone.mean), read(whole.mean));
      }
      alone.rstd = heap.empty({kB, kS});
      EXPECT_THROW(alone.check(Device::cpu), ShapeError);
    }
}

TEST_F(LayerOps, WideRowsAreDroppedByOneLaw) {
  // 1100 columns: more than the piece that the fused loop works on.
  constexpr int64_t kH = 1100;
  const Dropout dropout{.p = 0.5f, .seed = 1, .site = 4, .state = heap.state({})};
  Tensor residual = heap.floats({1, 2, kH}, Values(2 * kH, 0.0)),
         branch = heap.floats({1, 2, kH}, Values(2 * kH, 1.0)), sum = heap.empty({1, 2, kH});
  ops.run(ResidualNormForward{.y = {},
                              .residual_out = sum,
                              .mean = {},
                              .rstd = {},
                              .residual = residual,
                              .branch = branch,
                              .branch_bias = {},
                              .weight = {},
                              .bias = {},
                              .dropout = dropout});
  int64_t kept = 0;
  for (int64_t i = 0; i < 2 * kH; ++i) {
    ASSERT_EQ(sum.as<float>()[i], keep_factor(dropout, 0, i / kH, i % kH, 0)) << i;
    kept += sum.as<float>()[i] != 0;
  }
  EXPECT_NEAR(double(kept), kH, 5 * std::sqrt(kH / 2.0));  // 5 standard deviations of the binomial
}

TEST_F(LayerOps, EmbeddingForwardAndBackward) {
  constexpr int64_t kS = 5, kB = 3, kH = 20, kV = 7;
  StepState step;
  step.iteration = 3;
  const std::vector<int> tokens = {1, 4, 0, 6, 6, 6, 2, 1, 1, 5, 3, 2, 0, 6, 4};
  const std::vector<int> positions = {0, 0, 0, 1, 1, 0, 2, 2, 1, 3, 0, 2, 4, 1, 3};
  for (int64_t first_token : {int64_t{0}, int64_t{2}}) {
    const int64_t held = kV - first_token;
    const Dropout dropout{.p = 0.25f,
                          .seed = 5,
                          .site = 9,
                          .first_position = 2,
                          .first_sample = 4,
                          .state = heap.state(step)};
    const std::vector<Values> in = {random_values(size_t(held * kH), 1), random_values(kS * kH, 2)};
    const Function f = [&](const std::vector<Values>& v) {
      Values x(kS * kB * kH);
      for (size_t i = 0; i < x.size(); ++i) {
        const size_t r = i / kH, c = i % kH;
        const int64_t token = tokens[r] - first_token;
        const double row = token >= 0 ? v[0][size_t(token) * kH + c] : 0;
        x[i] = (row + v[1][size_t(positions[r]) * kH + c]) *
               keep_factor(dropout, int64_t(r / kB), int64_t(r % kB), int64_t(c), 3);
      }
      return x;
    };
    const Tensor ids = heap.integers({kS, kB}, tokens), at = heap.integers({kS, kB}, positions);
    Tensor x = heap.empty({kS, kB, kH});
    ops.run(EmbeddingForward{.x = x,
                             .tokens = ids,
                             .token_table = heap.floats({held, kH}, in[0]),
                             .positions = at,
                             .position_table = heap.floats({kS, kH}, in[1]),
                             .first_token = first_token,
                             .dropout = dropout});
    expect_close("x", x, f(in), 2);
    const Values cotangent = random_values(kS * kB * kH, 3);
    Tensor dtokens = heap.floats({held, kH}, Values(size_t(held * kH), 1.0)),
           dpositions = heap.empty({kS, kH});
    ops.run(EmbeddingBackward{.dx = heap.floats({kS, kB, kH}, cotangent),
                              .tokens = ids,
                              .dtoken_table = dtokens,
                              .positions = at,
                              .dposition_table = dpositions,
                              .first_token = first_token,
                              .accumulate_tokens = true,
                              .accumulate_positions = false,
                              .dropout = dropout});
    Values wanted = gradient(f, in, 0, cotangent);
    for (double& v : wanted) v += 1;
    expect_close("dtokens", dtokens, wanted, kS * kB);
    expect_close("dpositions", dpositions, gradient(f, in, 1, cotangent), kS * kB);
  }
}

}  // namespace
