// CpuOps: embedding tables and rotary positions.
// Source: Su et al. 2021 (RoFormer), equation 34, for rotary.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/dropout.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 32;
/// A multiple of 8: a piece of columns begins at a Philox counter.
constexpr int64_t kColumnPiece = 64;

/// Row `index` of a table, or null when it lies outside.
const float* table_row(const Tensor& table, int64_t index) {
  if (!table || index < 0 || index >= table.shape[0]) return nullptr;
  return table.as<float>() + index * table.shape[1];
}

}  // namespace

void CpuOps::embedding_forward(const EmbeddingForward& a) {
  check(a, Device::cpu);
  const int64_t batch = a.x.shape[1], columns = a.x.shape[2];
  const int32_t* tokens = a.tokens.as<int32_t>();
  const DropoutMask mask(a.dropout);
  pieces(a.x.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* x = a.x.as<float>() + r * columns;
      const float* token = table_row(a.token_table, tokens[r] - a.first_token);
      const float* position =
          a.position_table ? table_row(a.position_table, a.positions.as<int32_t>()[r]) : nullptr;
      for (int64_t c = 0; c < columns; ++c)
        x[c] = (token != nullptr ? token[c] : 0.0f) + (position != nullptr ? position[c] : 0.0f);
      mask.apply(x, columns, r / batch, r % batch);
    }
  });
}

void CpuOps::embedding_backward(const EmbeddingBackward& a) {
  check(a, Device::cpu);
  const int64_t rows = a.dx.rows(), batch = a.dx.shape[1], columns = a.dx.shape[2];
  const int32_t* tokens = a.tokens.as<int32_t>();
  const int32_t* positions = a.dposition_table ? a.positions.as<int32_t>() : nullptr;
  const float* dx = a.dx.as<float>();
  const DropoutMask mask(a.dropout);
  // A thread owns some columns of both tables and adds all rows in order, so no two threads meet.
  pieces(columns, kColumnPiece, [&](int64_t begin, int64_t end) {
    const auto clear = [&](const Tensor& table, bool accumulate) {
      if (!table || accumulate) return;
      for (int64_t t = 0; t < table.shape[0]; ++t)
        std::fill(table.as<float>() + t * columns + begin, table.as<float>() + t * columns + end,
                  0.0f);
    };
    const auto add = [&](const Tensor& table, int64_t index, const float* values) {
      if (!table || index < 0 || index >= table.shape[0]) return;
      float* row = table.as<float>() + index * columns + begin;
      for (int64_t c = 0; c < end - begin; ++c) row[c] += values[c];
    };
    clear(a.dtoken_table, a.accumulate_tokens);
    clear(a.dposition_table, a.accumulate_positions);
    float values[kColumnPiece];
    for (int64_t r = 0; r < rows; ++r) {
      std::copy(dx + r * columns + begin, dx + r * columns + end, values);
      mask.apply(values, end - begin, r / batch, r % batch, -1, begin);
      add(a.dtoken_table, tokens[r] - a.first_token, values);
      if (positions != nullptr) add(a.dposition_table, positions[r], values);
    }
  });
}

void CpuOps::rotary(const Rotary& a) {
  check(a, Device::cpu);
  const int64_t columns = a.qkv.shape[2];
  const int64_t per_group = a.num_attention_heads / a.num_query_groups + 2;
  const int64_t channels = columns / (per_group * a.num_query_groups);
  const int64_t half = a.cosine.shape[1];
  const int32_t* positions = a.positions.as<int32_t>();
  pieces(a.qkv.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* cosine = a.cosine.as<float>() + positions[r] * half;
      const float* sine = a.sine.as<float>() + positions[r] * half;
      for (int64_t head = 0; head < per_group * a.num_query_groups; ++head) {
        if (head % per_group == per_group - 1) continue;  // v
        float* x = a.qkv.as<float>() + r * columns + head * channels;
        for (int64_t i = 0; i < half; ++i) {
          float& first = a.interleaved ? x[2 * i] : x[i];
          float& second = a.interleaved ? x[2 * i + 1] : x[i + half];
          const float s = a.inverse ? -sine[i] : sine[i];
          const float rotated = first * cosine[i] - second * s;
          second = second * cosine[i] + first * s;
          first = rotated;
        }
      }
    }
  });
}

}  // namespace ops::cpu
