// Tokens and positions to activations, and the gradients of their tables. Not here: rotary
// positions (attention.h). May include: operation.h, dropout.h. Letters and dtypes as in
// operation.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/dropout.h"
#include "trainer/ops/operation.h"

namespace ops {

/// x = dropout(token_table[tokens - first_token] + position_table[positions]).
/// Tokens outside first_token .. first_token + V - 1 add nothing (vocabulary parallel).
struct EmbeddingForward {
  static constexpr const char* kName = "embedding_forward";
  Tensor x;               ///< (S, B, H) model dtype, out.
  Tensor tokens;          ///< (S, B) int32.
  Tensor token_table;     ///< (V, H) model dtype, or bf16 beside fp32 on the CPU; optional.
  Tensor positions;       ///< (S, B) int32; needed when position_table is given.
  Tensor position_table;  ///< (positions, H) as token_table; optional.
  int64_t first_token = 0;
  Dropout dropout;

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("x", x, 3);
    e.model_dtype("x", x);
    e.shape("tokens", tokens, DType::i32, {x.shape[0], x.shape[1]});
    if (token_table) {
      e.weight_dtype("token_table", token_table, x.dtype);
      e.dims("token_table", token_table, {token_table.rows(), x.shape[2]});
    }
    if (position_table) {
      e.weight_dtype("position_table", position_table, x.dtype);
      e.dims("position_table", position_table, {position_table.rows(), x.shape[2]});
      e.shape("positions", positions, DType::i32, {x.shape[0], x.shape[1]});
    }
    dropout.check(e, x.columns());
  }
  Cost cost() const { return {count(x), 2 * bytes_of({&x, &tokens})}; }
};

/// Adds dropout'(dx) into the rows of the tables' gradients, always "+=" except where accumulate is
/// false, which sets the whole table gradient. Order of addition is fixed: by row position,
/// ascending.
struct EmbeddingBackward {
  static constexpr const char* kName = "embedding_backward";
  Tensor dx;               ///< (S, B, H) model dtype.
  Tensor tokens;           ///< (S, B) int32.
  Tensor dtoken_table;     ///< (V, H) grad dtype; optional.
  Tensor positions;        ///< (S, B) int32.
  Tensor dposition_table;  ///< (positions, H) grad dtype; optional.
  int64_t first_token = 0;
  bool accumulate_tokens = true;
  bool accumulate_positions = true;
  Dropout dropout;

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("dx", dx, 3);
    e.model_dtype("dx", dx);
    e.shape("tokens", tokens, DType::i32, {dx.shape[0], dx.shape[1]});
    if (dtoken_table) {
      e.grad_dtype("dtoken_table", dtoken_table, dx.dtype);
      e.dims("dtoken_table", dtoken_table, {dtoken_table.rows(), dx.shape[2]});
    }
    if (dposition_table) {
      e.grad_dtype("dposition_table", dposition_table, dx.dtype);
      e.dims("dposition_table", dposition_table, {dposition_table.rows(), dx.shape[2]});
      e.shape("positions", positions, DType::i32, {dx.shape[0], dx.shape[1]});
    }
    dropout.check(e, dx.columns());
  }
  Cost cost() const { return {2 * count(dx), 3 * bytes_of({&dx, &tokens})}; }
};

using EmbeddingOperations = Family<EmbeddingForward, EmbeddingBackward>;

}  // namespace ops
