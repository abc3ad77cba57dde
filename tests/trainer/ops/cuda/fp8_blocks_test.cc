// QuantizeInBlocks and products with scales of rows and of blocks, on the GPU against the CPU: the
// same bytes and scales where values are; activations allow the next number, products the rounding
// of their sums.
// SPDX-License-Identifier: MIT
#include <cstdint>
#include <limits>

#include "tests/trainer/ops/cuda/pair.h"
#include "trainer/ops/fp8.h"

namespace {

using namespace pair;

constexpr Scaling kAll[] = {Scaling::row, Scaling::row_block, Scaling::square_block};

class CudaFp8Blocks : public PairTest {
 protected:
  struct Output {
    Twin rows, columns, row_scale, column_scale, dbias;
  };
  Output output(int64_t r, int64_t c, DType dtype, Scaling scaling) {
    const ScaleShape by_row = scale_shape(scaling, r, c), by_column = scale_shape(scaling, c, r);
    return {empty(dtype, {r, c}), empty(dtype, {c, r}),
            empty(DType::f32, {by_row.rows, by_row.columns}),
            empty(DType::f32, {by_column.rows, by_column.columns}), random(DType::f32, {c})};
  }
  /// The pass into both layouts, or one of them.
  QuantizeInBlocks pass_of(const Output& out, int side, Scaling scaling, const Tensor& x,
                           bool rows = true, bool columns = true) {
    return {.rows = rows ? out.rows[side] : Tensor(),
            .columns = columns ? out.columns[side] : Tensor(),
            .row_scale = rows ? out.row_scale[side] : Tensor(),
            .column_scale = columns ? out.column_scale[side] : Tensor(),
            .dbias = {},
            .x = x,
            .pre_activation = {},
            .scaling = scaling};
  }
  std::vector<uint8_t> bytes(const Twin& t, int side) {
    std::vector<uint8_t> out(static_cast<size_t>(t[side].bytes()));
    sides[side]->download(out.data(), t[side]);
    sides[side]->synchronize();
    return out;
  }
  void expect_same(const Output& out, const std::string& at) {
    EXPECT_TRUE(bytes(out.rows, 0) == bytes(out.rows, 1)) << "rows " << at;
    EXPECT_TRUE(bytes(out.columns, 0) == bytes(out.columns, 1)) << "columns " << at;
    EXPECT_TRUE(bytes(out.row_scale, 0) == bytes(out.row_scale, 1)) << "row scales " << at;
    EXPECT_TRUE(bytes(out.column_scale, 0) == bytes(out.column_scale, 1)) << "column scales " << at;
  }
  /// The values that the bytes stand for differ by two roundings at most: an activation's last bit
  /// may change a byte, and with a scale that is not a power of two the scale.
  void expect_near(const Twin& codes, const Twin& scale, Scaling scaling, const std::string& at) {
    std::vector<double> value[2];
    const int64_t rows = codes[0].shape[0], depth = codes[0].shape[1];
    const double step = codes[0].dtype == DType::e4m3 ? 0x1p-3 : 0x1p-2;
    for (int side = 0; side < 2; ++side) {
      const std::vector<uint8_t> code = bytes(codes, side), raw = bytes(scale, side);
      const auto* scales = reinterpret_cast<const float*>(raw.data());
      const int64_t columns = scale[0].shape[1];
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t k = 0; k < depth; ++k) {
          const int64_t s = scaling == Scaling::row ? i
                            : scaling == Scaling::row_block
                                ? k / kScaleBlock * columns + i
                                : i / kScaleBlock * columns + k / kScaleBlock;
          const uint8_t c = code[static_cast<size_t>(i * depth + k)];
          value[side].push_back(double{codes[0].dtype == DType::e4m3
                                           ? fp8_to_float<DType::e4m3>(c)
                                           : fp8_to_float<DType::e5m2>(c)} *
                                double{scales[s]});
        }
    }
    int64_t far = 0;
    for (size_t i = 0; i < value[0].size(); ++i)
      far += std::abs(value[0][i] - value[1][i]) > step * std::abs(value[0][i]) + 1e-4;
    EXPECT_EQ(far, 0) << at;
  }
};
ALL_DTYPES(CudaFp8Blocks);

TEST_P(CudaFp8Blocks, SameBytesAndScales) {
  for (const auto& [r, c] : {std::pair<int64_t, int64_t>{16, 16}, {48, 80}, {256, 384}, {400, 144}})
    for (const Scaling scaling : kAll)
      for (const DType dtype : {DType::e4m3, DType::e5m2})
        for (const bool power_of_two : {true, false}) {
          const Twin x = random(model(), {r, c}, 3);
          const Output out = output(r, c, dtype, scaling);
          both([&](int i) {
            QuantizeInBlocks pass = pass_of(out, i, scaling, x[i]);
            pass.dbias = out.dbias[i];
            pass.margin = power_of_two ? 0 : 1;
            pass.power_of_two = power_of_two;
            return pass;
          });
          const std::string at = std::to_string(r) + " x " + std::to_string(c) + ", " +
                                 std::to_string(int(scaling)) + ", " + name(dtype);
          expect_same(out, at);
          expect_close("dbias " + at, out.dbias, 0, 0, static_cast<double>(r));
        }
}

TEST_P(CudaFp8Blocks, OneLayoutAlone) {
  const Twin x = random(model(), {144, 272}, 2);
  for (const Scaling scaling : kAll) {
    const Output out = output(144, 272, DType::e4m3, scaling);
    both([&](int i) { return pass_of(out, i, scaling, x[i], true, false); });
    both([&](int i) { return pass_of(out, i, scaling, x[i], false, true); });
    expect_same(out, std::to_string(int(scaling)));
  }
}

TEST_P(CudaFp8Blocks, UnusualNumbers) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const bool broken : {false, true}) {
    std::vector<float> values(144 * 160, 0.25f);
    for (int64_t j = 0; j < 160; ++j) {
      values[static_cast<size_t>(2 * 160 + j)] = 0;                               // zeros
      values[static_cast<size_t>(3 * 160 + j)] = 1e-40f * static_cast<float>(j);  // denormals
      values[static_cast<size_t>(4 * 160 + j)] = 1e-38f * static_cast<float>(j);
      values[static_cast<size_t>(5 * 160 + j)] = static_cast<float>(j) * 400 - 32000;
    }
    values[7 * 160 + 9] = 1e6f;  // an outlier; infinite in fp16
    if (broken) values[5] = inf, values[20 * 160 + 130] = -inf, values[140 * 160] = std::nanf("");
    const Twin x = floats(model(), {144, 160}, values);
    for (const Scaling scaling : kAll)
      for (const DType dtype : {DType::e4m3, DType::e5m2}) {
        const Output out = output(144, 160, dtype, scaling);
        both([&](int i) { return pass_of(out, i, scaling, x[i]); });
        expect_same(out, std::to_string(int(scaling)) + (broken ? ", broken" : ""));
        if (broken) {
          EXPECT_EQ(bytes(out.rows, 1)[20 * 160 + 130], 0x7f);
        }
      }
  }
}

TEST_P(CudaFp8Blocks, ActivationsAndSlopes) {
  const int64_t r = 160, c = 224;
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::swiglu})
    for (const Scaling scaling : kAll) {
      const bool gated = activation == Activation::swiglu;
      const std::string at = std::to_string(int(activation)) + ", " + std::to_string(int(scaling));
      const Twin x = random(model(), {r, gated ? 2 * c : c});
      const Output forward = output(r, c, DType::e4m3, scaling);
      both([&](int i) {
        QuantizeInBlocks pass = pass_of(forward, i, scaling, x[i]);
        pass.activation = activation;
        return pass;
      });
      expect_near(forward.rows, forward.row_scale, scaling, "activation, rows " + at);
      expect_near(forward.columns, forward.column_scale, scaling, "activation, columns " + at);
      const Twin dy = random(model(), {r, gated ? c / 2 : c}), pre = random(model(), {r, c});
      const Output backward = output(r, c, DType::e5m2, scaling);
      both([&](int i) {
        QuantizeInBlocks pass = pass_of(backward, i, scaling, dy[i]);
        pass.dbias = backward.dbias[i];
        pass.accumulate_bias = false;
        pass.pre_activation = pre[i];
        pass.activation = activation;
        return pass;
      });
      expect_near(backward.rows, backward.row_scale, scaling, "slope, rows " + at);
      expect_near(backward.columns, backward.column_scale, scaling, "slope, columns " + at);
      expect_close("slope, dbias " + at, backward.dbias, 0, 0.02, static_cast<double>(r) + 200);
    }
}

// As in fp8_test.cc: on each side the bits of a norm before the pass.
TEST_P(CudaFp8Blocks, ANormInTheSamePass) {
  for_all_norms([&](const NormCase& n, const std::string& what) {
    const int64_t r = n.x[0].rows(), c = n.x[0].columns();
    for (const Scaling scaling : kAll) {
      const Output before = output(r, c, DType::e4m3, scaling),
                   within = output(r, c, DType::e4m3, scaling);
      both([&](int i) { return pass_of(before, i, scaling, n.y[i]); });
      both([&](int i) {
        QuantizeInBlocks pass = pass_of(within, i, scaling, n.x[i]);
        pass.norm = n.applied(i);
        return pass;
      });
      const std::string at = what + ", " + std::to_string(int(scaling));
      for (int side = 0; side < 2; ++side) {
        const auto same = [&](const Twin& a, const Twin& b) {
          return bytes(a, side) == bytes(b, side);
        };
        EXPECT_TRUE(same(within.rows, before.rows)) << at << " " << side;
        EXPECT_TRUE(same(within.columns, before.columns)) << at << " " << side;
        EXPECT_TRUE(same(within.row_scale, before.row_scale)) << at << " " << side;
        EXPECT_TRUE(same(within.column_scale, before.column_scale)) << at << " " << side;
      }
      expect_near(within.rows, within.row_scale, scaling, "rows, " + at);
      expect_near(within.columns, within.column_scale, scaling, "columns, " + at);
    }
  });
}

// Every pair of scalings that a linear's products have, and sizes whose last blocks are partial.
TEST_P(CudaFp8Blocks, Products) {
  if (model() == DType::f32) GTEST_SKIP() << "products give 16 bits, or fp32 gradients";
  if (tested_as().major == 8) GTEST_SKIP() << "needs Hopper";
  struct Pair {
    Scaling a, b;
  };
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{128, 256, 384},
                                {256, 384, 512},
                                {144, 1600, 208},
                                {64, 48, 32}})
    for (const Pair& pair : {Pair{Scaling::row, Scaling::row},
                             {Scaling::row_block, Scaling::square_block},
                             {Scaling::row_block, Scaling::row_block}})
      for (const bool gradient : {false, true})
        for (const bool fast : {false, true}) {
          if (fast && pair.a != Scaling::row) continue;
          const Twin x = random(model(), {m, k}), w = random(model(), {n, k});
          const Output a = output(m, k, gradient ? DType::e5m2 : DType::e4m3, pair.a),
                       b = output(n, k, DType::e4m3, pair.b);
          both([&](int i) { return pass_of(a, i, pair.a, x[i], true, false); });
          both([&](int i) { return pass_of(b, i, pair.b, w[i], true, false); });
          const std::string at = std::to_string(m) + " x " + std::to_string(n) + " x " +
                                 std::to_string(k) + ", " + std::to_string(int(pair.a)) +
                                 std::to_string(int(pair.b)) + (fast ? ", fast" : "");
          // As in fp8_test.cc: tensor cores keep some 13 bits of the largest partial sum.
          const double terms = fast ? 16384 : 4096;
          const auto product = [&](int i, const Twin& y) {
            return Fp8Product{.y = y[i],
                              .a = a.rows[i],
                              .b = b.rows[i],
                              .a_scale = a.row_scale[i],
                              .b_scale = b.row_scale[i],
                              .bias = {},
                              .addend = {},
                              .fast_sums = fast,
                              .a_scaling = pair.a,
                              .b_scaling = pair.b};
          };
          const Twin y = empty(model(), {m, n}), bias = random(model(), {n}),
                     addend = random(model(), {m, n}), dw = random(DType::f32, {m, n});
          both([&](int i) {
            Fp8Product call = product(i, y);
            if (!gradient) call.bias = bias[i], call.addend = addend[i];
            return call;
          });
          expect_close("y " + at, y, 1.01, 0, terms + 16);
          both([&](int i) {
            Fp8Product call = product(i, dw);
            call.addend = dw[i];
            return call;
          });
          expect_close("dw " + at, dw, 1, 0, terms + 16);
        }
}

}  // namespace
