// What the CUDA tests share: two Ops, tensors that live on both with equal values, the bound of
// their difference, a norm to be quantized. A Twin's CPU half is fp32; where the model dtype has
// 16 bits both halves hold the same rounded numbers. Outputs are poisoned on the GPU (NaN), so that
// an unwritten element is noticed.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cuda/cuda.h"
#include "trainer/ops/number.h"
#include "trainer/ops/philox.h"

namespace pair {

using namespace ops;

struct Twin {
  Tensor half[2];  ///< On the CPU, on the GPU.
  const Tensor& operator[](int side) const { return half[side]; }
  explicit operator bool() const { return bool(half[0]); }
};

/// Half a unit of the last place, relative: what one rounding to `dtype` may cost.
inline double unit(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

/// The GPU that OPS_TEST_AS names by its capability, as "8.6": the tests then use only what it
/// supports. Unset: the actual GPU.
inline Capability tested_as() {
  const char* name = std::getenv("OPS_TEST_AS");
  Capability as;
  if (name != nullptr) std::sscanf(name, "%d.%d", &as.major, &as.minor);
  return as;
}

class PairTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    static std::unique_ptr<Ops> gpu = cuda::make_cuda_ops({.tune = false, .as = tested_as()});
    static cpu::CpuOps host(8);
    sides[0] = &host;
    sides[1] = gpu.get();
  }
  void TearDown() override {
    for (int side = 0; side < 2; ++side) {
      if (sides[side] == nullptr) continue;
      sides[side]->synchronize();
      for (void* block : blocks_[side]) sides[side]->release(block);
    }
  }

  DType model() const { return GetParam(); }
  double u() const { return unit(model()); }

  Twin empty(DType dtype, std::initializer_list<int64_t> shape) {
    Twin t;
    for (int side = 0; side < 2; ++side) {
      const bool is_float = dtype == DType::bf16 || dtype == DType::f16;
      t.half[side] =
          Tensor(nullptr, side == 0 && is_float ? DType::f32 : dtype, sides[side]->device(), shape);
      t.half[side].data = sides[side]->allocate(t.half[side].bytes());
      blocks_[side].push_back(t.half[side].data);
    }
    const std::vector<uint8_t> poison(static_cast<size_t>(t[1].bytes()), 0xff);
    sides[1]->upload(t[1], poison.data());
    sides[1]->synchronize();
    return t;
  }
  /// Both halves from `values`, rounded to `dtype`.
  Twin floats(DType dtype, std::initializer_list<int64_t> shape, const std::vector<float>& values) {
    Twin t = empty(dtype, shape);
    std::vector<uint8_t> bytes(static_cast<size_t>(t[1].bytes()));
    Tensor image(bytes.data(), dtype, Device::cpu, shape);
    for (int64_t i = 0; i < t[0].elements(); ++i) {
      store(image, i, values[static_cast<size_t>(i)]);
      static_cast<float*>(t[0].data)[i] = load(image, i);
    }
    sides[1]->upload(t[1], bytes.data());
    sides[1]->synchronize();
    return t;
  }
  /// About Normal(mean, scale).
  Twin random(DType dtype, std::initializer_list<int64_t> shape, double scale = 1,
              double mean = 0) {
    const Tensor form(nullptr, dtype, Device::cpu, shape);
    std::vector<float> values(static_cast<size_t>(form.elements()));
    ++seed_;
    for (size_t i = 0; i < values.size(); ++i) {
      const Philox4 w = philox({static_cast<uint32_t>(i), 0, 0, 0}, seed_, 99);
      const double sum = (double(w.x) + double(w.y) + double(w.z) + double(w.w)) * 0x1p-32 - 2.0;
      values[i] = static_cast<float>(mean + sum * 1.7 * scale);
    }
    return floats(dtype, shape, values);
  }
  Twin integers(std::initializer_list<int64_t> shape, const std::vector<int32_t>& values) {
    Twin t = empty(DType::i32, shape);
    for (int side = 0; side < 2; ++side) sides[side]->upload(t[side], values.data());
    sides[1]->synchronize();
    return t;
  }
  Twin state(const StepState& value) {
    Twin t = empty(DType::u8, {sizeof(StepState)});
    for (int side = 0; side < 2; ++side) sides[side]->upload(t[side], &value);
    sides[1]->synchronize();
    return t;
  }
  /// A second Twin of equal values: for operations that change their input.
  Twin copy_of(const Twin& from) {
    Twin t;
    for (int side = 0; side < 2; ++side) {
      t.half[side] = from[side];
      t.half[side].data = sides[side]->allocate(from[side].bytes());
      blocks_[side].push_back(t.half[side].data);
      sides[side]->run(Copy{.dst = t[side], .src = from[side]});
    }
    return t;
  }

  /// Runs the operation that make(side) gives.
  template <typename Make>
  void both(Make make) {
    for (int side = 0; side < 2; ++side) sides[side]->run(make(side));
    sides[1]->synchronize();
  }

  std::vector<uint8_t> bytes(const Tensor& t) {
    std::vector<uint8_t> out(static_cast<size_t>(t.bytes()));
    sides[1]->download(out.data(), t);
    sides[1]->synchronize();
    return out;
  }
  StepState read_state(const Twin& t, int side) {
    StepState out;
    sides[side]->download(&out, t[side]);
    sides[side]->synchronize();
    return out;
  }

  /// |gpu - cpu| <= roundings * u * |cpu| + inner * u * largest + (terms + 16) * 2^-24 * 4 *
  /// largest, where u is half a unit of the last place of the GPU tensor's dtype (of the model
  /// dtype for `inner`): `roundings` of the value itself, `inner` for roundings of what it is
  /// summed from, `terms` for fp32 sums in another order.
  void expect_close(const std::string& what, const Twin& t, double roundings, double inner,
                    double terms) {
    std::vector<uint8_t> raw = bytes(t[1]);
    const Tensor gpu(raw.data(), t[1].dtype, Device::cpu, {t[1].elements()});
    const auto* cpu = static_cast<const float*>(t[0].data);
    double largest = 1e-6, squares = 0, errors = 0;
    for (int64_t i = 0; i < gpu.elements(); ++i)
      largest = std::max<double>(largest, std::abs(cpu[i]));
    const double own = unit(t[1].dtype);
    double worst = 0;
    int64_t at = 0, bad = 0;
    for (int64_t i = 0; i < gpu.elements(); ++i) {
      const double want = cpu[i], got = load(gpu, i), error = std::abs(got - want);
      // fp16 numbers below 2^-14 are multiples of 2^-24.
      const double grain = t[1].dtype == DType::f16 ? 0x1p-25 * (1 + roundings) : 0;
      const double allowed = roundings * own * std::abs(want) +
                             (inner * u() + (terms + 16) * 0x1p-24 * 4) * largest + grain;
      if (!(error <= allowed)) ++bad;
      const double excess = std::isfinite(got) ? error / allowed : 1e30;
      if (excess > worst) worst = excess, at = i;
      squares += want * want;
      errors += error * error;
    }
    EXPECT_EQ(bad, 0) << what << " " << t[1].describe() << "[" << at << "]: " << load(gpu, at)
                      << " for " << cpu[at] << ", " << worst
                      << " times the bound; relative error of all "
                      << std::sqrt(errors / std::max(squares, 1e-300));
  }

  /// A norm of x (S, B, C), S * B = 48: its output, and what another operation applies.
  struct NormCase {
    Twin x, y, weight, bias, mean, rstd;
    bool centered, biased;
    AppliedNorm applied(int side) const {
      return {.weight = weight[side],
              .bias = biased ? bias[side] : Tensor(),
              .mean = centered ? mean[side] : Tensor(),
              .rstd = rstd[side]};
    }
  };
  NormCase norm_case(int64_t c, Norm norm, bool biased) {
    const bool centered = norm == Norm::layernorm;
    NormCase n{random(model(), {16, 3, c}, 2, 0.3),
               empty(model(), {16, 3, c}),
               random(model(), {c}, 0.3, 1),
               random(model(), {c}, 0.5),
               empty(DType::f32, {16, 3}),
               empty(DType::f32, {16, 3}),
               centered,
               biased};
    both([&](int i) {
      const AppliedNorm a = n.applied(i);
      return ResidualNormForward{.norm = norm,
                                 .y = n.y[i],
                                 .mean = a.mean,
                                 .rstd = a.rstd,
                                 .residual = n.x[i],
                                 .weight = a.weight,
                                 .bias = a.bias};
    });
    return n;
  }
  /// body(case, what) for both norms, with and without a bias, and widths for which norm.cu has
  /// different kernels.
  template <typename Body>
  void for_all_norms(const Body& body) {
    for (const int64_t c : {16, 80, 768, 1600, 2048, 5120, 9008})
      for (const Norm norm : {Norm::layernorm, Norm::rmsnorm})
        for (const bool biased : {true, false})
          body(norm_case(c, norm, biased), "norm " + std::to_string(int(norm)) + " of " +
                                               std::to_string(c) + (biased ? ", bias" : ""));
  }

  Ops* sides[2] = {nullptr, nullptr};

 private:
  std::vector<void*> blocks_[2];
  uint32_t seed_ = 0;
};

inline std::string dtype_name(const testing::TestParamInfo<DType>& info) {
  return name(info.param);
}
#define ALL_DTYPES(suite)                                                                    \
  INSTANTIATE_TEST_SUITE_P(Gpu, suite, testing::Values(DType::f32, DType::bf16, DType::f16), \
                           dtype_name)

}  // namespace pair
