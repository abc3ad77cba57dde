// Muon's own operations: momentum, the matrix to orthogonalize, and the update with the result. Not
// here: the iteration between them (optim/muon.h; its products are product.h's), AdamW
// (optimizer.h). May include: operation.h, step_state.h. Letters and dtypes as in operation.h.
// Source: Jordan et al. 2024, "Muon"; NVIDIA Emerging-Optimizers, orthogonalized_optimizer.py and
// muon.py.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/operation.h"
#include "trainer/ops/step_state.h"

namespace ops {

/// Rows of a matrix that are updated as one matrix: of every `period` rows the `count` from `first`
/// on. For example, the queries of packed q, k and v, over all groups, are one matrix.
struct RowPart {
  int64_t first = 0, count = 0, period = 0;
  /// Rows of the part of a matrix of `rows` rows.
  int64_t rows_of(int64_t rows) const noexcept { return rows / period * count; }
  /// The matrix row that is row `i` of the part.
  int64_t row(int64_t i) const noexcept { return i / count * period + first + i % count; }
  bool fits(int64_t rows) const noexcept {
    return first >= 0 && count > 0 && first + count <= period && rows % period == 0;
  }
};

/// momentum += (1 - beta) * (grad * grad_multiplier - momentum), over flat memory, for any number
/// of parameters. Nothing changes when state.skip.
struct MuonMomentum {
  static constexpr const char* kName = "muon_momentum";
  Tensor momentum;  ///< (n) fp32, in and out.
  Tensor grad;      ///< (n) grad dtype.
  Tensor state;
  float beta = 0.9f;

  void check(Device device) const {
    const Expect e(kName, device);
    e.shape("momentum", momentum, DType::f32, {momentum.elements()});
    e.model_dtype("grad", grad);
    e.dims("grad", grad, {momentum.elements()});
    e.state("state", state);
  }
  Cost cost() const { return {4 * count(momentum), bytes_of({&momentum, &momentum, &grad})}; }
};

/// out = the rows `part` of momentum or, with grad (Nesterov), of g + beta * (momentum - g) with g
/// = grad * grad_multiplier.
struct MuonMatrix {
  static constexpr const char* kName = "muon_matrix";
  Tensor out;       ///< (r, I) fp32, out, with r the rows of the part; (I, r) when transposed.
  Tensor momentum;  ///< (R, I) fp32, after this step's MuonMomentum.
  Tensor grad;      ///< (R, I) grad dtype; optional.
  Tensor state;
  RowPart part;
  bool transposed = false;
  float beta = 0.9f;

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("momentum", momentum, 2);
    const int64_t rows = momentum.shape[0], columns = momentum.shape[1];
    e.shape("momentum", momentum, DType::f32, {rows, columns});
    e.that(part.fits(rows), "the part does not fit the rows");
    const int64_t r = part.rows_of(rows);
    e.shape("out", out, DType::f32, {transposed ? columns : r, transposed ? r : columns});
    if (grad) {
      e.model_dtype("grad", grad);
      e.dims("grad", grad, {rows, columns});
    }
    e.state("state", state);
  }
  Cost cost() const { return {3 * count(out), 2 * bytes_of({&out}) + (grad ? 4 * count(out) : 0)}; }
};

/// out = x / max(sqrt(sum_squares), eps).
struct MuonNormalize {
  static constexpr const char* kName = "muon_normalize";
  Tensor out;          ///< Of x's shape, fp32 or bf16.
  Tensor x;            ///< fp32.
  Tensor sum_squares;  ///< (1) fp32.
  float eps = 1e-7f;

  void check(Device device) const {
    const Expect e(kName, device);
    e.that(out.dtype == DType::f32 || out.dtype == DType::bf16, "out must be fp32 or bf16");
    e.matrix("x", x, DType::f32, x.rows(), x.columns());
    e.matrix("out", out, out.dtype, x.rows(), x.columns());
    e.shape("sum_squares", sum_squares, DType::f32, {1});
  }
  Cost cost() const { return {count(x), bytes_of({&out, &x})}; }
};

/// For the rows `part`: main -= lr * (scale * direction + decay * main); model = main. decay is
/// weight_decay, or 0 without `decays`. Nothing changes when state.skip.
struct MuonUpdate {
  static constexpr const char* kName = "muon_update";
  Tensor model;      ///< (R, I) model dtype, out; empty when model parameters are main parameters.
  Tensor main;       ///< (R, I) fp32, in and out.
  Tensor direction;  ///< (r, I) fp32 or bf16, with r the rows of the part; (I, r) when transposed.
  Tensor state;
  RowPart part;
  bool transposed = false;
  bool decays = true;
  float scale = 1;

  void check(Device device) const {
    const Expect e(kName, device);
    e.rank("main", main, 2);
    const int64_t rows = main.shape[0], columns = main.shape[1];
    e.shape("main", main, DType::f32, {rows, columns});
    e.that(part.fits(rows), "the part does not fit the rows");
    const int64_t r = part.rows_of(rows);
    e.that(direction.dtype == DType::f32 || direction.dtype == DType::bf16,
           "direction must be fp32 or bf16");
    e.dims("direction", direction, {transposed ? columns : r, transposed ? r : columns});
    if (model) {
      e.model_dtype("model", model);
      e.dims("model", model, {rows, columns});
    }
    e.state("state", state);
  }
  Cost cost() const {
    const double written = model ? static_cast<double>(size_bytes(model.dtype)) : 0;
    return {4 * count(direction), bytes_of({&direction}) + (8 + written) * count(direction)};
  }
};

using MuonOperations = Family<MuonMomentum, MuonMatrix, MuonNormalize, MuonUpdate>;

}  // namespace ops
