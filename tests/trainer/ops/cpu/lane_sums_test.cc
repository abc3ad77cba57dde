// Sums by lanes are those of gemm.h, bit for bit: at every level of this processor, for every
// shape, however columns are divided.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/cpu/lane_sums.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/trainer/ops/cpu/guarded.h"
#include "trainer/ops/number.h"

namespace {

using namespace ops::cpu;

/// a (m, k), b (k, n) in fp32 and bf16, c (m, n), with gaps after their rows.
struct Problem {
  int64_t m, n, k, gap;
  std::vector<float> a, wide, c;
  std::vector<uint16_t> narrow;

  Problem(int64_t m_, int64_t n_, int64_t k_, int64_t gap_, std::mt19937& random)
      : m(m_), n(n_), k(k_), gap(gap_) {
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& to, int64_t count) {
      to.resize(static_cast<size_t>(count));
      for (float& x : to) x = normal(random);
    };
    fill(a, m * (k + gap));
    fill(wide, k * (n + gap));
    fill(c, m * (n + gap));
    for (float& x : wide) {
      narrow.push_back(ops::float_to_bf16(x));
      x = ops::bf16_to_float(narrow.back());
    }
  }
  Product product(bool bf16) {
    return {.m = m,
            .n = n,
            .k = k,
            .a = {a.data(), k + gap},
            .b = {bf16 ? nullptr : wide.data(), n + gap},
            .c = c.data(),
            .c_row = n + gap,
            .b_bf16 = {bf16 ? narrow.data() : nullptr, n + gap}};
  }
};

/// The product by lanes, in strips of `width` columns.
void compute(const Product& p, GemmLevel level, int64_t width) {
  std::vector<std::byte> memory(static_cast<size_t>(LaneSums::bytes(p)), std::byte{0x7F});
  const LaneSums sums(p, memory.data(), level);
  for (int64_t first = 0; first < p.n; first += width)
    for (int64_t group = LaneSums::kGroups - 1; group >= 0; --group)
      sums.sum(group, first, std::min(width, p.n - first));
  for (int64_t first = 0; first < p.n; first += 100)
    sums.finish(first, std::min<int64_t>(100, p.n - first));
}

TEST(LaneSums, AreTheSumsOfGemm) {
  std::mt19937 random(1);
  const int64_t sizes[][2] = {{256, 64},      {257, 65},  {300, 79},  {271, 80},
                              {400, 63 + 64}, {256, 128}, {1000, 200}};
  for (const GemmLevel level : {GemmLevel::plain, GemmLevel::avx2, GemmLevel::avx512}) {
    if (level > best_gemm_level()) continue;
    for (const auto& [n, k] : sizes)
      for (int64_t m = 1; m <= 3; ++m)
        for (const bool bf16 : {false, true})
          for (const bool add : {false, true}) {
            Problem x(m, n, k, 5, random);
            Product p = x.product(bf16);
            p.add = add;
            p.alpha = add ? 0.7f : 1.0f;
            ASSERT_TRUE(LaneSums::takes(p));
            const std::vector<float> before = x.c;
            multiply(p, level);
            const std::vector<float> wanted = x.c;
            for (const int64_t width : {n, int64_t{128}, int64_t{96}}) {
              x.c = before;
              p.c = x.c.data();
              compute(p, level, width);
              ASSERT_EQ(std::memcmp(x.c.data(), wanted.data(), wanted.size() * 4), 0)
                  << name(level) << ": " << m << " x " << n << " x " << k << ", " << width;
            }
          }
  }
}

TEST(LaneSums, ReadAndWriteNothingBehindTheirMatrices) {
  std::mt19937 random(2);
  Problem x(2, 259, 83, 0, random);
  const Guarded a(std::as_bytes(std::span(x.a))), c(std::as_bytes(std::span(x.c)));
  const Guarded wide(std::as_bytes(std::span(x.wide))), narrow(std::as_bytes(std::span(x.narrow)));
  for (const bool bf16 : {false, true}) {
    Product p = x.product(bf16);
    multiply(p);
    p.a.data = a.as<float>();
    p.c = c.as<float>();
    if (bf16)
      p.b_bf16.data = narrow.as<uint16_t>();
    else
      p.b.data = wide.as<float>();
    const std::vector<std::byte> bytes(static_cast<size_t>(LaneSums::bytes(p)));
    const Guarded memory(bytes);
    const LaneSums sums(p, memory.as<std::byte>());
    for (int64_t group = 0; group < LaneSums::kGroups; ++group) sums.sum(group, 0, p.n);
    sums.finish(0, p.n);
    EXPECT_EQ(std::memcmp(p.c, x.c.data(), x.c.size() * 4), 0);
  }
}

TEST(LaneSums, TakeUpToThreeRowsOfWideMatrices) {
  std::mt19937 random(3);
  Problem x(3, 256, 64, 0, random);
  for (const bool bf16 : {false, true}) {
    const Product p = x.product(bf16);
    EXPECT_TRUE(LaneSums::takes(p));
    Product none = p, many = p, small = p, shallow = p, turned = p, other = p;
    none.m = 0;
    many.m = 4;
    small.n = 255;
    shallow.k = 63;
    turned.a = turned.a.transposed();
    other.b = other.b.transposed();
    other.b_bf16 = other.b_bf16.transposed();
    for (const Product& refused : {none, many, small, shallow, turned, other})
      EXPECT_FALSE(LaneSums::takes(refused));
  }
}

}  // namespace
