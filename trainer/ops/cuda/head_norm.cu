// Norms of query and key heads in packed q, k and v, forward and backward.
// Lives here: HeadNormForward, HeadNormBackward. Not here: norms of the residual stream (norm.cu).
// Bound by memory: forward reads and writes every element once, backward reads two and writes one.
// Gradients of weights and biases are summed in registers by each warp, over a block's warps in
// order, then over blocks in a fixed order (sum_partials): no atomics, the same bits every time.
// Source: Ba et al. 2016; Zhang and Sennrich 2019; equals cpu/head_norm.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/attention_layout.h"
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/head_norm.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kWarps = 8;  // of a block
constexpr int kBlocksPerSm = 4;
constexpr int kMostPerLane = 8;  // channels of a head that a lane holds: heads of up to 256

template <typename T>
struct HeadNormArgs {
  T* out;  // y, or dx
  const T* x;
  const T* dy;
  const T *q_weight, *k_weight, *q_bias, *k_bias;
  float *mean, *rstd;
  float* partial;  // backward: (blocks, 4, D): q weight, q bias, k weight, k bias
  int64_t rows;
  PackedLayout l;
  float eps;
  bool rms;
};

// The index of the statistics of head `head` (of a row's G * (N/G + 2)) among those of the G * (N/G
// + 1) normalized heads.
__device__ __forceinline__ int64_t statistic(int64_t head, int64_t members) {
  return head / (members + 2) * (members + 1) + head % (members + 2);
}

// A warp owns one head of a row at a time, in a grid-stride loop; lane i owns channels i, i + 32,
// ... Two passes over registers: mean, then the spread around it. Memory bound: reads x, writes y.
template <typename T, int kPerLane>
__global__ void __launch_bounds__(kWarps* kWarp) head_norm_forward_kernel(HeadNormArgs<T> a) {
  const int lane = static_cast<int>(threadIdx.x), d = static_cast<int>(a.l.channels);
  const int64_t members = a.l.members(), heads = a.l.groups * (members + 2);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y; i < a.rows * heads;
       i += stride) {
    const int64_t row = i / heads, head = i % heads, slot = head % (members + 2);
    const T* x = a.x + i * d;
    T* y = a.out + i * d;
    if (slot == members + 1) {  // a value head
      if (x != y)
        for (int c = lane; c < d; c += kWarp) y[c] = x[c];
      continue;
    }
    float v[kPerLane], total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int c = lane + j * kWarp;
      v[j] = c < d ? to_float(x[c]) : 0.0f;
      total += v[j];
    }
    const float mean = a.rms ? 0.0f : warp_sum(total) / static_cast<float>(d);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const float apart = lane + j * kWarp < d ? v[j] - mean : 0.0f;
      squares = fmaf(apart, apart, squares);
    }
    const float rstd = rsqrtf(warp_sum(squares) / static_cast<float>(d) + a.eps);
    const T* weight = slot == members ? a.k_weight : a.q_weight;
    const T* bias = slot == members ? a.k_bias : a.q_bias;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int c = lane + j * kWarp;
      if (c >= d) continue;
      const float shift = bias != nullptr ? to_float(bias[c]) : 0.0f;
      y[c] = from_float<T>(fmaf((v[j] - mean) * rstd, to_float(weight[c]), shift));
    }
    if (lane != 0) continue;
    const int64_t at = row * a.l.groups * (members + 1) + statistic(head, members);
    if (a.mean != nullptr) a.mean[at] = mean;
    if (a.rstd != nullptr) a.rstd[at] = rstd;
  }
}

// The same ownership. Each warp keeps four sums per channel in registers to the end; a block adds
// its warps' in order. Shared memory: kWarps * 4 * D floats. Memory bound: reads x and dy, writes
// dx.
template <typename T, int kPerLane>
__global__ void __launch_bounds__(kWarps* kWarp) head_norm_backward_kernel(HeadNormArgs<T> a) {
  extern __shared__ float sums[];  // (kWarps, 4, D)
  const int lane = static_cast<int>(threadIdx.x), d = static_cast<int>(a.l.channels);
  const int64_t members = a.l.members(), heads = a.l.groups * (members + 2);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  const float inverse = 1.0f / static_cast<float>(d);
  float of_q[2][kPerLane] = {}, of_k[2][kPerLane] = {};
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y; i < a.rows * heads;
       i += stride) {
    const int64_t row = i / heads, head = i % heads, slot = head % (members + 2);
    const T *x = a.x + i * d, *dy = a.dy + i * d;
    T* dx = a.out + i * d;
    if (slot == members + 1) {
      if (dx != dy)
        for (int c = lane; c < d; c += kWarp) dx[c] = dy[c];
      continue;
    }
    const bool key = slot == members;
    const int64_t at = row * a.l.groups * (members + 1) + statistic(head, members);
    const float mean = a.rms ? 0.0f : a.mean[at], rstd = a.rstd[at];
    const T* weight = key ? a.k_weight : a.q_weight;
    float g[kPerLane], normal[kPerLane], total = 0.0f, dot = 0.0f;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int c = lane + j * kWarp;
      const float slope = c < d ? to_float(dy[c]) : 0.0f;
      normal[j] = c < d ? (to_float(x[c]) - mean) * rstd : 0.0f;
      g[j] = c < d ? slope * to_float(weight[c]) : 0.0f;
      total += g[j];
      dot = fmaf(g[j], normal[j], dot);
      of_q[0][j] = fmaf(key ? 0.0f : slope, normal[j], of_q[0][j]);
      of_q[1][j] += key ? 0.0f : slope;
      of_k[0][j] = fmaf(key ? slope : 0.0f, normal[j], of_k[0][j]);
      of_k[1][j] += key ? slope : 0.0f;
    }
    total = a.rms ? 0.0f : warp_sum(total) * inverse;
    dot = warp_sum(dot) * inverse;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int c = lane + j * kWarp;
      if (c < d) dx[c] = from_float<T>((g[j] - total - normal[j] * dot) * rstd);
    }
  }
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int c = lane + j * kWarp;
    if (c >= d) continue;
    float* mine = sums + threadIdx.y * 4 * d;
    mine[c] = of_q[0][j];
    mine[d + c] = of_q[1][j];
    mine[2 * d + c] = of_k[0][j];
    mine[3 * d + c] = of_k[1][j];
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.y) * kWarp + lane; c < 4 * d; c += kWarps * kWarp) {
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) sum += sums[w * 4 * d + c];
    a.partial[static_cast<int64_t>(blockIdx.x) * 4 * d + c] = sum;
  }
}

PackedLayout layout_of(const HeadNorm& h) {
  return packed_layout({.num_attention_heads = h.num_attention_heads,
                        .num_query_groups = h.num_query_groups,
                        .kv_channels = h.kv_channels()},
                       h.x);
}

int blocks_of(CudaOps& cuda, const HeadNorm& h) {
  return grid_for(h.x.rows() * (h.num_attention_heads + 2 * h.num_query_groups), kWarps,
                  cuda.multiprocessors(), kBlocksPerSm);
}

template <typename T>
HeadNormArgs<T> args_of(const HeadNorm& h) {
  HeadNormArgs<T> a{};
  a.x = data<T>(h.x);
  a.q_weight = data<T>(h.q_weight);
  a.k_weight = data<T>(h.k_weight);
  a.mean = data<float>(h.mean);
  a.rstd = data<float>(h.rstd);
  a.rows = h.x.rows();
  a.l = layout_of(h);
  a.rms = h.norm == Norm::rmsnorm;
  return a;
}

/// Calls body(constant) with the fewest channels per lane that hold a head.
template <typename Body>
void dispatch_channels(int64_t channels, Body&& body) {
  if (channels <= 2 * kWarp) return body(std::integral_constant<int, 2>());
  if (channels <= 4 * kWarp) return body(std::integral_constant<int, 4>());
  if (channels <= kMostPerLane * kWarp) return body(std::integral_constant<int, kMostPerLane>());
  throw ShapeError("cuda: head_norm: kv_channels " + std::to_string(channels) + ": at most " +
                   std::to_string(kMostPerLane * kWarp));
}

}  // namespace

int64_t scratch_bytes(CudaOps&, const HeadNormForward&) { return 0; }
int64_t scratch_bytes(CudaOps& cuda, const HeadNormBackward& args) {
  return blocks_of(cuda, args.heads) * 4 * args.heads.kv_channels() * 4;
}

void launch(CudaOps& cuda, const HeadNormForward& args) {
  if (args.y.elements() == 0) return;
  const dim3 threads(kWarp, kWarps);
  const int blocks = blocks_of(cuda, args.heads);
  dispatch_float(args.y.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    HeadNormArgs<T> a = args_of<T>(args.heads);
    a.out = data<T>(args.y);
    a.q_bias = data<T>(args.q_bias);
    a.k_bias = data<T>(args.k_bias);
    a.eps = args.eps;
    dispatch_channels(a.l.channels, [&](auto per_lane) {
      head_norm_forward_kernel<T, decltype(per_lane)::value>
          <<<blocks, threads, 0, cuda.stream()>>>(a);
    });
  });
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const HeadNormBackward& args) {
  if (args.dx.elements() == 0) return;
  const dim3 threads(kWarp, kWarps);
  const int blocks = blocks_of(cuda, args.heads);
  const int64_t d = args.heads.kv_channels();
  auto* partial = reinterpret_cast<float*>(cuda.scratch(scratch_bytes(cuda, args)));
  dispatch_float(args.dx.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    HeadNormArgs<T> a = args_of<T>(args.heads);
    a.out = data<T>(args.dx);
    a.dy = data<T>(args.dy);
    a.partial = partial;
    const size_t shared = static_cast<size_t>(kWarps * 4 * d) * sizeof(float);
    dispatch_channels(d, [&](auto per_lane) {
      head_norm_backward_kernel<T, decltype(per_lane)::value>
          <<<blocks, threads, shared, cuda.stream()>>>(a);
    });
  });
  CUDA_CHECK(cudaGetLastError());
  sum_partials({{sum_target(args.dq_weight), sum_target(args.dq_bias)}, args.accumulate}, partial,
               blocks, 4 * d, d, cuda.stream());
  sum_partials({{sum_target(args.dk_weight), sum_target(args.dk_bias)}, args.accumulate},
               partial + 2 * d, blocks, 4 * d, d, cuda.stream());
}

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::HeadNormForward>;
template struct ops::Launch<ops::cuda::CudaOps, ops::HeadNormBackward>;
