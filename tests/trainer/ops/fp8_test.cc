// FP8 on the CPU: rounding against the nearest of all numbers, found by search in float64; both
// layouts, largest values, column sums; scales; products against float64.
//
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "tests/trainer/ops/fp8_reference.h"
#include "tests/trainer/ops/numeric.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/number.h"

namespace {

using namespace ops;
using namespace numeric;
using namespace fp8_reference;

constexpr float kInf = std::numeric_limits<float>::infinity();

template <DType kDType>
void check_rounding() {
  for (int code = 0; code < 256; ++code) {
    const float value = fp8_to_float<kDType>(static_cast<uint8_t>(code));
    if ((code & 0x7f) > last_finite(kDType)) {
      const bool inf = kDType == DType::e5m2 && (code & 0x7f) == 0x7c;
      EXPECT_TRUE(inf ? std::isinf(value) : std::isnan(value)) << code;
      EXPECT_EQ(float_to_fp8<kDType>(value), 0x7f) << code;
      continue;
    }
    EXPECT_EQ(value, value_of(kDType, code)) << code;
    EXPECT_EQ(float_to_fp8<kDType>(value), code);
    // Half way to the next number, and the two fp32 numbers beside that.
    const float next =
        static_cast<float>(value_of(kDType, std::min(code + 1, last_finite(kDType))));
    const float middle = (value + next) / 2;
    for (const float x : {middle, std::nextafter(middle, kInf), std::nextafter(middle, -kInf)})
      EXPECT_EQ(float_to_fp8<kDType>(x), nearest(kDType, static_cast<double>(x))) << x;
  }
  for (uint32_t i = 0; i < 20000; ++i) {
    const float x = std::bit_cast<float>(philox({i, 0, 0, 0}, 3, 4).x);
    if (std::isfinite(x)) {
      EXPECT_EQ(float_to_fp8<kDType>(x), nearest(kDType, static_cast<double>(x))) << x;
    } else {
      EXPECT_EQ(float_to_fp8<kDType>(x), 0x7f) << x;
    }
  }
}

TEST(Fp8Number, E4m3RoundsToTheNearest) { check_rounding<DType::e4m3>(); }
TEST(Fp8Number, E5m2RoundsToTheNearest) { check_rounding<DType::e5m2>(); }

class Fp8Ops : public testing::Test {
 protected:
  Tensor scale(float factor) { return heap.floats({4}, {1.0 / factor, factor, 0, 0}); }
  /// The codes of v * factor in both layouts.
  void expect_codes(const Quantize& a, const Values& v, float factor) {
    const int64_t r = a.row_count(), c = a.column_count();
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < c; ++j) {
        const float x = static_cast<float>(v[static_cast<size_t>(i * c + j)]) * factor;
        const int want = nearest(a.rows.dtype, static_cast<double>(x));
        ASSERT_EQ(static_cast<uint8_t*>(a.rows.data)[i * c + j], want) << i << " " << j;
        ASSERT_EQ(static_cast<uint8_t*>(a.columns.data)[j * r + i], want) << i << " " << j;
      }
  }
  Heap heap;
  cpu::CpuOps ops{2};
  Values history_after;
};

TEST_F(Fp8Ops, QuantizeGivesBothLayoutsLargestValueAndColumnSums) {
  constexpr int64_t kR = 48, kC = 32;
  Values values = random_values(kR * kC, 1, 2);
  values[77] = -1e6;  // one outlier
  for (int64_t j = 0; j < kC; ++j)
    values[static_cast<size_t>(3 * kC + j)] = 0.5;  // a row of one value
  for (int64_t j = 0; j < kC; ++j) values[static_cast<size_t>(4 * kC + j)] = 0;
  values[5 * kC] = 1e-40;
  for (const DType dtype : {DType::e4m3, DType::e5m2}) {
    const Tensor amax = heap.floats({1}, {1.0}), dbias = heap.floats({kC}, Values(kC, 10));
    const Quantize a{.rows = heap.make(dtype, {kR, kC}),
                     .columns = heap.make(dtype, {kC, kR}),
                     .scale = scale(3.25f),
                     .amax = amax,
                     .dbias = dbias,
                     .x = heap.floats({kR, kC}, values),
                     .pre_activation = {}};
    ops.run(a);
    expect_codes(a, values, 3.25f);
    EXPECT_EQ(amax.as<float>()[0], 1e6f);
    for (int64_t j = 0; j < kC; ++j) {
      double sum = 10;
      for (int64_t i = 0; i < kR; ++i) sum += values[static_cast<size_t>(i * kC + j)];
      EXPECT_NEAR(dbias.as<float>()[j], sum, 1e-6 * std::abs(sum) + 1e-4) << j;
    }
  }
}

TEST_F(Fp8Ops, WhatIsNotFiniteBecomesNaNAndIsSeenInTheLargestValue) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    const Tensor x = heap.floats({16, 16}, Values(256, 1)), amax = heap.floats({1}, {0});
    x.as<float>()[100] = bad;
    const Tensor rows = heap.make(DType::e5m2, {16, 16});
    ops.run(Quantize{.rows = rows,
                     .columns = {},
                     .scale = scale(2),
                     .amax = amax,
                     .dbias = {},
                     .x = x,
                     .pre_activation = {}});
    EXPECT_EQ(static_cast<uint8_t*>(rows.data)[100], 0x7f);
    EXPECT_FALSE(std::isfinite(amax.as<float>()[0]));
    EXPECT_EQ(static_cast<uint8_t*>(rows.data)[101], 0x40);  // 2
  }
}

TEST_F(Fp8Ops, LargestValueIsOfAllPasses) {
  const Tensor x = heap.floats({16, 16}, Values(256, -3)), amax = heap.floats({1}, {2.5});
  const Quantize a{.rows = {},
                   .columns = {},
                   .scale = {},
                   .amax = amax,
                   .dbias = {},
                   .x = x,
                   .pre_activation = {}};
  ops.run(a);
  EXPECT_EQ(amax.as<float>()[0], 3.0f);
  amax.as<float>()[0] = 7;
  ops.run(a);
  EXPECT_EQ(amax.as<float>()[0], 7.0f);
}

TEST_F(Fp8Ops, FiniteValuesWhoseProductIsNotBecomeTheLargest) {
  const Tensor x = heap.floats({16, 16}, Values(256, 1)), rows = heap.make(DType::e4m3, {16, 16});
  x.as<float>()[3] = 1e30f;
  x.as<float>()[4] = -1e30f;
  ops.run(Quantize{.rows = rows,
                   .columns = {},
                   .scale = scale(1e20f),
                   .amax = {},
                   .dbias = {},
                   .x = x,
                   .pre_activation = {}});
  EXPECT_EQ(static_cast<uint8_t*>(rows.data)[3], 0x7e);
  EXPECT_EQ(static_cast<uint8_t*>(rows.data)[4], 0xfe);
}

TEST_F(Fp8Ops, QuantizeIsTheActivationOrItsSlopeRounded) {
  constexpr int64_t kR = 32, kC = 64;
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::swiglu}) {
    const bool gated = activation == Activation::swiglu;
    const Tensor x =
        heap.floats({kR, gated ? 2 * kC : kC}, random_values(kR * kC * (gated ? 2 : 1), 2));
    const Tensor v = heap.empty({kR, kC});
    ops.run(ActivationForward{.y = v, .x = x, .activation = activation});
    const Quantize forward{.rows = heap.make(DType::e4m3, {kR, kC}),
                           .columns = heap.make(DType::e4m3, {kC, kR}),
                           .scale = scale(90),
                           .amax = {},
                           .dbias = {},
                           .x = x,
                           .pre_activation = {},
                           .activation = activation};
    ops.run(forward);
    expect_codes(forward, read(v), 90);

    const int64_t in = gated ? kC / 2 : kC;
    const Tensor dy = heap.floats({kR, in}, random_values(static_cast<size_t>(kR * in), 3)),
                 pre = heap.floats({kR, kC}, random_values(kR * kC, 4)), d = heap.empty({kR, kC});
    ops.run(ActivationBackward{.dx = d, .dy = dy, .x = pre, .activation = activation});
    const Quantize backward{.rows = heap.make(DType::e5m2, {kR, kC}),
                            .columns = heap.make(DType::e5m2, {kC, kR}),
                            .scale = scale(1000),
                            .amax = {},
                            .dbias = heap.empty({kC}),
                            .accumulate_bias = false,
                            .x = dy,
                            .pre_activation = pre,
                            .activation = activation};
    ops.run(backward);
    expect_codes(backward, read(d), 1000);
    double sum = 0;
    for (int64_t i = 0; i < kR; ++i) sum += d.as<float>()[i * kC + 7];
    EXPECT_NEAR(backward.dbias.as<float>()[7], sum, 1e-4);
  }
}

// A norm in the same pass has the bits of a norm before it.
TEST_F(Fp8Ops, QuantizeAppliesANorm) {
  for_all_norms(heap, ops, [&](const NormCase& n) {
    const int64_t r = n.x.rows(), c = n.x.columns();
    for (const DType dtype : {DType::e4m3, DType::e5m2}) {
      const auto pass = [&] {
        return Quantize{.rows = heap.make(dtype, {r, c}),
                        .columns = heap.make(dtype, {c, r}),
                        .scale = scale(70),
                        .amax = heap.floats({1}, {0.5}),
                        .dbias = heap.empty({c}),
                        .accumulate_bias = false,
                        .x = n.y,
                        .pre_activation = {}};
      };
      const Quantize before = pass();
      Quantize within = pass();
      within.x = n.x;
      within.norm = n.applied;
      ops.run(before);
      ops.run(within);
      EXPECT_TRUE(same_bytes(within.rows, before.rows));
      EXPECT_TRUE(same_bytes(within.columns, before.columns));
      EXPECT_TRUE(same_bytes(within.amax, before.amax));
      EXPECT_TRUE(same_bytes(within.dbias, before.dbias));
      const double statistics = bytes_of({&n.applied.mean, &n.applied.rstd});
      EXPECT_EQ(within.cost().bytes, before.cost().bytes + statistics);
      EXPECT_GT(within.cost().flops, before.cost().flops);
    }
  });
}

TEST_F(Fp8Ops, RefusesANormOfOtherSizes) {
  const NormCase n = norm_case(heap, ops, Norm::layernorm, true);
  const int64_t r = n.x.rows(), c = n.x.columns();
  const Quantize good{.rows = heap.make(DType::e4m3, {r, c}),
                      .columns = {},
                      .scale = scale(1),
                      .amax = {},
                      .dbias = {},
                      .x = n.x,
                      .pre_activation = {},
                      .norm = n.applied};
  EXPECT_NO_THROW(good.check(Device::cpu));
  const auto refused = [&](const auto& change) {
    Quantize bad = good;
    change(bad);
    EXPECT_THROW(bad.check(Device::cpu), ShapeError);
  };
  refused([&](Quantize& a) { a.norm.weight = heap.empty({c - 1}); });
  refused([&](Quantize& a) { a.norm.bias = heap.empty({c + 1}); });
  refused([&](Quantize& a) { a.norm.mean = heap.empty({r - 1}); });
  refused([&](Quantize& a) { a.norm.rstd = heap.empty({r, 2}); });
  refused([&](Quantize& a) { a.norm.rstd = {}; });
  refused([&](Quantize& a) { a.activation = Activation::gelu_tanh; });
}

TEST_F(Fp8Ops, ScalesFollowTheLargestValues) {
  const auto update = [&](Values seen, Values history, AmaxChoice choice, int margin) {
    const auto n = static_cast<int64_t>(seen.size());
    const int64_t length = static_cast<int64_t>(history.size()) / n;
    const Tensor amax = heap.floats({n}, seen),
                 scale = heap.floats({n, 4}, Values(static_cast<size_t>(4 * n), 7)),
                 kept = length > 0 ? heap.floats({n, length}, history) : Tensor();
    ops.run(UpdateScales{.scale = scale,
                         .amax = amax,
                         .history = kept,
                         .dtype = DType::e4m3,
                         .margin = margin,
                         .choice = choice});
    EXPECT_EQ(read(amax), Values(seen.size(), 0));
    if (kept) history_after = read(kept);
    Values factors;  // and inverses
    for (int64_t i = 0; i < n; ++i)
      for (const int64_t which : {kScaleFactor, kScaleInverse})
        factors.push_back(static_cast<double>(scale.as<float>()[4 * i + which]));
    return factors;
  };
  constexpr auto kRecent = AmaxChoice::most_recent, kMax = AmaxChoice::max;
  // 448 / 3.5 = 128.
  EXPECT_EQ(update({3.5}, {}, kRecent, 0), (Values{128, 1.0 / 128}));
  EXPECT_EQ(update({3.5}, {}, kRecent, 2), (Values{32, 1.0 / 32}));
  EXPECT_EQ(update({0, kInf}, {}, kRecent, 0), (Values{1, 1, 1, 1}));
  EXPECT_EQ(update({1e-42}, {}, kRecent, 0), (Values{0x1p126, 0x1p-126}));
  EXPECT_EQ(update({7}, {14, 28, 3.5}, kRecent, 0), (Values{64, 1.0 / 64}));
  EXPECT_EQ(history_after, (Values{7, 14, 28}));
  EXPECT_EQ(update({7}, {14, 28, 3.5}, kMax, 0), (Values{16, 1.0 / 16}));
  EXPECT_EQ(update({7}, {14, 3.5, 28}, kMax, 0), (Values{32, 1.0 / 32}));  // 28 is forgotten
  const Tensor scale = heap.floats({1, 4}, Values(4, 0)), amax = heap.floats({1}, {3.5});
  ops.run(UpdateScales{.scale = scale, .amax = amax, .history = {}, .dtype = DType::e5m2});
  EXPECT_EQ(scale.as<float>()[kScaleFactor], 57344 / 3.5f);
  // With nothing seen, or NaN: the scale stays, or follows earlier values.
  EXPECT_EQ(update({0}, {0}, kRecent, 0), (Values{7, 7}));
  EXPECT_EQ(update({kInf}, {14}, kRecent, 0), (Values{32, 1.0 / 32}));
  EXPECT_EQ(history_after, (Values{14}));
}

TEST_F(Fp8Ops, ProductsAreThoseOfTheDecodedNumbers) {
  constexpr int64_t kM = 48, kN = 80, kK = 112;
  const auto quantized = [&](DType dtype, int64_t rows, uint32_t seed, float factor) {
    const Tensor out = heap.make(dtype, {rows, kK});
    ops.run(
        Quantize{.rows = out,
                 .columns = {},
                 .scale = scale(factor),
                 .amax = {},
                 .dbias = {},
                 .x = heap.floats({rows, kK}, random_values(static_cast<size_t>(rows * kK), seed)),
                 .pre_activation = {}});
    return out;
  };
  const Tensor a = quantized(DType::e5m2, kM, 5, 50), b = quantized(DType::e4m3, kN, 6, 100);
  const Values bias = random_values(kN, 7), addend = random_values(kM * kN, 8);
  for (const bool in_place : {false, true}) {
    const Tensor before = heap.floats({kM, kN}, addend);
    const Tensor y = in_place ? before : heap.empty({kM, kN});
    ops.run(Fp8Product{.y = y,
                       .a = a,
                       .b = b,
                       .a_scale = scale(50),
                       .b_scale = scale(100),
                       .bias = heap.floats({kN}, bias),
                       .addend = before});
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k)
          sum += value_of(DType::e5m2, static_cast<uint8_t*>(a.data)[i * kK + k]) / 50 *
                 value_of(DType::e4m3, static_cast<uint8_t*>(b.data)[j * kK + k]) / 100;
        const size_t at = static_cast<size_t>(i * kN + j);
        ASSERT_NEAR(y.as<float>()[at], sum + bias[static_cast<size_t>(j)] + addend[at], 2e-5);
      }
  }
}

TEST_F(Fp8Ops, RefusesWhatTheHardwareCannotMultiply) {
  const auto e4m3 = [&](int64_t r, int64_t c) { return heap.make(DType::e4m3, {r, c}); };
  Fp8Product product{.y = heap.empty({16, 32}),
                     .a = e4m3(16, 48),
                     .b = e4m3(32, 48),
                     .a_scale = scale(1),
                     .b_scale = scale(1),
                     .bias = {},
                     .addend = {}};
  EXPECT_NO_THROW(product.check(Device::cpu));
  Fp8Product both_wide = product;
  both_wide.a.dtype = both_wide.b.dtype = DType::e5m2;
  EXPECT_THROW(both_wide.check(Device::cpu), ShapeError);
  Fp8Product odd = product;
  odd.a = e4m3(16, 40), odd.b = e4m3(32, 40);
  EXPECT_THROW(odd.check(Device::cpu), ShapeError);
}

}  // namespace
