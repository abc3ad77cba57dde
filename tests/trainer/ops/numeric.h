// What the tests of operations share: tensors on the heap, random values, float64 central
// differences, tolerances.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "trainer/ops/dropout.h"
#include "trainer/ops/philox.h"
#include "trainer/ops/step_state.h"
#include "trainer/ops/tensor.h"

namespace numeric {

using ops::DType;
using ops::Tensor;
using Values = std::vector<double>;

/// Owns the memory of a test's tensors.
class Heap {
 public:
  Tensor make(DType dtype, std::initializer_list<int64_t> shape) {
    Tensor t(nullptr, dtype, ops::Device::cpu, shape);
    blocks_.emplace_back(static_cast<size_t>(t.bytes() + 64),
                         std::byte{0x5A});  // never silently zero
    t.data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(blocks_.back().data()) + 63) /
                                     64 * 64);
    return t;
  }
  Tensor floats(std::initializer_list<int64_t> shape, const Values& values) {
    Tensor t = make(DType::f32, shape);
    for (int64_t i = 0; i < t.elements(); ++i)
      t.as<float>()[i] = static_cast<float>(values[static_cast<size_t>(i)]);
    return t;
  }
  Tensor empty(std::initializer_list<int64_t> shape) { return make(DType::f32, shape); }
  Tensor integers(std::initializer_list<int64_t> shape, const std::vector<int>& values) {
    Tensor t = make(DType::i32, shape);
    for (int64_t i = 0; i < t.elements(); ++i) t.as<int32_t>()[i] = values[static_cast<size_t>(i)];
    return t;
  }
  Tensor state(const ops::StepState& state) {
    Tensor t = make(DType::u8, {sizeof(ops::StepState)});
    *static_cast<ops::StepState*>(t.data) = state;
    return t;
  }

 private:
  std::deque<std::vector<std::byte>> blocks_;
};

inline Values read(const Tensor& t) { return Values(t.as<float>(), t.as<float>() + t.elements()); }

/// Values that fp32 holds exactly, so that both sides compute from the same numbers; about
/// Normal(0, scale).
inline Values random_values(size_t count, uint32_t seed, double scale = 1.0) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) {
    const ops::Philox4 w = ops::philox({static_cast<uint32_t>(i), 0, 0, 0}, seed, 77);
    const double sum = (double(w.x) + double(w.y) + double(w.z) + double(w.w)) * 0x1p-32 - 2.0;
    values[i] = static_cast<float>(sum * 1.7 * scale);
  }
  return values;
}

/// d(sum of cotangent * f(inputs)) / d inputs[which], by central differences in float64. The step
/// 1e-5 leaves an error of about 1e-10 (step squared times third derivative, and 1e-16 / step),
/// far below fp32.
using Function = std::function<Values(const std::vector<Values>&)>;
inline Values gradient(const Function& f, std::vector<Values> inputs, size_t which,
                       const Values& cotangent) {
  constexpr double kStep = 1e-5;
  Values result(inputs[which].size());
  for (size_t i = 0; i < result.size(); ++i) {
    const double at = inputs[which][i];
    double sum = 0;
    for (int sign : {1, -1}) {
      inputs[which][i] = at + sign * kStep;
      const Values y = f(inputs);
      for (size_t k = 0; k < y.size(); ++k) sum += sign * cotangent[k] * y[k];
    }
    inputs[which][i] = at;
    result[i] = sum / (2 * kStep);
  }
  return result;
}

/// Each element is a chain of sums of at most `terms` products, rounded to fp32 after every
/// addition: the error is at most (terms + 16) * 2^-24 of the sum of magnitudes, which is taken as
/// 4 times the largest wanted element (measured sums of magnitudes stay under 3 times at these
/// sizes). 16 stands for the roundings outside the longest sum.
inline double tolerance(const Values& wanted, double terms) {
  double largest = 1e-3;
  for (double w : wanted) largest = std::max(largest, std::abs(w));
  return (terms + 16) * 0x1p-24 * 4 * largest;
}

inline void expect_close(const std::string& what, const Tensor& got, const Values& wanted,
                         double terms) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(wanted.size())) << what;
  const Values values = read(got);
  const double allowed = tolerance(wanted, terms);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double error = std::abs(values[i] - wanted[i]);
    if (!(error <= worst)) worst = error, at = i;
  }
  EXPECT_LE(worst, allowed) << what << "[" << at << "]: " << values[at] << " for " << wanted[at];
}

/// The dropout of ops/dropout.h, implemented independently: the factor of element (s, b, i).
inline double keep_factor(const ops::Dropout& d, int64_t s, int64_t b, int64_t i,
                          uint32_t iteration, int64_t head = 0) {
  if (d.p == 0) return 1;
  const ops::Philox4 w = ops::philox(
      {uint32_t(i / 8), uint32_t(d.first_position + s), uint32_t(d.first_sample + b), iteration},
      d.seed, d.site + uint32_t(head));
  const uint32_t words[4] = {w.x, w.y, w.z, w.w};
  const uint32_t word = words[(i % 8) / 2];
  const uint32_t lane = i % 2 == 0 ? word & 0xFFFF : word >> 16;
  const uint32_t threshold = uint32_t(std::lround(double(d.p) * 65536));
  return lane < threshold ? 0.0 : 1.0 / (1.0 - threshold / 65536.0);
}

}  // namespace numeric
