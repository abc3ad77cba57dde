// What calibration.cc measures with: the operands of an operation, calls that are repeated as one
// recording, matrix products, and the carrier, a load like a layer's. Not here: which operations
// are measured, and the rates that follow (calibration.cc, which alone includes this). May include:
// ops/, planning/. Memory is the device's, owned by Operands.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
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

/// Memory of one operation's operands.
class Operands {
 public:
  explicit Operands(ops::Ops& ops) : ops_(ops) {}
  ~Operands() {
    settle(ops_);
    for (void* block : blocks_) ops_.release(block);
  }
  Operands(const Operands&) = delete;
  Tensor take(DType dtype, std::initializer_list<int64_t> shape) {
    Tensor t(nullptr, dtype, ops_.device(), shape);
    t.data = ops_.allocate(std::max<int64_t>(t.bytes(), 1024));
    blocks_.push_back(t.data);
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
  std::vector<void*> blocks_;
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

/// One layer's work at the carrier's size: four products each way, attention, norms.
class Carrier {
 public:
  Carrier(ops::Ops& ops, const CalibrationPlan& plan)
      : ops_(ops),
        memory_(ops),
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
  Operands memory_;
  Product product_, wide_;
};

}  // namespace trainer::calibration
