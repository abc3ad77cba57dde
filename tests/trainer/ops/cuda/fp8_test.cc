// Quantizing, scales and products of quantized operands on the GPU against the CPU. Rounding and
// scales must have the same bits; where an activation comes before the rounding, or sums differ in
// order, the next number is allowed, too.
// SPDX-License-Identifier: MIT
#include <cstdint>
#include <limits>

#include "tests/trainer/ops/cuda/pair.h"
#include "trainer/ops/fp8.h"

namespace {

using namespace pair;

class CudaFp8 : public PairTest {
 protected:
  std::vector<uint8_t> codes(const Twin& t, int side) {
    std::vector<uint8_t> out(static_cast<size_t>(t[side].bytes()));
    sides[side]->download(out.data(), t[side]);
    sides[side]->synchronize();
    return out;
  }
  /// Codes of equal sign that differ by at most `steps`; a step is to the next number. One of
  /// `unequal_of` may differ.
  void expect_codes(const std::string& what, const Twin& t, int steps, size_t unequal_of = 50) {
    const std::vector<uint8_t> cpu = codes(t, 0), gpu = codes(t, 1);
    int64_t far = 0, unequal = 0;
    for (size_t i = 0; i < cpu.size(); ++i) {
      const auto place = [](uint8_t c) { return c & 0x80 ? -(c & 0x7f) : c & 0x7f; };
      const int distance = std::abs(place(cpu[i]) - place(gpu[i]));
      far += distance > steps;
      unequal += distance > 0;
    }
    EXPECT_EQ(far, 0) << what << ", of " << cpu.size() << ", " << unequal << " unequal";
    EXPECT_LE(unequal, steps == 0 ? 0 : static_cast<int64_t>(cpu.size() / unequal_of) + 4) << what;
  }
  Twin scale_of(float factor) { return floats(DType::f32, {4}, {1.0f / factor, factor, 0, 0}); }
  Twin zero() { return floats(DType::f32, {1}, {0.0f}); }
  float number(const Twin& t, int side, int64_t at = 0) {
    std::vector<float> out(static_cast<size_t>(t[side].elements()));
    sides[side]->download(out.data(), t[side]);
    sides[side]->synchronize();
    return out[static_cast<size_t>(at)];
  }
};
ALL_DTYPES(CudaFp8);

TEST_P(CudaFp8, QuantizesInBothLayouts) {
  for (const auto& [r, c] :
       {std::pair<int64_t, int64_t>{16, 16}, {48, 80}, {256, 384}, {400, 144}}) {
    for (const DType dtype : {DType::e4m3, DType::e5m2}) {
      Twin x = random(model(), {r, c}, 3);
      const Twin scale = scale_of(37.5f), amax = zero(), dbias = random(DType::f32, {c});
      const Twin rows = empty(dtype, {r, c}), columns = empty(dtype, {c, r});
      both([&](int i) {
        return Quantize{.rows = rows[i],
                        .columns = columns[i],
                        .scale = scale[i],
                        .amax = amax[i],
                        .dbias = dbias[i],
                        .x = x[i],
                        .pre_activation = {}};
      });
      const std::string at = std::to_string(r) + " x " + std::to_string(c);
      expect_codes("rows " + at, rows, 0);
      expect_codes("columns " + at, columns, 0);
      EXPECT_EQ(number(amax, 0), number(amax, 1)) << at;
      expect_close("dbias " + at, dbias, 0, 0, static_cast<double>(r));
    }
  }
}

TEST_P(CudaFp8, UnusualNumbers) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values(32 * 32, 0.25f);
  const float odd[] = {0.0f,    -0.0f,    1e-30f,     -1e-30f,  1e6f,     -1e6f,
                       448,     463,      464,        465,      57344,    61440,
                       0x1p-9f, 0x1p-10f, 0x1.8p-10f, 0x1p-16f, 0x1p-17f, 0x1.8p-17f};
  for (size_t i = 0; i < std::size(odd); ++i) values[i * 33] = odd[i];
  for (const bool broken : {false, true}) {
    if (broken) values[5] = inf, values[6] = -inf, values[7] = std::nanf("");
    const Twin x = floats(model(), {32, 32}, values), scale = scale_of(1), amax = zero();
    for (const DType dtype : {DType::e4m3, DType::e5m2}) {
      const Twin rows = empty(dtype, {32, 32});
      both([&](int i) {
        return Quantize{.rows = rows[i],
                        .columns = {},
                        .scale = scale[i],
                        .amax = amax[i],
                        .dbias = {},
                        .x = x[i],
                        .pre_activation = {}};
      });
      expect_codes(name(dtype), rows, 0);
      const std::vector<uint8_t> gpu = codes(rows, 1);
      if (broken) {
        for (size_t i : {5, 6, 7}) EXPECT_EQ(gpu[i], 0x7f);
      }
    }
    EXPECT_EQ(std::isfinite(number(amax, 1)), !broken && model() != DType::f16);
    EXPECT_EQ(std::isfinite(number(amax, 0)), std::isfinite(number(amax, 1)));
  }
}

TEST_P(CudaFp8, ActivationsAndSlopes) {
  const int64_t r = 160, c = 96;
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::swiglu}) {
    const bool gated = activation == Activation::swiglu;
    const Twin scale = scale_of(20);
    const Twin x = random(model(), {r, gated ? 2 * c : c});
    const Twin rows = empty(DType::e4m3, {r, c}), columns = empty(DType::e4m3, {c, r});
    both([&](int i) {
      return Quantize{.rows = rows[i],
                      .columns = columns[i],
                      .scale = scale[i],
                      .amax = {},
                      .dbias = {},
                      .x = x[i],
                      .pre_activation = {},
                      .activation = activation};
    });
    const std::string at = std::to_string(int(activation));
    expect_codes("activation, rows " + at, rows, 1);
    expect_codes("activation, columns " + at, columns, 1);
    const Twin dy = random(model(), {r, gated ? c / 2 : c}), pre = random(model(), {r, c});
    const Twin drows = empty(DType::e5m2, {r, c}), dcolumns = empty(DType::e5m2, {c, r});
    const Twin dbias = random(DType::f32, {c}), amax = zero();
    both([&](int i) {
      return Quantize{.rows = drows[i],
                      .columns = dcolumns[i],
                      .scale = scale[i],
                      .amax = amax[i],
                      .dbias = dbias[i],
                      .accumulate_bias = false,
                      .x = dy[i],
                      .pre_activation = pre[i],
                      .activation = activation};
    });
    expect_codes("slope, rows " + at, drows, 1);
    expect_codes("slope, columns " + at, dcolumns, 1);
    expect_close("slope, dbias " + at, dbias, 0, 0.02, static_cast<double>(r) + 200);
    EXPECT_NEAR(number(amax, 0), number(amax, 1), 1e-5 * number(amax, 0));
  }
}

// On the GPU a norm in the same pass has the bits of a norm before it. The CPU does not round the
// norm's output to 16 bits, which changes a code in a hundred.
TEST_P(CudaFp8, ANormInTheSamePass) {
  for_all_norms([&](const NormCase& n, const std::string& what) {
    const int64_t r = n.x[0].rows(), c = n.x[0].columns();
    const Twin scale = scale_of(90);
    struct Output {
      Twin rows, columns, amax, dbias;
    };
    const auto output = [&] {
      return Output{empty(DType::e4m3, {r, c}), empty(DType::e4m3, {c, r}), zero(),
                    empty(DType::f32, {c})};
    };
    const auto pass = [&](const Output& out, int i) {
      return Quantize{.rows = out.rows[i],
                      .columns = out.columns[i],
                      .scale = scale[i],
                      .amax = out.amax[i],
                      .dbias = out.dbias[i],
                      .accumulate_bias = false,
                      .x = n.y[i],
                      .pre_activation = {}};
    };
    const Output before = output(), within = output();
    both([&](int i) { return pass(before, i); });
    both([&](int i) {
      Quantize a = pass(within, i);
      a.x = n.x[i];
      a.norm = n.applied(i);
      return a;
    });
    for (int side = 0; side < 2; ++side) {
      EXPECT_TRUE(codes(within.rows, side) == codes(before.rows, side)) << what << " " << side;
      EXPECT_TRUE(codes(within.columns, side) == codes(before.columns, side))
          << what << " " << side;
      EXPECT_EQ(number(within.amax, side), number(before.amax, side)) << what << " " << side;
      EXPECT_TRUE(codes(within.dbias, side) == codes(before.dbias, side)) << what << " " << side;
    }
    expect_codes("rows, " + what, within.rows, 1, 20);
    expect_codes("columns, " + what, within.columns, 1, 20);
  });
}

TEST_P(CudaFp8, Scales) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> seen = {3, 0, inf, 1e-42f, 3e38f, 0.125f};
  for (const bool has_history : {false, true}) {
    for (const AmaxChoice choice : {AmaxChoice::most_recent, AmaxChoice::max}) {
      for (const int margin : {0, 3}) {
        const Twin amax = floats(DType::f32, {6}, seen), scale = random(DType::f32, {6, 4});
        const Twin history = random(DType::f32, {6, 3}, 0.1, 1);
        both([&](int i) {
          return UpdateScales{.scale = scale[i],
                              .amax = amax[i],
                              .history = has_history ? history[i] : Tensor(),
                              .dtype = DType::e5m2,
                              .margin = margin,
                              .choice = choice};
        });
        for (const Twin* t : {&amax, &scale, &history}) EXPECT_EQ(codes(*t, 0), codes(*t, 1));
      }
    }
  }
}

TEST_P(CudaFp8, Products) {
  if (model() == DType::f32) GTEST_SKIP() << "products give 16 bits, or fp32 gradients";
  if (!sides[1]->describe().empty() && tested_as().major == 8) GTEST_SKIP() << "needs 8.9";
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{16, 16, 16},
                                {64, 48, 32},
                                {256, 384, 512},
                                {144, 1600, 208}}) {
    for (const bool gradient : {false, true}) {
      for (const bool fast : {false, true}) {
        const Twin x = random(model(), {m, k}), w = random(model(), {n, k});
        const Twin xs = scale_of(60), ws = scale_of(45);
        const Twin a = empty(gradient ? DType::e5m2 : DType::e4m3, {m, k}),
                   b = empty(DType::e4m3, {n, k});
        both([&](int i) {
          return Quantize{.rows = a[i],
                          .columns = {},
                          .scale = xs[i],
                          .amax = {},
                          .dbias = {},
                          .x = x[i],
                          .pre_activation = {}};
        });
        both([&](int i) {
          return Quantize{.rows = b[i],
                          .columns = {},
                          .scale = ws[i],
                          .amax = {},
                          .dbias = {},
                          .x = w[i],
                          .pre_activation = {}};
        });
        const std::string at = std::to_string(m) + " x " + std::to_string(n) + " x " +
                               std::to_string(k) + (fast ? ", fast" : "");
        // Hopper's tensor cores keep some 13 bits of the largest partial sum, over all terms or 128
        // at a time.
        const double terms = fast ? 16384 : 4096;
        const Twin y = empty(model(), {m, n}), bias = random(model(), {n}),
                   addend = random(model(), {m, n});
        both([&](int i) {
          return Fp8Product{.y = y[i],
                            .a = a[i],
                            .b = b[i],
                            .a_scale = xs[i],
                            .b_scale = ws[i],
                            .bias = gradient ? Tensor() : bias[i],
                            .addend = gradient ? Tensor() : addend[i],
                            .fast_sums = fast};
        });
        expect_close("y " + at, y, 1.01, 0, terms + 16);
        const Twin dw = random(DType::f32, {m, n});
        both([&](int i) {
          return Fp8Product{.y = dw[i],
                            .a = a[i],
                            .b = b[i],
                            .a_scale = xs[i],
                            .b_scale = ws[i],
                            .bias = {},
                            .addend = dw[i],
                            .fast_sums = fast};
        });
        expect_close("dw " + at, dw, 1, 0, terms + 16);
      }
    }
  }
}

}  // namespace
