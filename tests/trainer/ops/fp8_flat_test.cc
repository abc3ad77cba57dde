// Parts of weights as FP8 on the CPU: bytes, largest values and scales are those that fp8.h's
// operations give the whole matrix; and the transpose of bytes.
//
// SPDX-License-Identifier: MIT
#include "trainer/ops/fp8_flat.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tests/trainer/ops/numeric.h"
#include "trainer/ops/cpu/cpu_ops.h"

namespace {

using namespace ops;
using namespace numeric;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr DType kFormats[] = {DType::e4m3, DType::e5m2};
constexpr std::pair<int64_t, int64_t> kShapes[] = {{16, 16}, {48, 80}, {128, 256}, {144, 272}};

class Fp8Flat : public testing::Test {
 protected:
  /// Random values with outliers, zeros, and numbers that are not finite.
  Tensor matrix(int64_t r, int64_t c, bool finite) {
    Values v = random_values(static_cast<size_t>(r * c), 7, 2);
    v[3] = -1e6;
    v[17] = v[18] = 0;
    if (!finite) v[v.size() - 1] = kInf, v[20] = std::nanf("");
    return heap.floats({r, c}, v);
  }
  /// Ends of parts: some are one granule long, most begin and end within a row.
  static std::vector<int64_t> ends(int64_t n) {
    std::vector<int64_t> out;
    for (int64_t at = 0, length = 1; at < n; length = length % 5 + 1)
      out.push_back(at = std::min(n, at + length * kFlatGranule));
    return out;
  }
  /// body(first, count) for each part of n elements.
  template <class Body>
  static void for_parts(int64_t n, const Body& body) {
    int64_t begin = 0;
    for (const int64_t end : ends(n)) {
      body(begin, end - begin);
      begin = end;
    }
  }
  static void expect_same(const Tensor& a, const Tensor& b) {
    EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())), 0) << a.describe();
  }
  Heap heap;
  cpu::CpuOps ops{2};
};

TEST_F(Fp8Flat, PartsHaveTheBytesOfTheWhole) {
  for (const auto& [r, c] : kShapes)
    for (const DType format : kFormats)
      for (const bool finite : {true, false}) {
        const Tensor x = matrix(r, c, finite), scale = heap.floats({4}, {1 / 3.25, 3.25, 0, 0});
        const Tensor whole = heap.make(format, {r, c}), parts = heap.make(format, {r, c});
        const Tensor amax = heap.floats({1}, {0.5}), of_parts = heap.floats({1}, {0.5});
        ops.run(Quantize{.rows = whole,
                         .columns = {},
                         .scale = scale,
                         .amax = amax,
                         .dbias = {},
                         .x = x,
                         .pre_activation = {}});
        for_parts(r * c, [&](int64_t first, int64_t count) {
          ops.run(QuantizeFlat{.out = parts.flat().slice(first, count),
                               .scale = scale,
                               .amax = of_parts,
                               .x = x.flat().slice(first, count)});
        });
        expect_same(parts, whole);
        expect_same(of_parts, amax);
      }
}

TEST_F(Fp8Flat, PartsInBlocksHaveTheBytesAndScalesOfTheWhole) {
  for (const auto& [r, c] : kShapes)
    for (const DType format : kFormats)
      for (const bool finite : {true, false}) {
        const Tensor x = matrix(r, c, finite);
        const auto scales = [&](int64_t rows, int64_t depth) {
          const ScaleShape shape = scale_shape(Scaling::square_block, rows, depth);
          return heap.empty({shape.rows, shape.columns});
        };
        const QuantizeInBlocks whole{.rows = heap.make(format, {r, c}),
                                     .columns = heap.make(format, {c, r}),
                                     .row_scale = scales(r, c),
                                     .column_scale = scales(c, r),
                                     .dbias = {},
                                     .x = x,
                                     .pre_activation = {},
                                     .scaling = Scaling::square_block,
                                     .margin = finite ? 0 : 2,
                                     .power_of_two = finite};
        ops.run(whole);
        const Tensor amax =
            heap.floats({scale_blocks(r), scale_blocks(c)},
                        Values(static_cast<size_t>(scale_blocks(r) * scale_blocks(c))));
        for_parts(r * c, [&](int64_t first, int64_t count) {
          ops.run(AmaxOfBlocks{.amax = amax,
                               .x = x.flat().slice(first, count),
                               .place = {.first = first, .rows = r, .columns = c}});
        });
        const Tensor bytes = heap.make(format, {r, c}), columns = heap.make(format, {c, r});
        for_parts(r * c, [&](int64_t first, int64_t count) {
          ops.run(QuantizeFlatInBlocks{.out = bytes.flat().slice(first, count),
                                       .amax = amax,
                                       .x = x.flat().slice(first, count),
                                       .place = {.first = first, .rows = r, .columns = c},
                                       .margin = whole.margin,
                                       .power_of_two = whole.power_of_two});
        });
        const ScalesOfBlocks found{.row_scale = scales(r, c),
                                   .column_scale = scales(c, r),
                                   .amax = amax,
                                   .dtype = format,
                                   .margin = whole.margin,
                                   .power_of_two = whole.power_of_two};
        ops.run(found);
        ops.run(TransposeFp8{.columns = columns, .rows = bytes});
        expect_same(bytes, whole.rows);
        expect_same(columns, whole.columns);
        expect_same(found.row_scale, whole.row_scale);
        expect_same(found.column_scale, whole.column_scale);
      }
}

TEST_F(Fp8Flat, PlacesThatCannotBeAreRefused) {
  const Tensor x = heap.floats({256}, Values(256, 1)), amax = heap.floats({1, 1}, {0});
  const auto refused = [&](const FlatPlace& place) {
    EXPECT_THROW(ops.run(AmaxOfBlocks{.amax = amax, .x = x, .place = place}), ShapeError);
  };
  EXPECT_NO_THROW(ops.run(
      AmaxOfBlocks{.amax = amax, .x = x, .place = {.first = 0, .rows = 32, .columns = 16}}));
  refused({.first = 64, .rows = 32, .columns = 16});
  refused({.first = 384, .rows = 32, .columns = 16});
  refused({.first = 0, .rows = 64, .columns = 8});
  refused({.first = 0, .rows = 144, .columns = 16});
  EXPECT_THROW(ops.run(QuantizeFlat{.out = {}, .scale = {}, .amax = {}, .x = x}), ShapeError);
}

}  // namespace
