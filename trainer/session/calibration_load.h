// What calibration measures with: the operands of an operation, and calls that are repeated as one
// recording. Not here: products, attention and the carrier (calibration_work.h); which operations
// are measured, and the rates that follow (calibration.cc). May include: ops/. Memory is the
// device's, owned by OperandMemory.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <span>
#include <thread>
#include <vector>

#include "trainer/ops/number.h"
#include "trainer/ops/ops.h"

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

}  // namespace trainer::calibration
