// CPU: embedding tables.
//
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/dropout.h"
#include "trainer/ops/launch.h"
#include "trainer/ops/number.h"

namespace ops::cpu {
namespace {

constexpr int64_t kRowPiece = 32;
/// A multiple of 8: a piece of columns begins at a Philox counter.
constexpr int64_t kColumnPiece = 64;

/// Row `index` of a table, or null when it lies outside. One of bf16 is widened into `memory`.
const float* table_row(const Tensor& table, int64_t index, std::vector<float>& memory) {
  if (!table || index < 0 || index >= table.shape[0]) return nullptr;
  const int64_t columns = table.shape[1];
  if (table.dtype != DType::bf16) return table.as<float>() + index * columns;
  const uint16_t* row = table.as<uint16_t>() + index * columns;
  memory.resize(static_cast<size_t>(columns));
  std::transform(row, row + columns, memory.begin(), bf16_to_float);
  return memory.data();
}

}  // namespace

void launch(CpuOps& cpu, const EmbeddingForward& a) {
  const int64_t batch = a.x.shape[1], columns = a.x.shape[2];
  const int32_t* tokens = a.tokens.as<int32_t>();
  const DropoutMask mask(a.dropout);
  cpu.pieces(a.x.rows(), kRowPiece, [&](int64_t begin, int64_t end) {
    std::vector<float> token_row, position_row;
    for (int64_t r = begin; r < end; ++r) {
      float* x = a.x.as<float>() + r * columns;
      const float* token = table_row(a.token_table, tokens[r] - a.first_token, token_row);
      const float* position =
          a.position_table ? table_row(a.position_table, a.positions.as<int32_t>()[r], position_row)
                           : nullptr;
      for (int64_t c = 0; c < columns; ++c)
        x[c] = (token != nullptr ? token[c] : 0.0f) + (position != nullptr ? position[c] : 0.0f);
      mask.apply(x, columns, r / batch, r % batch);
    }
  });
}

void launch(CpuOps& cpu, const EmbeddingBackward& a) {
  const int64_t rows = a.dx.rows(), batch = a.dx.shape[1], columns = a.dx.shape[2];
  const int32_t* tokens = a.tokens.as<int32_t>();
  const int32_t* positions = a.dposition_table ? a.positions.as<int32_t>() : nullptr;
  const float* dx = a.dx.as<float>();
  const DropoutMask mask(a.dropout);
  // A thread owns some columns of both tables and adds all rows in order, so no two threads meet.
  cpu.pieces(columns, kColumnPiece, [&](int64_t begin, int64_t end) {
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

int64_t scratch_bytes(CpuOps&, const EmbeddingForward&) { return 0; }
int64_t scratch_bytes(CpuOps&, const EmbeddingBackward&) { return 0; }

}  // namespace ops::cpu

template struct ops::Launch<ops::cpu::CpuOps, ops::EmbeddingForward>;
template struct ops::Launch<ops::cpu::CpuOps, ops::EmbeddingBackward>;
