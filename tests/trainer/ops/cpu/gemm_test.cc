// Matrix products of the CPU backend, at every level of this processor, against float64 sums.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "trainer/ops/number.h"

namespace {

using namespace ops::cpu;

std::vector<GemmLevel> levels() {
  std::vector<GemmLevel> all;
  for (const GemmLevel level : {GemmLevel::plain, GemmLevel::avx2, GemmLevel::avx512})
    if (level <= best_gemm_level()) all.push_back(level);
  return all;
}

/// A matrix whose rows, or with `columns` whose columns, are contiguous and a little apart.
struct Stored {
  std::vector<float> memory;
  Matrix matrix;
  Stored(int64_t rows, int64_t columns, bool by_columns, std::mt19937& random) {
    constexpr int64_t kGap = 3;
    const int64_t lines = by_columns ? columns : rows, length = by_columns ? rows : columns;
    memory.resize(static_cast<size_t>(lines * (length + kGap)));
    for (float& x : memory) x = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    matrix = {memory.data(), length + kGap};
    if (by_columns) matrix = matrix.transposed();
  }
};

float at(const Matrix& m, int64_t i, int64_t j) { return m.data[i * m.row + j * m.column]; }

/// c has the product, and the gaps between its rows are unchanged.
void expect_product(const Product& p, const std::vector<float>& before) {
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.c_row && i * p.c_row + j < static_cast<int64_t>(before.size()); ++j) {
      const float was = before[static_cast<size_t>(i * p.c_row + j)], is = p.c[i * p.c_row + j];
      if (j >= p.n) {
        ASSERT_EQ(is, was) << "gap of row " << i;
        continue;
      }
      double sum = 0, size = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const double term = double{at(p.a, i, k)} * at(p.b, k, j);
        sum += term;
        size += std::abs(term);
      }
      const double wanted = double{p.alpha} * sum + (p.add ? double{was} : 0.0);
      // Each of k + 2 roundings is at most half an ulp of a partial sum.
      const double tolerance =
          static_cast<double>(p.k + 2) * 0x1p-24 * (std::abs(double{p.alpha}) * size + 1.0);
      ASSERT_NEAR(is, wanted, tolerance)
          << p.m << " x " << p.n << " x " << p.k << " at " << i << ", " << j;
    }
  }
}

TEST(Gemm, EveryShapeOrderAndLevel) {
  std::mt19937 random(7);
  const int64_t sizes[][3] = {{1, 1, 1},      {12, 32, 256}, {13, 33, 257}, {11, 31, 255},
                              {5, 70, 19},    {64, 16, 40},  {385, 40, 3},  {390, 9, 300},
                              {24, 129, 513}, {6, 8, 64},    {2, 100, 1},   {1, 7, 70},
                              {3, 10, 33},    {1, 64, 300}};
  for (const GemmLevel level : levels())
    for (const auto& [m, n, k] : sizes)
      for (int order = 0; order < 8; ++order) {
        const Stored a(m, k, (order & 1) != 0, random), b(k, n, (order & 2) != 0, random);
        std::vector<float> c(static_cast<size_t>(m * (n + 5)), 0.25f);
        const std::vector<float> before = c;
        const Product p{.m = m,
                        .n = n,
                        .k = k,
                        .a = a.matrix,
                        .b = b.matrix,
                        .c = c.data(),
                        .c_row = n + 5,
                        .alpha = (order & 4) != 0 ? 0.375f : 1.0f,
                        .add = (order & 4) != 0};
        multiply(p, level);
        SCOPED_TRACE(name(level));
        ASSERT_NO_FATAL_FAILURE(expect_product(p, before));
      }
}

// bf16 on the right is widened without a rounding, and summed in the same order, also where up to
// three rows are no whole vectors.
TEST(Gemm, Bf16GivesTheBitsOfItsNumbersInFp32) {
  std::mt19937 random(9);
  const int64_t sizes[][3] = {{1, 1, 16},     {1, 7, 64},    {2, 100, 32}, {3, 10, 304},
                              {4, 33, 70},    {13, 33, 257}, {40, 70, 19}, {12, 64, 256},
                              {1, 513, 1600}, {1, 33, 70},   {2, 65, 257}, {3, 130, 1603},
                              {1, 40, 1},     {2, 9, 15},    {3, 6, 17}};
  for (const GemmLevel level : levels())
    for (const auto& [m, n, k] : sizes)
      for (const bool by_columns : {false, true}) {
        const Stored a(m, k, false, random);
        Stored b(k, n, by_columns, random);
        std::vector<uint16_t> narrow(b.memory.size() + 1);
        uint16_t* unaligned = narrow.data() + 1;
        for (size_t i = 0; i < b.memory.size(); ++i) {
          unaligned[i] = ops::float_to_bf16(b.memory[i]);
          b.memory[i] = ops::bf16_to_float(unaligned[i]);
        }
        b.matrix.data = b.memory.data();
        std::vector<float> wide_c(static_cast<size_t>(m * n), 0.5f), narrow_c = wide_c;
        Product p{.m = m,
                  .n = n,
                  .k = k,
                  .a = a.matrix,
                  .b = b.matrix,
                  .c = wide_c.data(),
                  .c_row = n,
                  .alpha = 0.7f,
                  .add = true};
        multiply(p, level);
        p.c = narrow_c.data();
        p.b = {};
        p.b_bf16 = {unaligned, b.matrix.row, b.matrix.column};
        const Parts cut(m, n);
        for (int64_t i = 0; i < cut.count(); ++i) multiply(part_of(p, cut.at(i)), level);
        ASSERT_EQ(std::memcmp(wide_c.data(), narrow_c.data(), wide_c.size() * sizeof(float)), 0)
            << name(level) << " " << m << " x " << n << " x " << k << " " << by_columns;
      }
}

// A matrix may lie in a file by rows or by columns: no score may depend on it.
TEST(Gemm, NoBitDependsOnTheOrderOfB) {
  std::mt19937 random(10);
  const int64_t sizes[][3] = {{1, 1, 1},     {1, 7, 64},    {2, 100, 32}, {3, 10, 304}, {4, 33, 70},
                              {1, 513, 600}, {2, 257, 257}, {3, 130, 63}, {1, 40, 15},  {2, 9, 17},
                              {3, 261, 100}, {13, 70, 300}, {1, 256, 33}, {3, 128, 48}};
  for (const GemmLevel level : levels())
    for (const auto& [m, n, k] : sizes)
      for (const bool add : {false, true}) {
        const Stored a(m, k, false, random), by_columns(k, n, true, random);
        std::vector<float> by_rows(static_cast<size_t>(k * (n + 2)));
        std::vector<uint16_t> narrow(by_rows.size());
        for (int64_t i = 0; i < k; ++i)
          for (int64_t j = 0; j < n; ++j) {
            const size_t to = static_cast<size_t>(i * (n + 2) + j);
            float& x = const_cast<float&>(
                by_columns.matrix.data[i * by_columns.matrix.row + j * by_columns.matrix.column]);
            narrow[to] = ops::float_to_bf16(x);
            by_rows[to] = x = ops::bf16_to_float(narrow[to]);
          }
        std::vector<float> wanted(static_cast<size_t>(m * (n + 3)), 0.5f), is = wanted,
                                                                           is_narrow = wanted;
        Product p{.m = m,
                  .n = n,
                  .k = k,
                  .a = a.matrix,
                  .b = by_columns.matrix,
                  .c = wanted.data(),
                  .c_row = n + 3,
                  .alpha = 0.7f,
                  .add = add};
        multiply(p, level);
        p.b = {by_rows.data(), n + 2};
        p.c = is.data();
        multiply(p, level);
        p.b = {};
        p.b_bf16 = {narrow.data(), n + 2};
        p.c = is_narrow.data();
        const Parts cut(m, n);
        for (int64_t i = 0; i < cut.count(); ++i) multiply(part_of(p, cut.at(i)), level);
        const size_t bytes = wanted.size() * sizeof(float);
        ASSERT_EQ(std::memcmp(is.data(), wanted.data(), bytes), 0)
            << name(level) << " " << m << " x " << n << " x " << k;
        ASSERT_EQ(std::memcmp(is_narrow.data(), wanted.data(), bytes), 0)
            << name(level) << " " << m << " x " << n << " x " << k << " in bf16";
      }
}

TEST(Gemm, PartsAreTheWholeBitForBit) {
  std::mt19937 random(8);
  // 14977 rows are 39 bands of 384 and one row.
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{800, 300},
                             {30, 1000},
                             {500, 4200},
                             {2, 5000},
                             {14977, 2},
                             {14979, 2},
                             {14980, 2}}) {
    const int64_t k = 300;
    const Stored a(m, k, false, random), b(k, n, true, random);
    std::vector<float> whole(static_cast<size_t>(m * n), 0.5f), parts = whole;
    Product p{.m = m,
              .n = n,
              .k = k,
              .a = a.matrix,
              .b = b.matrix,
              .c = whole.data(),
              .c_row = n,
              .alpha = 0.1f,
              .add = true};
    multiply(p);
    p.c = parts.data();
    const Parts cut(m, n);
    ASSERT_GT(cut.count(), 1);
    for (int64_t i = 0; i < cut.count(); ++i) multiply(part_of(p, cut.at(i)));
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0)
        << m << " x " << n;
  }
}

TEST(Gemm, ASumOfNothingIsZeroAndNoRowsAreNoWork) {
  EXPECT_EQ(Parts(0, 5).count(), 0);
  EXPECT_EQ(Parts(5, 0).count(), 0);
  const float a = NAN, b = NAN;  // not read.
  for (const GemmLevel level : levels())
    for (const bool add : {false, true}) {
      std::vector<float> c(4 * 5, 2.0f);
      Product p{.m = 4,
                .n = 5,
                .k = 0,
                .a = {&a, 1},
                .b = {&b, 5},
                .c = c.data(),
                .c_row = 5,
                .add = add};
      multiply(p, level);
      EXPECT_EQ(c, std::vector<float>(4 * 5, add ? 2.0f : 0.0f)) << name(level);
      for (const bool turned : {false, true}) {
        p.b = turned ? Matrix{&b, 1}.transposed() : Matrix{&b, 5};
        p.m = 2;
        multiply(p, level);
        p.m = 0;
        p.k = 1;
        multiply(p, level);
        p.k = 0;
      }
      EXPECT_EQ(c, std::vector<float>(4 * 5, add ? 2.0f : 0.0f)) << name(level);
    }
}

TEST(Gemm, NotANumberComesThrough) {
  for (const GemmLevel level : levels()) {
    std::vector<float> a(20, 1.0f), b(20, 0.0f), c(4, 0.0f);
    a[3] = INFINITY;  // times 0
    multiply({.m = 2,
              .n = 2,
              .k = 10,
              .a = {a.data(), 10},
              .b = {b.data(), 2},
              .c = c.data(),
              .c_row = 2},
             level);
    EXPECT_TRUE(std::isnan(c[0]) && std::isnan(c[1])) << name(level);
    EXPECT_EQ(c[2], 0.0f) << name(level);
  }
}

}  // namespace
