// Products in AMX's tiles against float64 sums and against the fp32 products of gemm.h. Skipped
// where the processor or the system has no tiles.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/amx_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include "tests/trainer/ops/cpu/guarded.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/number.h"

namespace {

using namespace ops::cpu;

/// a (m, k) in fp32, b (k, n) in bf16 by rows and by columns, c (m, n). Each has a gap after a row,
/// in which nothing may be read.
struct Problem {
  int64_t m, n, k, gap;
  std::vector<float> a, c;
  std::vector<uint16_t> rows, columns;

  Problem(int64_t m_, int64_t n_, int64_t k_, std::mt19937& random, int64_t gap_ = 3)
      : m(m_), n(n_), k(k_), gap(gap_) {
    std::normal_distribution<float> normal;
    a.assign(size_t(m * (k + gap)), NAN);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < k; ++j) a[size_t(i * (k + gap) + j)] = normal(random);
    c.assign(size_t(m * (n + gap)), 0.25f);
    rows.assign(size_t(k * (n + gap)), 0x7FC0);
    columns.assign(size_t(n * (k + gap)), 0x7FC0);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j)
        rows[size_t(i * (n + gap) + j)] = columns[size_t(j * (k + gap) + i)] =
            ops::float_to_bf16(normal(random));
  }
  float b(int64_t i, int64_t j) const {
    return ops::bf16_to_float(rows[size_t(i * (n + gap) + j)]);
  }
  Product product(bool by_columns, bool add) {
    const Bf16Matrix turned = Bf16Matrix{columns.data(), k + gap}.transposed();
    return {.m = m,
            .n = n,
            .k = k,
            .a = {a.data(), k + gap},
            .b = {},
            .c = c.data(),
            .c_row = n + gap,
            .add = add,
            .b_bf16 = by_columns ? turned : Bf16Matrix{rows.data(), n + gap}};
  }
};

/// Every element is handed over once, after it is computed.
void compute(CpuOps& ops, const Product& p) {
  std::vector<char> done(size_t(p.m * p.n));
  ops.multiply(p, [&](const Part& part) {
    for (int64_t i = part.row; i < part.row + part.rows; ++i)
      for (int64_t j = part.column; j < part.column + part.columns; ++j)
        ++done[size_t(i * p.n + j)];
  });
  EXPECT_EQ(done, std::vector<char>(done.size(), 1));
}

class AmxGemm : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_amx()) GTEST_SKIP() << "no AMX here";
  }
};

TEST_F(AmxGemm, EveryShapeAndOrder) {
  std::mt19937 random(1);
  CpuOps ops(2);
  const int64_t sizes[][3] = {{4, 1, 1},      {4, 7, 2},     {5, 33, 31},    {16, 32, 32},
                              {17, 31, 33},   {31, 70, 19},  {32, 128, 256}, {33, 129, 257},
                              {13, 160, 511}, {513, 40, 70}, {515, 5, 3},    {600, 257, 300},
                              {48, 16, 513},  {47, 300, 1}};
  for (const auto& [m, n, k] : sizes)
    for (const bool by_columns : {false, true})
      for (const bool add : {false, true}) {
        Problem x(m, n, k, random);
        const Product p = x.product(by_columns, add);
        ASSERT_TRUE(takes_amx(p));
        const std::vector<float> before = x.c;
        compute(ops, p);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < p.c_row; ++j) {
            const size_t at = size_t(i * p.c_row + j);
            if (j >= n) {
              ASSERT_EQ(x.c[at], before[at]) << "gap of row " << i;
              continue;
            }
            double sum = add ? double{before[at]} : 0.0, size = std::abs(sum);
            for (int64_t l = 0; l < k; ++l) {
              const double term = double{p.a.data[i * p.a.row + l]} * x.b(l, j);
              sum += term;
              size += std::abs(term);
            }
            // Three exact products each; a sum of two of them, and the sum of all, are rounded.
            const double tolerance = static_cast<double>(6 * k + 1) * 0x1p-24 * size;
            ASSERT_NEAR(x.c[at], sum, tolerance)
                << m << " x " << n << " x " << k << " at " << i << ", " << j;
          }
      }
}

// A number of 24 bits times a power of two is that number: what its three parts add up to.
TEST_F(AmxGemm, NoBitOfANumberIsLost) {
  std::mt19937 random(2);
  CpuOps ops(1);
  Problem x(500, 4, 1, random);
  const float powers[4] = {1.0f, -2.0f, 0x1p-20f, 0x1p60f};
  for (size_t j = 0; j < 4; ++j) x.columns[j * 4] = ops::float_to_bf16(powers[j]);
  compute(ops, x.product(true, false));
  for (int64_t i = 0; i < x.m; ++i)
    for (int64_t j = 0; j < 4; ++j)
      ASSERT_EQ(x.c[size_t(i * 7 + j)], x.a[size_t(i * 4)] * powers[j]) << i;
}

// A row's sums are the same alone, beside any others, in any part, on any number of threads, and
// for either order of b.
TEST_F(AmxGemm, NoBitDependsOnWhatIsBeside) {
  std::mt19937 random(3);
  for (const bool add : {false, true}) {
    Problem x(530, 300, 700, random), y = x;
    CpuOps one(1), three(3);
    compute(one, x.product(false, add));
    compute(three, y.product(true, add));
    ASSERT_EQ(std::memcmp(x.c.data(), y.c.data(), x.c.size() * sizeof(float)), 0);
    for (const Part& part : {Part{0, 4, 0, 300}, Part{520, 10, 0, 33}, Part{509, 5, 129, 171},
                             Part{100, 17, 290, 10}, Part{7, 519, 5, 1}}) {
      std::vector<float> c(y.c.size(), 0.25f);
      Product p = y.product(false, add);
      p.c = c.data();
      compute(three, part_of(p, part));
      for (int64_t i = part.row; i < part.row + part.rows; ++i)
        for (int64_t j = part.column; j < part.column + part.columns; ++j)
          ASSERT_EQ(c[size_t(i * p.c_row + j)], x.c[size_t(i * p.c_row + j)]) << i << ", " << j;
    }
  }
}

/// What AMX may make of the product a b, of which fp32 makes `wanted`.
void expect_product(float is, float wanted, float a, float b) {
  SCOPED_TRACE(testing::Message() << a << " times " << b << " gives " << is << ", not " << wanted);
  const bool small_b = std::fabs(b) < FLT_MIN;  // a zero: times an infinity it is NaN
  if (std::isinf(b) || std::isnan(wanted) || (std::isinf(a) && small_b)) {
    EXPECT_FALSE(std::isfinite(is));
    EXPECT_TRUE(std::isnan(is) || !std::isnan(wanted));
  } else if (std::isinf(wanted)) {
    EXPECT_EQ(is, wanted);
  } else {
    // Parts, operands and sums below 2^-126 are zeros.
    const double lost = double{FLT_MIN} * (3 * std::fabs(b) + std::fabs(a) + 3);
    EXPECT_NEAR(is, wanted, lost + std::fabs(wanted) * 0x1p-22);
  }
}

TEST_F(AmxGemm, ZerosInfinitiesNaNAndTheSmallest) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float signalling = std::bit_cast<float>(0x7F800001u);  // its upper half is an infinity
  const std::vector<float> left = {0.0f,     -0.0f,   kInf,
                                   -kInf,    NAN,     FLT_MAX,
                                   -FLT_MAX, FLT_MIN, std::nextafter(FLT_MIN, 1.0f),
                                   1e-40f,   1.1f,    signalling};
  const std::vector<float> right = {0.0f,  -0.0f, 1.0f,      -2.0f,   kInf,
                                    -kInf, NAN,   0x1p-130f, 0x1p100f};
  const int64_t m = int64_t(left.size()), n = int64_t(right.size());
  std::vector<uint16_t> b;
  for (const float x : right) b.push_back(ops::float_to_bf16(x));
  std::vector<float> is(size_t(m * n)), wanted = is;
  Product p{.m = m,
            .n = n,
            .k = 1,
            .a = {left.data(), 1},
            .b = {},
            .c = is.data(),
            .c_row = n,
            .b_bf16 = {b.data(), n}};
  CpuOps ops(1);
  compute(ops, p);
  p.c = wanted.data();
  multiply(p);
  for (size_t i = 0; i < left.size(); ++i)
    for (size_t j = 0; j < right.size(); ++j)
      expect_product(is[i * right.size() + j], wanted[i * right.size() + j], left[i], right[j]);
  const size_t one = 2, denormal = 9, smallest = 7;
  EXPECT_EQ(is[denormal * right.size() + one], 0.0f);  // fp32 gives 1e-40
  EXPECT_EQ(is[10 * right.size() + smallest], 0.0f);   // 1.1 times 2^-130
  EXPECT_EQ(is[5 * right.size() + one], FLT_MAX);      // no part is an infinity
  EXPECT_EQ(is[2 * right.size() + one], kInf);
}

// The last matrix of a file may end with its last page.
TEST_F(AmxGemm, ReadsAndWritesNothingBehindItsMatrices) {
  std::mt19937 random(6);
  CpuOps ops(1);
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{5, 33, 31},
                                {17, 7, 65},
                                {4, 150, 257},
                                {33, 32, 1}}) {
    Problem x(m, n, k, random, 0);
    const Guarded a(std::as_bytes(std::span(x.a))), c(std::as_bytes(std::span(x.c)));
    const Guarded rows(std::as_bytes(std::span(x.rows))),
        columns(std::as_bytes(std::span(x.columns)));
    Product p = x.product(false, true);
    p.a.data = a.as<float>();
    p.c = c.as<float>();
    p.b_bf16.data = rows.as<uint16_t>();
    compute(ops, p);
    p.b_bf16 = Bf16Matrix{columns.as<uint16_t>(), k}.transposed();
    compute(ops, p);
  }
}

// One bad number spoils its row, and no other.
TEST_F(AmxGemm, ANaNStaysInItsRow) {
  std::mt19937 random(4);
  Problem x(40, 50, 70, random);
  x.a[size_t(21 * 73 + 69)] = NAN;
  CpuOps ops(1);
  compute(ops, x.product(false, false));
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t j = 0; j < 50; ++j)
      ASSERT_EQ(std::isnan(x.c[size_t(i * 53 + j)]), i == 21) << i << ", " << j;
}

TEST_F(AmxGemm, TakesFourRowsAndBf16OnTheRight) {
  std::mt19937 random(5);
  Problem x(4, 8, 16, random);
  Product p = x.product(false, false);
  EXPECT_TRUE(takes_amx(p));
  Product few = p, wide = p, scaled = p, turned = p, empty = p;
  few.m = 3;
  wide.b_bf16 = {};
  scaled.alpha = 2;
  turned.a = Matrix{x.a.data(), 4}.transposed();
  empty.k = 0;
  for (const Product& other : {few, wide, scaled, turned, empty}) EXPECT_FALSE(takes_amx(other));
}

}  // namespace
