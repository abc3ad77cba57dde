// Residual add, dropout and normalisation (LayerNorm, RMSNorm) in one pass.
// Lives here: ResidualNormForward and its kernels; the backward is in norm_backward.cu.
// Rows R = S*B of H values. Statistics are fp32, and are those of the rounded residual_out, which
// is what the backward pass reads. Bound by memory: 4 tensors of R*H, 3 where only the statistics
// are wanted.
// Source: Ba et al. 2016; Zhang and Sennrich 2019; equals cpu/norm.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/norm.cuh"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kForwardThreads = 128;
constexpr int kWarpRowPacks = 8;  // up to here one warp owns a row
constexpr int kBlockRowWarps = 8;

template <typename T>
struct ForwardArgs {
  T* y;
  T* sum;  // residual_out
  float* mean;
  float* inv_std;
  const T* x;      // residual
  const T* delta;  // branch
  const T* delta_bias;
  const T* weight;
  const T* bias;
  int64_t rows;
  int hidden;
  float eps;
  bool rms;
  bool drop;
  DropoutDraw dropout;
};

// One row belongs to kWarps warps; lane l of the group owns packs l, l + 32*kWarps, ... (kPacks of
// them, the last ones masked), held in registers from load to store. Shared: 2 x 32 floats.
// Memory bound: reads x and delta, writes sum and y, 2 bytes each per element in 16-bit types.
template <typename T, int kPacks, int kWarps>
__global__ void __launch_bounds__(kWarps == 1 ? kForwardThreads : kWarps * kWarp)
    add_norm_forward_kernel(ForwardArgs<T> a) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float shared[2][kWarp];
  const int group = kWarps == 1 ? static_cast<int>(threadIdx.x) / kWarp : 0;
  const int lane =
      kWarps == 1 ? static_cast<int>(threadIdx.x) % kWarp : static_cast<int>(threadIdx.x);
  const int groups = kWarps == 1 ? kForwardThreads / kWarp : 1;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * groups + group;
  if (row >= a.rows) return;  // whole warps (kWarps == 1) or never
  const int64_t base = row * a.hidden;
  const int packs = a.hidden / kSize;

  Pack<T> value[kPacks];
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kWarp * kWarps;
    if (p < packs) value[i] = load_pack_once(a.x + base + p * kSize);
  }
  if (a.delta != nullptr) {
    Pack<T> delta[kPacks];
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int p = lane + i * kWarp * kWarps;
      if (p < packs) delta[i] = load_pack_once(a.delta + base + p * kSize);
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int p = lane + i * kWarp * kWarps;
      if (p >= packs) continue;
      float factor[kSize];
      if (a.drop) dropout_factors<kSize>(a.dropout, row, p * kSize, factor);
      Pack<T> extra;
      if (a.delta_bias != nullptr) extra = load_pack(a.delta_bias + p * kSize);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        float d = delta[i].get(j);
        if (a.delta_bias != nullptr) d += extra.get(j);
        if (a.drop) d *= factor[j];
        value[i].set(j, value[i].get(j) + d);
      }
      if (a.sum != nullptr) store_pack(a.sum + base + p * kSize, value[i]);
    }
  }
  if (a.y == nullptr && a.inv_std == nullptr) return;
  float mean = 0.0f;
  if (!a.rms) {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (lane + i * kWarp * kWarps >= packs) continue;
#pragma unroll
      for (int j = 0; j < kSize; ++j) total += value[i].get(j);
    }
    total = kWarps == 1 ? warp_sum(total) : block_sum(total, shared[0]);
    mean = total / static_cast<float>(a.hidden);
  }
  float square = 0.0f;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    if (lane + i * kWarp * kWarps >= packs) continue;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float c = value[i].get(j) - mean;
      square += c * c;
    }
  }
  square = kWarps == 1 ? warp_sum(square) : block_sum(square, shared[1]);
  const float inv_std = rsqrtf(square / static_cast<float>(a.hidden) + a.eps);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kWarp * kWarps;
    if (p >= packs || a.y == nullptr) continue;
    const Pack<T> w = load_pack(a.weight + p * kSize);
    Pack<T> y;
    if (a.bias != nullptr) {
      const Pack<T> b = load_pack(a.bias + p * kSize);
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        y.set(j, normed(value[i].get(j), mean, inv_std, w.get(j), b.get(j)));
    } else {
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        y.set(j, normed(value[i].get(j), mean, inv_std, w.get(j), kNoBias));
    }
    store_pack(a.y + base + p * kSize, y);
  }
  if (lane == 0) {
    if (a.mean != nullptr) a.mean[row] = mean;
    if (a.inv_std != nullptr) a.inv_std[row] = inv_std;
  }
}

// Any H, any alignment: one block a row, element by element, the row re-read through the cache.
template <typename T>
__global__ void __launch_bounds__(256) add_norm_forward_plain_kernel(ForwardArgs<T> a) {
  __shared__ float shared[2][kWarp];
  const int64_t row = blockIdx.x, base = row * a.hidden;
  const T* input = a.x;
  float total = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += 256) {
    float v = to_float(a.x[base + i]);
    if (a.delta != nullptr) {
      float d = to_float(a.delta[base + i]);
      if (a.delta_bias != nullptr) d += to_float(a.delta_bias[i]);
      v += a.drop ? d * dropout_factor(a.dropout, row, i) : d;
    }
    const T rounded = from_float<T>(v);
    if (a.sum != nullptr) a.sum[base + i] = rounded;
    total += to_float(rounded);
  }
  if (a.y == nullptr && a.inv_std == nullptr) return;
  if (a.sum != nullptr) input = a.sum;  // each thread reads back only what it wrote
  const float mean = a.rms ? 0.0f : block_sum(total, shared[0]) / static_cast<float>(a.hidden);
  float square = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += 256) {
    const float c = to_float(input[base + i]) - mean;
    square += c * c;
  }
  square = block_sum(square, shared[1]);
  const float inv_std = rsqrtf(square / static_cast<float>(a.hidden) + a.eps);
  if (a.y != nullptr) {
    for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += 256) {
      const float bias = a.bias != nullptr ? to_float(a.bias[i]) : kNoBias;
      a.y[base + i] = from_float<T>(
          normed(to_float(input[base + i]), mean, inv_std, to_float(a.weight[i]), bias));
    }
  }
  if (threadIdx.x == 0) {
    if (a.mean != nullptr) a.mean[row] = mean;
    if (a.inv_std != nullptr) a.inv_std[row] = inv_std;
  }
}

template <typename T, int kPacks, int kWarps>
void start_forward(const ForwardArgs<T>& a, cudaStream_t stream) {
  constexpr int kThreads = kWarps == 1 ? kForwardThreads : kWarps * kWarp;
  const int64_t blocks = kWarps == 1 ? ceil_div(a.rows, kForwardThreads / kWarp) : a.rows;
  add_norm_forward_kernel<T, kPacks, kWarps>
      <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(a);
}

template <typename T>
void start_forward(const ForwardArgs<T>& a, bool fast, cudaStream_t stream) {
  const int64_t packs = ceil_div(a.hidden, Pack<T>::kSize);
  const int64_t of_warp = ceil_div(packs, kWarp),
                of_block = ceil_div(packs, kWarp * kBlockRowWarps);
  if (!fast || of_block > 4) {
    add_norm_forward_plain_kernel<T><<<static_cast<unsigned>(a.rows), 256, 0, stream>>>(a);
    return;
  }
  if (of_warp > kWarpRowPacks) {
    if (of_block <= 2) return start_forward<T, 2, kBlockRowWarps>(a, stream);
    if (of_block == 3) return start_forward<T, 3, kBlockRowWarps>(a, stream);
    return start_forward<T, 4, kBlockRowWarps>(a, stream);
  }
  switch (of_warp) {
    case 1:
      return start_forward<T, 1, 1>(a, stream);
    case 2:
      return start_forward<T, 2, 1>(a, stream);
    case 3:
      return start_forward<T, 3, 1>(a, stream);
    case 4:
      return start_forward<T, 4, 1>(a, stream);
    case 5:
      return start_forward<T, 5, 1>(a, stream);
    case 6:
      return start_forward<T, 6, 1>(a, stream);
    case 7:
      return start_forward<T, 7, 1>(a, stream);
    default:
      return start_forward<T, 8, 1>(a, stream);
  }
}

}  // namespace

void launch(CudaOps& cuda, const ResidualNormForward& args) {
  if (args.residual.elements() == 0) return;
  dispatch_float(args.residual.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    ForwardArgs<T> a{};
    a.y = data<T>(args.y);
    a.sum = data<T>(args.residual_out);
    a.mean = data<float>(args.mean);
    a.inv_std = data<float>(args.rstd);
    a.x = data<T>(args.residual);
    a.delta = data<T>(args.branch);
    a.delta_bias = data<T>(args.branch_bias);
    a.weight = data<T>(args.weight);
    a.bias = data<T>(args.bias);
    a.rows = args.residual.rows();
    a.hidden = static_cast<int>(args.residual.columns());
    a.eps = args.eps;
    a.rms = args.norm == Norm::rmsnorm;
    a.drop = args.branch && args.dropout.p > 0;
    a.dropout = dropout_draw(args.dropout, args.residual.shape[1]);
    const bool fast =
        packable(a.hidden, sizeof(T), a.y, a.sum, a.x, a.delta, a.delta_bias, a.weight, a.bias);
    start_forward<T>(a, fast, cuda.stream());
  });
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const ResidualNormForward&) { return 0; }

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::ResidualNormForward>;
