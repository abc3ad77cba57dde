// Parts of weights as FP8 on the GPU against the CPU: the same bits.
// SPDX-License-Identifier: MIT
#include "trainer/ops/fp8_flat.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "tests/trainer/ops/cuda/pair.h"

namespace {

using namespace pair;

class CudaFp8Flat : public PairTest {
 protected:
  void expect_same(const char* what, const Twin& t) {
    EXPECT_EQ(bytes(t[0]), bytes(t[1])) << what << " " << t[1].describe();
  }
  Twin zeros(std::initializer_list<int64_t> shape) {
    const int64_t n = Tensor(nullptr, DType::f32, Device::cpu, shape).elements();
    return floats(DType::f32, shape, std::vector<float>(static_cast<size_t>(n), 0.0f));
  }
  Twin matrix(int64_t r, int64_t c, bool finite) {
    std::vector<float> v(static_cast<size_t>(r * c));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<float>(static_cast<int>(i * 7919 % 1009) - 504) / 97.0f;
    v[3] = -6e4f;
    v[17] = 0;
    if (!finite) {
      v.back() = std::numeric_limits<float>::infinity();
      v[20] = std::nanf("");
    }
    return floats(model(), {r, c}, v);
  }
};
ALL_DTYPES(CudaFp8Flat);

TEST_P(CudaFp8Flat, PartsAndTransposes) {
  for (const auto& [r, c] : {std::pair<int64_t, int64_t>{16, 16}, {48, 80}, {400, 272}}) {
    for (const bool finite : {true, false}) {
      const int64_t n = r * c, blocks_down = scale_blocks(r), blocks_across = scale_blocks(c);
      const Twin x = matrix(r, c, finite), amax = zeros({1});
      const Twin scale = floats(DType::f32, {4}, {1 / 3.25f, 3.25f, 0, 0});
      const Twin rows = empty(DType::e4m3, {r, c}), in_blocks = empty(DType::e4m3, {r, c});
      const Twin of_blocks = zeros({blocks_down, blocks_across});
      const auto for_parts = [&](const auto& body) {
        for (int64_t at = 0, length = 3; at < n;
             at += length * kFlatGranule, length = length % 7 + 1)
          body(at, std::min(n - at, length * kFlatGranule));
      };
      for_parts([&](int64_t at, int64_t count) {
        both([&](int i) {
          return QuantizeFlat{.out = rows[i].flat().slice(at, count),
                              .scale = scale[i],
                              .amax = amax[i],
                              .x = x[i].flat().slice(at, count)};
        });
        both([&](int i) {
          return AmaxOfBlocks{.amax = of_blocks[i],
                              .x = x[i].flat().slice(at, count),
                              .place = {.first = at, .rows = r, .columns = c}};
        });
      });
      for_parts([&](int64_t at, int64_t count) {
        both([&](int i) {
          return QuantizeFlatInBlocks{.out = in_blocks[i].flat().slice(at, count),
                                      .amax = of_blocks[i],
                                      .x = x[i].flat().slice(at, count),
                                      .place = {.first = at, .rows = r, .columns = c},
                                      .margin = 1,
                                      .power_of_two = finite};
        });
      });
      const Twin row_scale = empty(DType::f32, {blocks_down, (blocks_across + 3) / 4 * 4});
      const Twin column_scale = empty(DType::f32, {blocks_across, (blocks_down + 3) / 4 * 4});
      both([&](int i) {
        return ScalesOfBlocks{.row_scale = row_scale[i],
                              .column_scale = column_scale[i],
                              .amax = of_blocks[i],
                              .margin = 1,
                              .power_of_two = finite};
      });
      const Twin columns = empty(DType::e4m3, {c, r});
      both([&](int i) { return TransposeFp8{.columns = columns[i], .rows = rows[i]}; });
      expect_same("rows", rows);
      expect_same("columns", columns);
      expect_same("in blocks", in_blocks);
      expect_same("row scale", row_scale);
      expect_same("column scale", column_scale);
      if (!finite) continue;
      expect_same("amax", amax);
      expect_same("amax of blocks", of_blocks);
    }
  }
}

}  // namespace
