// FP8 with scales of rows and of blocks on the CPU, against fp8_reference.h: codes and scales of
// both layouts, unusual numbers, activations, and a linear's three products in float64.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/trainer/ops/fp8_reference.h"
#include "tests/trainer/ops/numeric.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace {

using namespace ops;
using namespace numeric;
using namespace fp8_reference;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Scaling kAll[] = {Scaling::row, Scaling::row_block, Scaling::square_block};

class Fp8Blocks : public testing::Test {
 protected:
  Tensor scales(Scaling scaling, int64_t rows, int64_t depth) {
    const ScaleShape shape = scale_shape(scaling, rows, depth);
    return heap.empty({shape.rows, shape.columns});
  }
  /// Both layouts of x.
  QuantizeInBlocks pass_of(const Tensor& x, int64_t r, int64_t c, const Rounding& how) {
    return {.rows = heap.make(how.dtype, {r, c}),
            .columns = heap.make(how.dtype, {c, r}),
            .row_scale = scales(how.scaling, r, c),
            .column_scale = scales(how.scaling, c, r),
            .dbias = {},
            .x = x,
            .pre_activation = {},
            .scaling = how.scaling,
            .margin = how.margin,
            .power_of_two = how.power_of_two};
  }
  static double scale_at(const Tensor& scale, Scaling scaling, int64_t i, int64_t k) {
    const float* s = scale.as<float>();
    const int64_t columns = scale.shape[1];
    if (scaling == Scaling::row) return s[i];
    if (scaling == Scaling::row_block) return s[k / 128 * columns + i];
    return s[i / 128 * columns + k / 128];
  }
  static void expect_rounded(const Tensor& codes, const Tensor& scale, const Values& v,
                             const Rounding& how, const std::string& what) {
    const int64_t rows = codes.shape[0], depth = codes.shape[1];
    const Rounded want = rounded(v, rows, depth, how);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < depth; ++k) {
        const auto at = static_cast<size_t>(i * depth + k);
        ASSERT_EQ(static_cast<uint8_t*>(codes.data)[at], want.codes[at])
            << what << " " << i << " " << k << ": " << v[at];
        ASSERT_EQ(scale_at(scale, how.scaling, i, k), static_cast<float>(want.scales[at]))
            << what << " " << i << " " << k;
      }
  }
  void expect_both(const QuantizeInBlocks& a, const Values& v, const Rounding& how) {
    const int64_t r = a.row_count(), c = a.column_count();
    const std::string what = std::to_string(r) + " x " + std::to_string(c) + ", scaling " +
                             std::to_string(int(how.scaling)) + ", " + name(how.dtype);
    expect_rounded(a.rows, a.row_scale, v, how, what + ", rows");
    expect_rounded(a.columns, a.column_scale, transposed(v, r, c), how, what + ", columns");
  }
  Heap heap;
  cpu::CpuOps ops{2};
};

/// Random, with an outlier, a row and a column of one value, a row and 16 rows of zeros, denormals.
Values unusual(int64_t r, int64_t c) {
  Values v = random_values(static_cast<size_t>(r * c), 1, 2);
  const auto at = [&](int64_t i, int64_t j) -> double& {
    return v[static_cast<size_t>(i * c + j)];
  };
  at(r / 2, c / 3) = -1e6;
  for (int64_t j = 0; j < c; ++j) {
    at(3, j) = 0.5;
    at(4, j) = 0;
    at(5, j) = static_cast<double>(1e-40f) * static_cast<double>(j % 3);
    at(6, j) = static_cast<double>(3e-38f) * static_cast<double>(j % 5);
    at(7, j) = static_cast<double>(3e38f) * (j % 2 == 0 ? 1 : -0.25);
  }
  for (int64_t i = 8; i < r; ++i) at(i, 2) = -7;
  return v;
}

TEST_F(Fp8Blocks, CodesAndScalesOfBothLayouts) {
  for (const auto& [r, c] :
       {std::pair<int64_t, int64_t>{16, 16}, {48, 80}, {128, 256}, {144, 272}}) {
    const Values v = unusual(r, c);
    const Tensor x = heap.floats({r, c}, v);
    for (const Scaling scaling : kAll)
      for (const DType dtype : {DType::e4m3, DType::e5m2})
        for (const bool power_of_two : {true, false}) {
          const Rounding how{dtype, scaling, power_of_two, power_of_two ? 0 : 2};
          const QuantizeInBlocks a = pass_of(x, r, c, how);
          ops.run(a);
          expect_both(a, v, how);
        }
  }
}

TEST_F(Fp8Blocks, ANormInTheSamePass) {
  for_all_norms(heap, ops, [&](const NormCase& n) {
    const int64_t r = n.x.rows(), c = n.x.columns();
    for (const Scaling scaling : kAll) {
      const QuantizeInBlocks before = pass_of(n.y, r, c, {.scaling = scaling});
      QuantizeInBlocks within = pass_of(n.x, r, c, {.scaling = scaling});
      within.norm = n.applied;
      ops.run(before);
      ops.run(within);
      EXPECT_TRUE(same_bytes(within.rows, before.rows)) << int(scaling);
      EXPECT_TRUE(same_bytes(within.columns, before.columns)) << int(scaling);
      EXPECT_TRUE(same_bytes(within.row_scale, before.row_scale)) << int(scaling);
      EXPECT_TRUE(same_bytes(within.column_scale, before.column_scale)) << int(scaling);
      const double statistics = bytes_of({&n.applied.mean, &n.applied.rstd});
      EXPECT_EQ(within.cost().bytes,
                before.cost().bytes + statistics * (scaling == Scaling::row ? 2 : 1));
      EXPECT_GT(within.cost().flops, before.cost().flops);
    }
  });
}

TEST_F(Fp8Blocks, OneLayoutIsTheSameAsBoth) {
  const Values v = unusual(144, 272);
  const Tensor x = heap.floats({144, 272}, v);
  for (const Scaling scaling : kAll) {
    QuantizeInBlocks a = pass_of(x, 144, 272, {.scaling = scaling}), rows = a, columns = a;
    rows.columns = rows.column_scale = {};
    columns.rows = columns.row_scale = {};
    ops.run(rows);
    expect_rounded(a.rows, a.row_scale, v, {.scaling = scaling}, "rows alone");
    ops.run(columns);
    expect_rounded(a.columns, a.column_scale, transposed(v, 144, 272), {.scaling = scaling},
                   "columns alone");
  }
}

TEST_F(Fp8Blocks, ScalesBeyondTheBlocksAreZero) {
  const Tensor x = heap.floats({144, 272}, random_values(144 * 272, 3));
  const QuantizeInBlocks a = pass_of(x, 144, 272, {.scaling = Scaling::square_block});
  ops.run(a);
  ASSERT_EQ(a.row_scale.describe(), "fp32 (2, 4)");
  ASSERT_EQ(a.column_scale.describe(), "fp32 (3, 4)");
  for (const int64_t i : {3, 7}) EXPECT_EQ(a.row_scale.as<float>()[i], 0.0f);
  for (const int64_t i : {2, 3, 6, 7, 10, 11}) EXPECT_EQ(a.column_scale.as<float>()[i], 0.0f);
}

// With one scale a tensor an outlier of 1e6 makes zeros of all values below 2; here only of those
// beside it.
TEST_F(Fp8Blocks, AnOutlierCostsItsOwnBlockAlone) {
  constexpr int64_t kR = 256, kC = 272;
  Values v = random_values(kR * kC, 5, 1);
  for (double& x : v) x = std::copysign(std::max(std::abs(x), 0.125), x);
  v[200 * kC + 140] = 1e6;
  const Tensor x = heap.floats({kR, kC}, v);
  for (const Scaling scaling : kAll) {
    const QuantizeInBlocks a = pass_of(x, kR, kC, {.scaling = scaling});
    ops.run(a);
    int64_t near = 0, lost = 0;
    for (int64_t i = 0; i < kR; ++i)
      for (int64_t j = 0; j < kC; ++j) {
        const double got = value_of(DType::e4m3, static_cast<uint8_t*>(a.rows.data)[i * kC + j]) *
                           scale_at(a.row_scale, scaling, i, j);
        const double want = v[static_cast<size_t>(i * kC + j)];
        (std::abs(got - want) <= std::abs(want) / 16 ? near : lost) += 1;
      }
    const int64_t beside = scaling == Scaling::row         ? kC - 1
                           : scaling == Scaling::row_block ? 127
                                                           : 128 * 128 - 1;
    EXPECT_EQ(lost, beside) << int(scaling);
    EXPECT_EQ(near, kR * kC - beside) << int(scaling);
  }
}

TEST_F(Fp8Blocks, WhatIsNotFiniteStaysInItsBlock) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    Values v = random_values(144 * 272, 6);
    v[20 * 272 + 130] = static_cast<double>(bad);
    const Tensor x = heap.floats({144, 272}, v);
    for (const Scaling scaling : kAll)
      for (const DType dtype : {DType::e4m3, DType::e5m2}) {
        const Rounding how{.dtype = dtype, .scaling = scaling};
        const QuantizeInBlocks a = pass_of(x, 144, 272, how);
        ops.run(a);
        expect_both(a, v, how);
        EXPECT_EQ(static_cast<uint8_t*>(a.rows.data)[20 * 272 + 130], 0x7f);
        EXPECT_EQ(static_cast<uint8_t*>(a.columns.data)[130 * 144 + 20], 0x7f);
        EXPECT_EQ(scale_at(a.row_scale, scaling, 20, 130), 1.0);
      }
  }
}

TEST_F(Fp8Blocks, ActivationsAndSlopesAreRoundedAfterwards) {
  constexpr int64_t kR = 144, kC = 160;
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::swiglu}) {
    const bool gated = activation == Activation::swiglu;
    const Tensor x =
        heap.floats({kR, gated ? 2 * kC : kC}, random_values(kR * kC * (gated ? 2 : 1), 2));
    const Tensor v = heap.empty({kR, kC});
    ops.run(ActivationForward{.y = v, .x = x, .activation = activation});
    const int64_t in = gated ? kC / 2 : kC;
    const Tensor dy = heap.floats({kR, in}, random_values(static_cast<size_t>(kR * in), 3)),
                 pre = heap.floats({kR, kC}, random_values(kR * kC, 4)), d = heap.empty({kR, kC});
    ops.run(ActivationBackward{.dx = d, .dy = dy, .x = pre, .activation = activation});
    for (const Scaling scaling : kAll) {
      QuantizeInBlocks forward = pass_of(x, kR, kC, {.scaling = scaling});
      forward.activation = activation;
      ops.run(forward);
      expect_both(forward, read(v), {.scaling = scaling});

      const Rounding how{.dtype = DType::e5m2, .scaling = scaling};
      QuantizeInBlocks backward = pass_of(dy, kR, kC, how);
      backward.pre_activation = pre;
      backward.activation = activation;
      for (const bool accumulate : {false, true}) {
        backward.dbias = heap.floats({kC}, Values(kC, 10));
        backward.accumulate_bias = accumulate;
        ops.run(backward);
        expect_both(backward, read(d), how);
        double sum = accumulate ? 10 : 0;
        for (int64_t i = 0; i < kR; ++i) sum += static_cast<double>(d.as<float>()[i * kC + 7]);
        EXPECT_NEAR(backward.dbias.as<float>()[7], sum, 1e-4);
      }
    }
  }
}

/// a (m, k) times b (n, k) transposed.
Values product(const Values& a, const Values& b, int64_t m, int64_t n, int64_t k) {
  Values y(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t t = 0; t < k; ++t)
        y[static_cast<size_t>(i * n + j)] +=
            a[static_cast<size_t>(i * k + t)] * b[static_cast<size_t>(j * k + t)];
  return y;
}

// y = x W^T + bias + addend, dx = dy W, dW += dy^T x: each from operands that float64 rounds.
TEST_F(Fp8Blocks, TheThreeProductsOfALinear) {
  constexpr int64_t kR = 144, kI = 160, kO = 272;
  const Values x = random_values(kR * kI, 1), w = random_values(kO * kI, 2, 0.05),
               dy = random_values(kR * kO, 3, 1e-3);
  const Values bias = random_values(kO, 4), addend = random_values(kR * kO, 5),
               before = random_values(kO * kI, 6);
  const auto sum = [](Values a, const Values& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i % b.size()];
    return a;
  };
  for (const bool blocks : {false, true})
    for (const bool power_of_two : {true, false}) {
      const Scaling rows = blocks ? Scaling::row_block : Scaling::row,
                    weight = blocks ? Scaling::square_block : Scaling::row;
      const Rounding of_x{DType::e4m3, rows, power_of_two}, of_w{DType::e4m3, weight, power_of_two},
          of_dy{DType::e5m2, rows, power_of_two};
      const QuantizeInBlocks qx = pass_of(heap.floats({kR, kI}, x), kR, kI, of_x),
                             qw = pass_of(heap.floats({kO, kI}, w), kO, kI, of_w),
                             qdy = pass_of(heap.floats({kR, kO}, dy), kR, kO, of_dy);
      for (const QuantizeInBlocks* pass : {&qx, &qw, &qdy}) ops.run(*pass);
      const Tensor y = heap.empty({kR, kO}), dx = heap.empty({kR, kI}),
                   dw = heap.floats({kO, kI}, before);
      ops.run(Fp8Product{.y = y,
                         .a = qx.rows,
                         .b = qw.rows,
                         .a_scale = qx.row_scale,
                         .b_scale = qw.row_scale,
                         .bias = heap.floats({kO}, bias),
                         .addend = heap.floats({kR, kO}, addend),
                         .fast_sums = false,
                         .a_scaling = rows,
                         .b_scaling = weight});
      ops.run(Fp8Product{.y = dx,
                         .a = qdy.rows,
                         .b = qw.columns,
                         .a_scale = qdy.row_scale,
                         .b_scale = qw.column_scale,
                         .bias = {},
                         .addend = {},
                         .fast_sums = false,
                         .a_scaling = rows,
                         .b_scaling = weight});
      ops.run(Fp8Product{.y = dw,
                         .a = qdy.columns,
                         .b = qx.columns,
                         .a_scale = qdy.column_scale,
                         .b_scale = qx.column_scale,
                         .bias = {},
                         .addend = dw,
                         .fast_sums = false,
                         .a_scaling = rows,
                         .b_scaling = rows});
      const Values wt = transposed(w, kO, kI), xt = transposed(x, kR, kI),
                   dyt = transposed(dy, kR, kO);
      const Values rx = rounded(x, kR, kI, of_x).values, rw = rounded(w, kO, kI, of_w).values,
                   rdy = rounded(dy, kR, kO, of_dy).values, rwt = rounded(wt, kI, kO, of_w).values,
                   rxt = rounded(xt, kI, kR, of_x).values,
                   rdyt = rounded(dyt, kO, kR, of_dy).values;
      const std::string at = std::string(blocks ? "blocks" : "rows") + (power_of_two ? " 2^n" : "");
      expect_close(at + " y", y, sum(sum(product(rx, rw, kR, kO, kI), addend), bias), kI + 2);
      expect_close(at + " dx", dx, product(rdy, rwt, kR, kI, kO), kO);
      expect_close(at + " dw", dw, sum(product(rdyt, rxt, kO, kI, kR), before), kR + 1);
    }
}

TEST_F(Fp8Blocks, RefusesScalesThatDoNotFit) {
  const auto product = [&](Scaling a, Scaling b, bool fast) {
    return Fp8Product{.y = heap.empty({144, 32}),
                      .a = heap.make(DType::e4m3, {144, 272}),
                      .b = heap.make(DType::e4m3, {32, 272}),
                      .a_scale = scales(a, 144, 272),
                      .b_scale = scales(b, 32, 272),
                      .bias = {},
                      .addend = {},
                      .fast_sums = fast,
                      .a_scaling = a,
                      .b_scaling = b};
  };
  EXPECT_NO_THROW(product(Scaling::row, Scaling::row, true).check(Device::cpu));
  EXPECT_NO_THROW(product(Scaling::row_block, Scaling::square_block, false).check(Device::cpu));
  for (const auto& [a, b] : {std::pair{Scaling::row, Scaling::tensor},
                             {Scaling::square_block, Scaling::square_block},
                             {Scaling::row, Scaling::row_block}})
    EXPECT_THROW(product(a, b, false).check(Device::cpu), ShapeError) << int(a) << int(b);
  EXPECT_THROW(product(Scaling::row_block, Scaling::row_block, true).check(Device::cpu),
               ShapeError);
  Fp8Product short_by_one = product(Scaling::row, Scaling::row, true);
  short_by_one.a_scale = heap.empty({1, 143});
  EXPECT_THROW(short_by_one.check(Device::cpu), ShapeError);
  QuantizeInBlocks pass = pass_of(heap.empty({32, 48}), 32, 48, {.scaling = Scaling::row_block});
  EXPECT_NO_THROW(pass.check(Device::cpu));
  pass.row_scale = heap.empty({32, 1});
  EXPECT_THROW(pass.check(Device::cpu), ShapeError);
  pass = pass_of(heap.empty({32, 40}), 32, 40, {});
  EXPECT_THROW(pass.check(Device::cpu), ShapeError);
}

}  // namespace
