// Device-side helpers of the CUDA operations: 16-byte packs, conversions, warp and block sums,
// Philox. Lives here: what more than one kernel file needs inside a kernel. No kernel, no launcher,
// no host state. Included by the .cu files of this folder only. A Pack is 16 bytes: 8 values of 16
// bits or 4 of fp32. Source of the generator: Salmon et al. 2011, Philox4x32-10; the CPU backend
// draws the same numbers.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "trainer/ops/dropout.h"
#include "trainer/ops/philox.h"

namespace ops::cuda {

constexpr int kWarp = 32;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/// 16 bytes of adjacent values, moved by one instruction.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T value[kSize];

  __device__ __forceinline__ float get(int i) const { return to_float(value[i]); }
  __device__ __forceinline__ void set(int i, float x) { value[i] = from_float<T>(x); }
};

template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* p) {
  int4 bits = *reinterpret_cast<const int4*>(p);
  return *reinterpret_cast<Pack<T>*>(&bits);
}
/// For values that this kernel reads once: they are evicted from the cache first.
template <typename T>
__device__ __forceinline__ Pack<T> load_pack_once(const T* p) {
  int4 bits = __ldcs(reinterpret_cast<const int4*>(p));
  return *reinterpret_cast<Pack<T>*>(&bits);
}
template <typename T>
__device__ __forceinline__ void store_pack(T* p, const Pack<T>& v) {
  *reinterpret_cast<int4*>(p) = *reinterpret_cast<const int4*>(&v);
}
template <typename T>
__device__ __forceinline__ void store_pack_once(T* p, const Pack<T>& v) {
  __stcs(reinterpret_cast<int4*>(p), *reinterpret_cast<const int4*>(&v));
}

/// Starts copying 16 bytes from global to shared memory without registers; the thread that started
/// the copy may read them after wait_copies of its group.
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kOpen of this thread's newest groups are still in flight.
template <int kOpen>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
  return x;
}

/// Sum over the block, the same value in every thread; `shared` holds 32 floats and is free again
/// only after the caller's next barrier.
__device__ __forceinline__ float block_sum(float x, float* shared) {
  x = warp_sum(x);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

/// How one tensor (S, B, C) is dropped out; see ops::Dropout, which defines it.
struct DropoutDraw {
  const StepState* state;  // device: `iteration` is read
  uint32_t seed;
  uint32_t site;
  uint32_t first_position;
  uint32_t first_sample;
  uint32_t batch;      // B: row r is position r / B of sample r % B
  uint32_t threshold;  // a value is dropped when its 16-bit lane is below this; 0: no dropout
  float scale;
};

/// Four words of Philox4x32-10.
__device__ __forceinline__ uint4 philox(uint4 c, uint32_t k0, uint32_t k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
    const uint32_t h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
    c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

__device__ __forceinline__ uint4 dropout_words(const DropoutDraw& d, int64_t row, uint32_t column) {
  const uint32_t r = static_cast<uint32_t>(row);
  const uint4 counter =
      make_uint4(column / 8, d.first_position + r / d.batch, d.first_sample + r % d.batch,
                 static_cast<uint32_t>(d.state->iteration));
  return philox(counter, d.seed, d.site);
}
__device__ __forceinline__ float dropout_factor_of(const DropoutDraw& d, const uint4& w, int lane) {
  const uint32_t word = lane / 2 == 0 ? w.x : lane / 2 == 1 ? w.y : lane / 2 == 2 ? w.z : w.w;
  const uint32_t draw = lane % 2 == 0 ? word & 0xffffu : word >> 16;
  return draw >= d.threshold ? d.scale : 0.0f;
}

/// Multipliers (0 or 1/(1-t)) of `kCount` (4 or 8) adjacent elements from `column`, a multiple of
/// kCount.
template <int kCount>
__device__ __forceinline__ void dropout_factors(const DropoutDraw& d, int64_t row, int column,
                                                float (&factor)[kCount]) {
  const uint4 w = dropout_words(d, row, static_cast<uint32_t>(column));
  if (kCount == 8) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) factor[i] = dropout_factor_of(d, w, i);
  } else {
    const bool high = (column & 4) != 0;
    const uint4 half = high ? make_uint4(w.z, w.w, 0, 0) : w;
#pragma unroll
    for (int i = 0; i < kCount; ++i) factor[i] = dropout_factor_of(d, half, i);
  }
}
/// The multiplier of one element, for code that works element by element.
__device__ __forceinline__ float dropout_factor(const DropoutDraw& d, int64_t row, int column) {
  return dropout_factor_of(d, dropout_words(d, row, static_cast<uint32_t>(column)), column & 7);
}

/// The device form of a Dropout on a tensor of batch size B; threshold 0 when p is 0.
inline DropoutDraw dropout_draw(const Dropout& d, int64_t batch) {
  DropoutDraw out{};
  out.batch = static_cast<uint32_t>(batch);
  if (d.p <= 0) return out;
  out.state = static_cast<const StepState*>(d.state.data);
  out.seed = d.seed;
  out.site = d.site;
  out.first_position = static_cast<uint32_t>(d.first_position);
  out.first_sample = static_cast<uint32_t>(d.first_sample);
  out.threshold = dropout_threshold(d.p);
  out.scale = dropout_scale(d.p);
  return out;
}

}  // namespace ops::cuda
