// Fp8: a layer's four linears in eight bits: which operands are quantized with which scales, and
// the quantized weights of a pass. Not here: rounding and products (ops/fp8.h), options
// (fp8_options.h), weights that are gathered as FP8 (fp8_parts.h), the linears that use them
// (parallel_linear.cc). May include: ops/, comm/comm.h, spec/. Embeddings, head, norms,
// attention and sums stay in the model dtype or fp32, and so do main parameters, moments and
// gradients.
// Source: Micikevicius et al. 2022; Transformer Engine's recipes of delayed and current scaling.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/fp8_options.h"
#include "trainer/model/fp8_parts.h"
#include "trainer/ops/arena.h"
#include "trainer/ops/ops.h"
#include "trainer/spec/params.h"

namespace trainer {

using ops::Device;
using ops::DType;
using ops::PoolTensor;
using ops::ShapeError;
using ops::Tensor;

struct Run;

/// A quantized tensor in the layouts that were asked for, and their scales as in ops/fp8.h.
struct Quantized {
  PoolTensor rows, columns;            ///< (R, C) and (C, R).
  PoolTensor row_scale, column_scale;  ///< One scale is both layouts'; the last to go owns it.
  explicit operator bool() const noexcept { return rows || columns; }
  /// The columns stay.
  void release_rows() noexcept {
    rows.reset();
    row_scale.reset();
  }
};

/// What to quantize, as ops::Quantize, and in which layouts.
struct QuantizeWant {
  Tensor x;
  Tensor pre_activation = {};
  ops::Activation activation = ops::Activation::none;
  ops::AppliedNorm norm = {};
  Tensor dbias = {};
  bool accumulate_bias = false;
  bool rows = false, columns = false;
};

/// See the room card. One per rank; with one scale a tensor it has the scales of all of the model's
/// layers, the same on every rank.
class Fp8 {
 public:
  Fp8(const Fp8Options& options, const ModelSpec& spec);

  const Fp8Options& options() const noexcept { return options_; }
  bool covers(int64_t layer) const noexcept;

  /// How many tensors have a scale: (3 operands, 4 linears, L layers), in this order.
  int64_t tensors() const noexcept;
  /// How an operand's scales are laid out in products: those of the layer's output and input
  /// gradient, and of the weight's gradient.
  ops::Scaling scaling(Operand operand) const noexcept;
  int64_t history_length() const noexcept;  ///< 0 without delayed scales.
  /// scale (n, 4), amax (n), history (n, history_length), all fp32; history may be empty, and with
  /// scales of rows or blocks all.
  void place(const Tensor& scale, const Tensor& amax, const Tensor& history);
  /// Sets all scales to 0: no tensor seen so far. Queued.
  void reset(ops::Ops& ops);
  /// To be called after scales and history were loaded, perhaps of a run with other options:
  /// computes the scales from the history with this run's options. A tensor whose scale is 0 has
  /// not been seen. Waits.
  void resume(ops::Ops& ops);
  const Tensor& scale() const noexcept { return scale_; }
  const Tensor& history() const noexcept { return history_; }

  /// The quantized weights that are kept between micro-batches, for the local layers: bytes, and
  /// numbers of their scales of rows or blocks; to be given to place_weights. `whole(layer)`: the
  /// rank always has that layer's whole weights.
  struct WeightMemory {
    int64_t bytes = 0, scales = 0;
  };
  /// Of weights that are gathered as FP8 only the columns are kept here.
  template <class Whole>
  WeightMemory list_weights(const std::vector<LocalParam>& params, const Whole& whole);
  /// memory (bytes) fp8, scales (scales) fp32.
  void place_weights(const Tensor& memory, const Tensor& scales);

  /// Begins a step (`training`) or an evaluation. Weights may have changed, so each is quantized
  /// again at its first use. Delayed scales follow only the values of steps.
  void begin_pass(bool training);
  /// Queued. Shapes: x's rows and columns are multiples of 16.
  Quantized quantize(const Run& run, int64_t layer, Linear linear, Operand operand,
                     const QuantizeWant& want);
  /// The quantized weight of a linear whose layer is gathered: its rows (O, I), or its columns (I,
  /// O). Valid until the pass ends, or as long as the result lives.
  Quantized weight(const Run& run, int64_t layer, Linear linear, Role role, bool columns);

  /// Weights that are gathered as FP8: how many fp32 of memory their scales need. `parts`: of all
  /// these weights. Before list_weights().
  int64_t list_parts(std::vector<Fp8Parts::Part> parts);
  /// `scales`: as many fp32; after place().
  void place_parts(const Tensor& scales);
  /// To be called when weights have changed, on every rank of `data`: finds the scales that round()
  /// needs. `replaced`: they were loaded or drawn, not updated. Queued.
  void scale_weights(ops::Ops& ops, comm::Comm& data, bool replaced = false);
  /// out (n) e4m3 = x (n), this rank's part of a weight, rounded. Queued.
  void round(ops::Ops& ops, const LocalParam& param, const Tensor& x, const Tensor& out) {
    parts_.round(ops, param, x, out);
  }

  /// Computes the next step's delayed scales from the largest values of all ranks of `world`.
  /// Queued.
  void update(ops::Ops& ops, comm::Comm& world);

 private:
  struct Weight {
    int64_t layer = 0;
    Linear linear{};
    int64_t rows = 0, columns = 0;
    Quantized copy = {};
    bool fresh = false;
  };
  /// A tensor to quantize, and where to.
  struct Target {
    int64_t layer;
    Linear linear;
    Operand operand;
    const Quantized& out;
  };
  int64_t index(int64_t layer, Linear linear, Operand operand) const noexcept;
  DType dtype(Operand operand) const noexcept;
  /// Fills the layouts that `to.out` has; if the recipe needs it, after a pass that finds the
  /// largest value.
  void fill(const Run& run, const Target& to, const QuantizeWant& want);
  void fill_in_blocks(const Run& run, const Target& to, const QuantizeWant& want);
  PoolTensor take_scales(const Run& run, Operand operand, const PoolTensor& of);
  /// Scales from amax and `history`, which may be empty.
  void update_scales(ops::Ops& ops, const Tensor& history);
  void list_weight(const LocalParam& param);
  Weight* kept(int64_t layer, Linear linear);
  /// What weight() returns for a weight whose rows were gathered as FP8.
  Quantized gathered_weight(const Run& run, int64_t layer, Linear linear, const Tensor& rows,
                            bool columns);
  int64_t weight_index(const Fp8Parts::Part& part) const noexcept;

  const Fp8Options options_;
  const int64_t num_layers_;
  Tensor scale_, amax_, history_;
  std::vector<bool> seen_;  ///< By tensor: whether its delayed scale follows seen values.
  bool training_ = true;    ///< Whether the current pass is a step.
  std::vector<Weight> weights_;
  Fp8Parts parts_;
};

template <class Whole>
Fp8::WeightMemory Fp8::list_weights(const std::vector<LocalParam>& params, const Whole& whole) {
  weights_.clear();
  for (const LocalParam& param : params)
    if (whole(param.spec.layer)) list_weight(param);
  WeightMemory all;
  const ops::Scaling s = scaling(Operand::weight);
  for (const Weight& weight : weights_) {
    all.bytes += (parts_.empty() ? 2 : 1) * weight.rows * weight.columns;
    if (options_.in_blocks() && parts_.empty())
      all.scales += ops::scale_shape(s, weight.rows, weight.columns).count() +
                    ops::scale_shape(s, weight.columns, weight.rows).count();
  }
  return all;
}

}  // namespace trainer
