// What the quantizing kernels share: how v is computed from x, eight adjacent elements a thread,
// and rounding to bytes. No kernel, no host state. Included by fp8.cu and fp8_blocks.cu. A norm is
// applied as norm.cu does, with the same rounding of its output, so that the bytes are the same.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_fp8.h>

#include <type_traits>

#include "trainer/ops/cuda/activation.cuh"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/norm.cuh"

namespace ops::cuda {

constexpr int kEight = 8;  // adjacent elements of a row per thread
constexpr int kQuad = 4;   // rows per thread
/// Factors lie between this number's inverse and it, so that factor and inverse are normal numbers.
constexpr float kLargestFactor = 0x1p126f;

/// How v is computed. GELU's tanh form has kernels of its own.
enum class Source : uint8_t {
  plain,
  norm,
  gelu,
  activation,
  gelu_slope,
  slope,
  swiglu,
  swiglu_slope
};

/// What v (rows, columns) is computed from.
template <typename T>
struct ValuesOf {
  const T* x;
  const T* pre;
  int64_t rows, columns;
  Activation kind;
  const T* weight;  // of a norm
  const T* bias;
  const float* mean;
  const float* rstd;
};
template <typename T, typename Args>
ValuesOf<T> values_of(const Args& args) {
  return {.x = data<T>(args.x),
          .pre = data<T>(args.pre_activation),
          .rows = args.row_count(),
          .columns = args.column_count(),
          .kind = args.activation,
          .weight = data<T>(args.norm.weight),
          .bias = data<T>(args.norm.bias),
          .mean = data<float>(args.norm.mean),
          .rstd = data<float>(args.norm.rstd)};
}

/// Eight adjacent elements as stored in memory.
template <typename T>
struct Eight {
  static constexpr int kSize = Pack<T>::kSize;
  Pack<T> pack[kEight / kSize];
  __device__ __forceinline__ float get(int i) const { return pack[i / kSize].get(i % kSize); }
  __device__ __forceinline__ void set(int i, float x) { pack[i / kSize].set(i % kSize, x); }
};
template <typename T>
__device__ __forceinline__ Eight<T> load_eight(const T* p) {
  Eight<T> out;
#pragma unroll
  for (int i = 0; i < kEight / Eight<T>::kSize; ++i)
    out.pack[i] = load_pack(p + i * Eight<T>::kSize);
  return out;
}

/// What eight columns of v share in all rows: a norm's weight and bias.
template <typename T, Source kSource>
struct ColumnNorm {
  __device__ __forceinline__ void load(const ValuesOf<T>&, int64_t) {}
};
template <typename T>
struct ColumnNorm<T, Source::norm> {
  Eight<T> weight, bias;

  __device__ __forceinline__ void load(const ValuesOf<T>& a, int64_t column) {
    weight = load_eight(a.weight + column);
    if (a.bias != nullptr) {
      bias = load_eight(a.bias + column);
      return;
    }
#pragma unroll
    for (int i = 0; i < kEight; ++i) bias.set(i, kNoBias);
  }
};

/// What eight adjacent elements of v are computed from.
template <typename T, Source kSource>
struct Inputs {
  static constexpr bool kHasPre = kSource == Source::gelu_slope || kSource == Source::slope ||
                                  kSource == Source::swiglu || kSource == Source::swiglu_slope;
  static constexpr bool kHasUp = kSource == Source::swiglu_slope;
  static constexpr bool kHasNorm = kSource == Source::norm;
  Eight<T> x, pre[kHasPre ? 1 : 0], up[kHasUp ? 1 : 0];
  float mean[kHasNorm ? 1 : 0], rstd[kHasNorm ? 1 : 0];

  __device__ __forceinline__ void load(const ValuesOf<T>& a, int64_t row, int64_t column) {
    if constexpr (kSource == Source::swiglu) {
      pre[0] = load_eight(a.x + row * 2 * a.columns + column);
      x = load_eight(a.x + (row * 2 + 1) * a.columns + column);
    } else if constexpr (kSource == Source::swiglu_slope) {
      const int64_t ffn = a.columns / 2, at = column >= ffn ? column - ffn : column;
      x = load_eight(a.x + row * ffn + at);
      pre[0] = load_eight(a.pre + row * a.columns + at);
      up[0] = load_eight(a.pre + row * a.columns + ffn + at);
    } else {
      x = load_eight(a.x + row * a.columns + column);
      if constexpr (kHasPre) pre[0] = load_eight(a.pre + row * a.columns + column);
    }
    if constexpr (kHasNorm) {
      mean[0] = a.mean != nullptr ? a.mean[row] : 0.0f;
      rstd[0] = a.rstd[row];
    }
  }
  __device__ __forceinline__ float value(const ValuesOf<T>& a, const ColumnNorm<T, kSource>& norm,
                                         int64_t column, int i) const {
    const float v = x.get(i);
    if constexpr (kHasNorm)
      return to_float(
          from_float<T>(normed(v, mean[0], rstd[0], norm.weight.get(i), norm.bias.get(i))));
    if constexpr (kSource == Source::gelu) return activate<T>(Activation::gelu_tanh, v);
    if constexpr (kSource == Source::activation) return activate<T>(a.kind, v);
    if constexpr (kSource == Source::gelu_slope)
      return v * slope<T>(Activation::gelu_tanh, pre[0].get(i));
    if constexpr (kSource == Source::slope) return v * slope<T>(a.kind, pre[0].get(i));
    if constexpr (kSource == Source::swiglu || kSource == Source::swiglu_slope) {
      const float gate = pre[0].get(i), sigmoid = 1.0f / (1.0f + expf(-gate));
      if constexpr (kSource == Source::swiglu) return v * gate * sigmoid;
      if (column < a.columns / 2)
        return v * up[0].get(i) * sigmoid * (1.0f + gate * (1.0f - sigmoid));
      return v * gate * sigmoid;
    }
    return v;
  }
};

/// max(a, |x|), NaN where x is NaN.
__device__ __forceinline__ float largest_of(float a, float x) {
  float out;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(out) : "f"(a), "f"(fabsf(x)));
  return out;
}

/// Two numbers in fp8, the first in the low byte; finite ones beyond the largest become the
/// largest.
__device__ __forceinline__ uint32_t two_fp8(float x, float y, bool e5m2) {
  return e5m2 ? __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, __NV_E5M2)
              : __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, __NV_E4M3);
}

/// Four rows of four bytes become four columns.
__device__ __forceinline__ void transpose_four(const uint32_t* w, uint32_t* out) {
  const uint32_t a01 = __byte_perm(w[0], w[1], 0x5140), b01 = __byte_perm(w[0], w[1], 0x7362);
  const uint32_t a23 = __byte_perm(w[2], w[3], 0x5140), b23 = __byte_perm(w[2], w[3], 0x7362);
  out[0] = __byte_perm(a01, a23, 0x5410);
  out[1] = __byte_perm(a01, a23, 0x7632);
  out[2] = __byte_perm(b01, b23, 0x5410);
  out[3] = __byte_perm(b01, b23, 0x7632);
}

/// body(std::integral_constant<Source, ...>) for an operation's activation or norm.
template <typename Args, typename Body>
void dispatch_source(const Args& a, const Body& body) {
  const auto of = [&]<Source kSource>() { body(std::integral_constant<Source, kSource>()); };
  const bool slope = bool(a.pre_activation);
  if (a.norm) return of.template operator()<Source::norm>();
  switch (a.activation) {
    case Activation::none:
      return of.template operator()<Source::plain>();
    case Activation::gelu_tanh:
      return slope ? of.template operator()<Source::gelu_slope>()
                   : of.template operator()<Source::gelu>();
    case Activation::swiglu:
      return slope ? of.template operator()<Source::swiglu_slope>()
                   : of.template operator()<Source::swiglu>();
    default:
      return slope ? of.template operator()<Source::slope>()
                   : of.template operator()<Source::activation>();
  }
}

}  // namespace ops::cuda
