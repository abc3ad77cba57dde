// What calibration measures: matrix products, attention, and the carrier, a load like a layer's.
// Not here: operands and repetition (calibration_load.h); which shapes are measured, and the rates
// that follow (calibration.cc, calibrate.cc). May include: ops/, planning/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>

#include "trainer/planning/times.h"
#include "trainer/session/calibration.h"
#include "trainer/session/calibration_load.h"

namespace trainer::calibration {

/// y (rows, outputs) = x (rows, inputs) W^T.
struct ProductShape {
  int64_t rows, outputs, inputs;
};

/// A product's operands, of all its kinds.
struct Product {
  Product(Operands& o, DType dtype, const ProductShape& s)
      : shape(s),
        x(o.filled(dtype, {s.rows, s.inputs}, 0.5f)),
        weight(o.filled(dtype, {s.outputs, s.inputs}, 0.25f)),
        y(o.filled(dtype, {s.rows, s.outputs}, 0.5f)),
        kept_outputs(o.filled(dtype, {s.rows, s.outputs}, 0)),
        kept_inputs(o.filled(dtype, {s.rows, s.inputs}, 0)),
        out(o.filled(dtype, {s.rows, s.inputs}, 0)),
        bias(o.filled(dtype, {s.outputs}, 0)),
        dweight(o.filled(DType::f32, {s.outputs, s.inputs}, 0)),
        dbias(o.filled(DType::f32, {s.inputs}, 0)) {}

  void run(ops::Ops& ops, ProductKind kind) const {
    const bool activated =
        kind == ProductKind::forward_activation || kind == ProductKind::input_slope;
    const ops::Activation activation =
        activated ? ops::Activation::gelu_tanh : ops::Activation::none;
    switch (kind) {
      case ProductKind::forward:
      case ProductKind::forward_activation:
        return ops.run(ops::LinearForward{.y = y,
                                          .pre_activation = activated ? kept_outputs : Tensor(),
                                          .x = x,
                                          .weight = weight,
                                          .bias = bias,
                                          .activation = activation});
      case ProductKind::input:
      case ProductKind::input_slope:
        return ops.run(
            ops::LinearBackwardInput{.dx = out,
                                     .dy = y,
                                     .weight = weight,
                                     .pre_activation = activated ? kept_inputs : Tensor(),
                                     .activation = activation,
                                     .dbias = activated ? dbias : Tensor()});
      case ProductKind::weight:
        return ops.run(ops::LinearBackwardWeight{.dweight = dweight, .dy = y, .x = x});
      default:  // FP8 has its own operands: fp8_product.
        break;
    }
  }

  ProductShape shape;
  Tensor x, weight, y, kept_outputs, kept_inputs, out, bias, dweight, dbias;
};

/// A matrix in FP8 with its scales.
struct RoundedOperand {
  Tensor values, scale;
};
/// Memory for one; a tensor's only scale is 1.
inline RoundedOperand rounded(Operands& memory, ops::Scaling scaling, int64_t rows,
                              int64_t columns) {
  const Tensor values = memory.take(DType::e4m3, {rows, columns});
  if (scaling == ops::Scaling::tensor)
    return {values, memory.filled(DType::f32, {ops::kScaleSize}, 1)};
  const ops::ScaleShape shape = ops::scale_shape(scaling, rows, columns);
  return {values, memory.filled(DType::f32, {shape.rows, shape.columns}, 1)};
}

/// A product of operands that are rounded from random numbers, as a recipe has them: weights have
/// scales of square blocks where others have scales of blocks of a row.
inline ops::Fp8Product fp8_product(ops::Ops& ops, Operands& memory, DType dtype, ProductKind kind,
                                   const ProductShape& s) {
  const bool gradient = of_weight(kind);
  const bool rows = kind == ProductKind::fp8_rows || kind == ProductKind::fp8_rows_weight,
             blocks = kind == ProductKind::fp8_blocks || kind == ProductKind::fp8_blocks_weight;
  // (m, n) is a sum over k.
  const int64_t m = gradient ? s.outputs : s.rows, n = gradient ? s.inputs : s.outputs,
                k = gradient ? s.rows : s.inputs;
  const ops::Scaling scaling = rows     ? ops::Scaling::row
                               : blocks ? ops::Scaling::row_block
                                        : ops::Scaling::tensor;
  const ops::Scaling of_b = blocks && !gradient ? ops::Scaling::square_block : scaling;
  const auto quantized = [&](int64_t size, ops::Scaling scales) {
    const RoundedOperand out = rounded(memory, scales, size, k);
    const Tensor x = memory.take(dtype, {size, k});
    memory.randomise(x);
    if (scales == ops::Scaling::tensor)
      ops.run(ops::Quantize{.rows = out.values,
                            .columns = {},
                            .scale = out.scale,
                            .amax = {},
                            .dbias = {},
                            .x = x,
                            .pre_activation = {}});
    else
      ops.run(ops::QuantizeInBlocks{.rows = out.values,
                                    .columns = {},
                                    .row_scale = out.scale,
                                    .column_scale = {},
                                    .dbias = {},
                                    .x = x,
                                    .pre_activation = {},
                                    .scaling = scales});
    return out;
  };
  const RoundedOperand a = quantized(m, scaling), b = quantized(n, of_b);
  ops::Fp8Product call{.y = memory.filled(gradient ? DType::f32 : dtype, {m, n}, 0),
                       .a = a.values,
                       .b = b.values,
                       .a_scale = a.scale,
                       .b_scale = b.scale,
                       .bias = {},
                       .addend = {},
                       .fast_sums = !gradient && !blocks,
                       .a_scaling = scaling,
                       .b_scaling = of_b};
  if (gradient) call.addend = call.y;
  return call;
}

/// Of causal attention.
struct AttentionSizes {
  int64_t size, length;
  int64_t heads;  ///< Times samples.
};

/// Causal attention, forward and backward.
class Attention {
 public:
  Attention(DType dtype, const AttentionSizes& s)
      : dtype_(dtype),
        length_(s.length),
        shape_{.num_attention_heads = std::min<int64_t>(s.heads, 16),
               .num_query_groups = std::min<int64_t>(s.heads, 16),
               .kv_channels = s.size,
               .softmax_scale = 1 / std::sqrt(static_cast<float>(s.size))},
        batch_(s.heads / shape_.num_attention_heads),
        width_(shape_.num_attention_heads * s.size) {}
  /// Operands, filled; before the first run.
  void take(Operands& memory) {
    qkv_ = memory.take(dtype_, {length_, batch_, 3 * width_});
    out_ = memory.take(dtype_, {length_, batch_, width_});
    stats_ = memory.take(DType::f32, {batch_, shape_.num_attention_heads, length_});
    dqkv_ = memory.take(dtype_, {length_, batch_, 3 * width_});
    dout_ = memory.take(dtype_, {length_, batch_, width_});
    memory.randomise(qkv_);
    memory.randomise(dout_);
  }
  /// Backward needs what forward has written.
  void run(ops::Ops& ops, bool backward) const {
    if (!backward)
      return ops.run(
          ops::AttentionForward{.shape = shape_, .out = out_, .stats = stats_, .qkv = qkv_});
    ops.run(ops::AttentionBackward{.shape = shape_,
                                   .dqkv = dqkv_,
                                   .dout = dout_,
                                   .out = out_,
                                   .stats = stats_,
                                   .qkv = qkv_,
                                   .first_key = {}});
  }
  int64_t out_elements() const noexcept { return length_ * batch_ * width_; }
  /// Of one of its products, counting the half that is computed.
  double product_flops() const {
    return shape_.product_flops(
        Tensor(nullptr, dtype_, ops::Device::cpu, {length_, batch_, 3 * width_}));
  }

 private:
  DType dtype_;
  int64_t length_;
  ops::AttentionShape shape_;
  int64_t batch_, width_;
  Tensor qkv_, out_, stats_, dqkv_, dout_;
};

/// One layer's products at the carrier's size, forward and backward, and copies.
class Carrier {
 public:
  Carrier(ops::Ops& ops, const CalibrationPlan& plan)
      : ops_(ops),
        block_(ops),
        memory_(ops, block_),
        product_(memory_, plan.dtype, {plan.carrier_rows, plan.carrier_width, plan.carrier_width}),
        wide_(memory_, plan.dtype,
              {plan.carrier_rows, 4 * plan.carrier_width, plan.carrier_width}) {
    for (const Product* p : {&product_, &wide_})
      for (const Tensor& t : {p->x, p->weight, p->y, p->kept_inputs}) memory_.randomise(t);
  }
  void queue() const {
    for (const ProductKind kind : {ProductKind::forward, ProductKind::input, ProductKind::weight}) {
      for (int i = 0; i < 4; ++i) product_.run(ops_, kind);
      wide_.run(ops_, kind);
      wide_.run(ops_, kind);
      ops_.run(ops::Copy{.dst = wide_.kept_outputs, .src = wide_.y});
    }
  }

  /// Seconds of its copies, by the table.
  double copies(const Card& card) const {
    return 3 * CardTimes(card, false).pass("copy", 2.0 * static_cast<double>(wide_.y.bytes()));
  }

 private:
  ops::Ops& ops_;
  OperandMemory block_;
  Operands memory_;
  Product product_, wide_;
};

}  // namespace trainer::calibration
