// SPDX-License-Identifier: MIT
// Tensors on their way from one format to another: parts and wholes, the orders of q, k and v,
// 16-bit formats, and Megatron's names. Whole models: convert_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "convert/canonical.h"
#include "convert/float_formats.h"
#include "convert/megatron_names.h"
#include "convert/tensor_source.h"
#include "tests/convert/outcomes.h"

namespace convert {
namespace {

using ::testing::HasSubstr;

TensorSource counting(int64_t rows, int64_t columns) {
  TensorSource source{"F32", {rows, columns}, {}, "counting"};
  source.read_rows = [columns](int64_t first, int64_t count, std::byte* out) {
    std::vector<float> v(static_cast<size_t>(count * columns));
    std::iota(v.begin(), v.end(), static_cast<float>(first * columns));
    std::memcpy(out, v.data(), v.size() * 4);
  };
  return source;
}

std::vector<float> floats(const TensorSource& source) {
  return to_floats(source.dtype, source.load().data(), source.elements());
}

TEST(QkvOrders, RowsGoWhereThePageSays) {
  using V = std::vector<float>;
  const QkvShape shape{2, 2, 2};  // two heads of two
  const auto rows = [&](QkvOrder order) {
    V all;
    for (const TensorSource& part : split_qkv(counting(12, 1), shape, order))
      for (float x : floats(part)) all.push_back(x);
    return all;
  };
  EXPECT_EQ(rows(QkvOrder::stacked), (V{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(rows(QkvOrder::split_last), (V{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
  EXPECT_EQ(rows(QkvOrder::grouped), (V{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
  const QkvShape grouped{4, 2, 1};  // q0 q1 k0 v0 q2 q3 k1 v1
  const auto grouped_rows = [&](const QkvShape& heads, QkvOrder order) {
    V all;
    for (const TensorSource& part : split_qkv(counting(heads.rows(), 1), heads, order))
      for (float x : floats(part)) all.push_back(x);
    return all;
  };
  EXPECT_EQ(grouped_rows(grouped, QkvOrder::grouped), (V{0, 1, 4, 5, 2, 6, 3, 7}));
  EXPECT_EQ(grouped_rows(grouped, QkvOrder::neox_stacked), (V{0, 1, 2, 3, 4, 5, 6, 7}));
  // q0 q0 k0 v0 q1 q1 k0 v0 q2 q2 k1 v1 q3 q3 k1 v1
  EXPECT_EQ(grouped_rows({4, 2, 2}, QkvOrder::neox_by_head),
            (V{0, 1, 4, 5, 8, 9, 12, 13, 2, 6, 10, 14, 3, 7, 11, 15}));
  EXPECT_THAT(error_of([&] { split_qkv(counting(8, 1), grouped, QkvOrder::stacked); }),
              HasSubstr("before version 2"));
  EXPECT_THAT(error_of([&] {
                split_qkv(counting(20, 1), {3, 1, 4}, QkvOrder::neox_by_head);
              }),
              HasSubstr("counting: 4 rows of keys do not divide by 3 heads"));
}

TEST(QkvOrders, JoinUndoesSplit) {
  for (const QkvShape shape : {QkvShape{4, 4, 3}, QkvShape{6, 2, 4}, QkvShape{3, 1, 2}}) {
    const TensorSource fused = counting(shape.rows(), 5);
    const std::vector<TensorSource> parts = split_qkv(fused, shape, QkvOrder::grouped);
    EXPECT_EQ(join_qkv(parts[0], parts[1], parts[2], shape).load(), fused.load());
  }
}

TEST(TensorSources, PartsAndWholes) {
  const TensorSource m = counting(70, 130);
  EXPECT_EQ(transpose(transpose(m)).load(), m.load());
  EXPECT_EQ(floats(transpose(counting(2, 3))), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(join_rows({slice_rows(m, 0, 1), slice_rows(m, 1, 68), slice_rows(m, 69, 1)}).load(),
            m.load());
  std::vector<std::byte> middle(static_cast<size_t>(3 * m.row_bytes()));
  join_rows({slice_rows(m, 0, 20), slice_rows(m, 20, 50)}).read_rows(19, 3, middle.data());
  EXPECT_EQ(middle, slice_rows(m, 19, 3).load());
  EXPECT_EQ(floats(join_columns({counting(2, 1), counting(2, 2)})),
            (std::vector<float>{0, 0, 1, 1, 2, 3}));
  EXPECT_THAT(error_of([&] { slice_rows(m, 69, 2); }), HasSubstr("do not exist"));
  EXPECT_THAT(error_of([&] { join_rows({m, counting(1, 2)}); }), HasSubstr("does not fit under"));
  EXPECT_THAT(error_of([&] {
                join_rows({convert_dtype(slice_rows(m, 0, 1), "BF16"), slice_rows(m, 1, 69)});
              }),
              HasSubstr("is F32, but "));
  EXPECT_THAT(error_of([&] { convert_dtype(zeros("I64", {2}), "F32"); }),
              HasSubstr("not converted"));
}

// Every 16-bit pattern through fp32 and back, and rounding to nearest even between neighbours.
TEST(TensorSources, HalfFormats) {
  for (const char* dtype : {"F16", "BF16"}) {
    TensorSource all{dtype, {65536}, {}, "all"};
    all.read_rows = [](int64_t first, int64_t count, std::byte* out) {
      for (int64_t i = 0; i < count; ++i) {
        const uint16_t bits = static_cast<uint16_t>(first + i);
        std::memcpy(out + 2 * i, &bits, 2);
      }
    };
    const TensorSource back = convert_dtype(convert_dtype(all, "F32"), dtype);
    const std::vector<std::byte> bytes = back.load();
    const std::vector<float> values = floats(all);
    for (size_t i = 0; i < 65536; ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, bytes.data() + 2 * i, 2);
      if (std::isnan(values[i])) continue;
      ASSERT_EQ(bits, i) << dtype;
    }
    for (uint32_t i = 0; i < 0x7b00; i += 37) {  // halves between i and i + 1 go to the even one
      const float low = values[i], high = values[i + 1];
      const float half = low + (high - low) / 2;
      TensorSource one{"F32",
                       {1},
                       [half](int64_t, int64_t, std::byte* out) { std::memcpy(out, &half, 4); },
                       "one"};
      uint16_t bits = 0;
      std::memcpy(&bits, convert_dtype(one, dtype).load().data(), 2);
      ASSERT_EQ(bits, (i % 2 == 0) ? i : i + 1) << dtype << " between " << low << " and " << high;
    }
  }
}

TEST(MegatronNames, UnknownOnesAreRefused) {
  EXPECT_EQ(core_name("language_model.transformer.layers.3.attention.dense.bias"),
            "decoder.layers.3.self_attention.linear_proj.bias");
  EXPECT_EQ(core_name("module.language_model.encoder.final_norm.weight"),
            "decoder.final_layernorm.weight");
  EXPECT_EQ(core_name("model.decoder.layers.10.mlp.linear_fc1.layer_norm_bias"),
            "decoder.layers.10.pre_mlp_layernorm.bias");
  EXPECT_EQ(core_name("decoder.layers.0.mlp.linear_fc1._extra_state"), std::nullopt);
  EXPECT_EQ(core_name("word_embeddings_for_head.weight"), std::nullopt);
  for (const char* name :
       {"decoder.layers.0.mlp.router.weight", "decoder.layers.x.mlp.linear_fc1.weight",
        "lm_head.dense.weight", "embedding.tokentype_embeddings.weight",
        "decoder.layers.0.mlp.linear_fc1.scale"})
    EXPECT_THAT(error_of([&] { core_name(name); }), HasSubstr("not one of a GPT model")) << name;
  for (const char* name : {"decoder.layers.3.self_attention.linear_qkv.weight",
                           "decoder.final_layernorm.bias", "embedding.word_embeddings.weight"}) {
    const LegacyName legacy = legacy_name(name);
    EXPECT_EQ(core_name(legacy.folder + "." + legacy.key), name);
  }
}

}  // namespace
}  // namespace convert
