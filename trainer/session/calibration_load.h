// What calibration.cc measures with: the operands of an operation, calls that are repeated as one
// recording, matrix products, and the carrier, a load like a layer's. Not here: which operations
// are measured, and the rates that follow (calibration.cc, calibrate.cc). May include: ops/,
// planning/. Memory is the device's, owned by Operands.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <span>
#include <thread>
#include <vector>

#include "trainer/ops/number.h"
#include "trainer/planning/times.h"
#include "trainer/session/calibration.h"

namespace trainer::calibration {

using ops::DType;
using ops::Tensor;
using Clock = std::chrono::steady_clock;

/// Waits for the device; the next wait reports a failure, since a destructor cannot.
inline void settle(ops::Ops& ops) noexcept {
  try {
    ops.synchronize();
  } catch (const DeviceError&) {
  }
}

/// Device memory for the operands of one operation after another: an allocation for each operand
/// takes longer than its measurement.
class OperandMemory {
 public:
  explicit OperandMemory(ops::Ops& ops) : ops_(ops) {}
  ~OperandMemory() { release(); }
  OperandMemory(const OperandMemory&) = delete;
  void* take(int64_t bytes) {
    constexpr int64_t kAlignment = 1024;
    bytes = (std::max(bytes, kAlignment) + kAlignment - 1) / kAlignment * kAlignment;
    if (taken_ == 0 && size_ < std::max(most_taken_, bytes)) {
      release();
      const int64_t wanted = std::max(most_taken_, bytes);
      block_ = ops_.allocate(wanted);
      size_ = wanted;
    }
    taken_ += bytes;
    most_taken_ = std::max(most_taken_, taken_);
    if (used_ + bytes <= size_) {
      used_ += bytes;
      return static_cast<std::byte*>(block_) + (used_ - bytes);
    }
    beside_.push_back(ops_.allocate(bytes));
    return beside_.back();
  }
  /// All is free for the next operation; the next block is as large as this one took.
  void reset() noexcept {
    settle(ops_);
    for (void* block : beside_) ops_.release(block);
    beside_.clear();
    used_ = taken_ = 0;
  }

 private:
  void release() noexcept {
    reset();
    if (size_ > 0) ops_.release(block_);
    size_ = 0;
  }
  ops::Ops& ops_;
  void* block_ = nullptr;
  int64_t size_ = 0, used_ = 0;  ///< Of the block.
  int64_t taken_ = 0, most_taken_ = 0;
  std::vector<void*> beside_;
};

/// One operation's operands.
class Operands {
 public:
  Operands(ops::Ops& ops, OperandMemory& memory) : ops_(ops), memory_(memory) {}
  ~Operands() { memory_.reset(); }
  Operands(const Operands&) = delete;
  Tensor take(DType dtype, std::initializer_list<int64_t> shape) {
    Tensor t(nullptr, dtype, ops_.device(), shape);
    t.data = memory_.take(t.bytes());
    return t;
  }
  Tensor filled(DType dtype, std::initializer_list<int64_t> shape, float value) {
    const Tensor t = take(dtype, shape);
    ops_.run(ops::Fill{.dst = t, .value = value});
    return t;
  }
  /// The state at the beginning of a step.
  Tensor state() {
    const Tensor t = take(DType::u8, {sizeof(ops::StepState)});
    const ops::StepState fresh;
    void* host = ops_.allocate_host(t.bytes());
    std::memcpy(host, &fresh, sizeof fresh);
    ops_.upload(t, host);
    ops_.synchronize();
    ops_.release_host(host);
    return t;
  }
  /// Random numbers take as much power as real ones.
  void randomise(const Tensor& t) {
    ops_.run(ops::NormalFill{.out = t.view({t.rows(), t.columns()}),
                             .std = 0.5f,
                             .seed = 7,
                             .stream = ++streams_,
                             .whole_columns = t.columns()});
  }

 private:
  ops::Ops& ops_;
  OperandMemory& memory_;
  uint32_t streams_ = 0;
};

/// Calls that are repeated as one captured graph, if the device can capture.
class Load {
 public:
  Load(ops::Ops& ops, const std::function<void()>& queue) : ops_(ops), queue_(queue) {
    queue_();  // does what is built at the first call.
    ops_.synchronize();
    if (ops_.begin_capture()) {
      queue_();
      captured_ = ops_.end_capture();
    }
  }
  ~Load() {
    settle(ops_);
    ops_.forget(captured_);
  }
  Load(const Load&) = delete;
  void once() {
    if (captured_ > 0)
      ops_.replay(captured_);
    else
      queue_();
  }
  /// Seconds of one repetition, repeated for about `seconds`, at least three times.
  double hold(double seconds) {
    once();
    ops_.wait(ops_.mark());
    int64_t count = 0;
    const Clock::time_point begin = Clock::now();
    double passed = 0;
    while (passed < seconds || count < 3) {
      const int64_t batch =
          count == 0 ? 1
                     : std::clamp<int64_t>(
                           static_cast<int64_t>(0.02 / passed * static_cast<double>(count)), 1, 64);
      for (int64_t i = 0; i < batch; ++i) once();
      ops_.wait(ops_.mark());
      count += batch;
      passed = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    return passed / static_cast<double>(count);
  }

 private:
  ops::Ops& ops_;
  std::function<void()> queue_;
  int64_t captured_ = 0;
};

/// Seconds of a load at full clock: after a rest of `rest` seconds. Median of three.
inline double after_rests(ops::Ops& ops, Load& load, double rest) {
  const std::function<void()> once = [&] { load.once(); };
  once();
  std::array<double, 3> seconds{};
  for (double& one : seconds) {
    ops.synchronize();
    std::this_thread::sleep_for(std::chrono::duration<double>(rest));
    one = ops.timed(std::span(&once, 1)).front();
  }
  std::ranges::sort(seconds);
  return seconds[1];
}

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
      case ProductKind::fp8:  // have their own operands: add_fp8_products.
      case ProductKind::fp8_weight:
        break;
    }
  }

  ProductShape shape;
  Tensor x, weight, y, kept_outputs, kept_inputs, out, bias, dweight, dbias;
};

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
