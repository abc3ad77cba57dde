// Row loops of the CPU backend against float64, within the errors that rows.h states.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace {

using namespace ops::cpu;

/// Evenly spaced numbers; their count is no multiple of a vector.
std::vector<float> between(float low, float high) {
  std::vector<float> x(100'003);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = low + (high - low) * static_cast<float>(i) / static_cast<float>(x.size() - 1);
  return x;
}
int64_t size(const std::vector<float>& x) { return static_cast<int64_t>(x.size()); }

TEST(Rows, ExponentialIsWithinTwoUlp) {
  const std::vector<float> x = between(-87, 88);
  std::vector<float> y(x.size());
  row_exp_sum(y.data(), x.data(), size(x), 0);
  for (size_t i = 0; i < x.size(); ++i) {
    const double wanted = std::exp(double{x[i]});
    ASSERT_NEAR(y[i], wanted, 2 * 0x1p-23 * wanted) << x[i];
  }
}

TEST(Rows, GeluAndItsSlope) {
  const double root = std::sqrt(2 / std::numbers::pi);
  for (const std::vector<float>& x : {between(-6, 6), between(-60, 60)}) {
    std::vector<float> y(x.size()), d(x.size(), 1.0f);
    row_gelu_tanh(y.data(), x.data(), size(x));
    row_gelu_tanh_backward(d.data(), x.data(), size(x));
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], t = std::tanh(root * (v + 0.044715 * v * v * v));
      ASSERT_NEAR(y[i], 0.5 * v * (1 + t), 2 * 0x1p-23 * std::abs(v)) << v;
      const double slope =
          0.5 * (1 + t) + 0.5 * v * (1 - t * t) * root * (1 + 3 * 0.044715 * v * v);
      ASSERT_NEAR(d[i], slope, 4e-6) << v;
    }
  }
}

TEST(Rows, NotANumberAndTheFarthest) {
  float x[] = {NAN, INFINITY, -3e38f, 3e38f, 0.0f, -0.0f, -100.0f};
  float y[7];
  row_gelu_tanh(y, x, 7);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], INFINITY);
  EXPECT_EQ(y[3], 3e38f);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_NEAR(y[6], 0, 1e-30);
  row_exp_sum(y, x, 1, 0);
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST(Rows, SumsAreThoseOfDoubles) {
  const std::vector<float> x = between(-1, 3);
  double sum = 0, square = 0;
  for (const float v : x) {
    sum += v;
    square += (double{v} - 1) * (double{v} - 1);
  }
  EXPECT_NEAR(row_sum(x.data(), size(x)), sum, 1e-9 * sum);
  EXPECT_NEAR(row_sum_of_squares(x.data(), size(x), 1), square, 1e-9 * square);
}

}  // namespace
