// Backward of residual add + dropout + norm in one pass over memory, with all its column sums.
// Lives here: CudaOps::residual_norm_backward and its kernels. Bound by memory: reads dy, x and
// dresidual_out, writes dresidual (and dbranch under dropout), R*H elements each.
// Gradients of weight, bias and of the bias of the linear before are summed in registers by each
// block, then over blocks in a fixed order (sum_partials): no atomics, the same bits every time.
// Source: Ba et al. 2016; Zhang and Sennrich 2019; equals cpu/norm.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/check.h"
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"

namespace ops::cuda {
namespace {

constexpr int kPlainSlices = 64;  // row slices of the column sums when H is odd

template <typename T>
struct BackwardArgs {
  T* dx;
  T* ddelta;
  float* partial;  // (blocks, 3, H)
  const T* dy;
  const T* dresidual;
  const T* sum;
  const T* weight;
  const float* mean;
  const float* inv_std;
  int64_t rows;
  int hidden;
  bool rms;
  bool drop;
  DropoutDraw dropout;
};

/// Sums of 2 or 4 values over the warp with 5 or 6 shuffles: lanes [i*32/count, (i+1)*32/count)
/// hold the sum of value i.
__device__ __forceinline__ float warp_sums(const float (&v)[2], int lane) {
  const bool high = (lane & 16) != 0;
  float x = (high ? v[1] : v[0]) + __shfl_xor_sync(0xffffffffu, high ? v[0] : v[1], 16);
#pragma unroll
  for (int i = 8; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}
__device__ __forceinline__ float warp_sums(const float (&v)[4], int lane) {
  const bool high = (lane & 16) != 0, odd = (lane & 8) != 0;
  const float a = (high ? v[2] : v[0]) + __shfl_xor_sync(0xffffffffu, high ? v[0] : v[2], 16);
  const float b = (high ? v[3] : v[1]) + __shfl_xor_sync(0xffffffffu, high ? v[1] : v[3], 16);
  float x = (odd ? b : a) + __shfl_xor_sync(0xffffffffu, odd ? a : b, 8);
#pragma unroll
  for (int i = 4; i > 0; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
  return x;
}

// A block owns kRows rows at a time and strides over all rows; thread t owns columns [t*8, t*8+8)
// of every row, so its three column sums stay in registers to the end. Rows travel through kStages
// stages of shared memory (16 bytes a thread, tensor and row), which only their own thread reads:
// no barrier guards them. One barrier for each kRows rows joins the row sums. Dynamic shared
// memory: kStages * 3 * kRows * 16 bytes a thread. Memory bound: reads dy, sum, dresidual, writes
// dx (and ddelta).
template <typename T, int kRows, int kStages, int kMaxThreads>
__global__ void __launch_bounds__(kMaxThreads, kMaxThreads == 256 ? 3 : 1)
    add_norm_backward_kernel(BackwardArgs<T> a) {
  constexpr int kSize = Pack<T>::kSize;
  extern __shared__ int4 stages[];
  __shared__ float2 shared[2][kRows][kWarp];
  const int column = static_cast<int>(threadIdx.x) * kSize;
  const bool active = column < a.hidden;
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const float inverse_hidden = 1.0f / static_cast<float>(a.hidden);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRows;
  const auto slot = [&](int stage, int tensor, int r) {
    return stages + ((stage * 3 + tensor) * kRows + r) * static_cast<int>(blockDim.x) +
           static_cast<int>(threadIdx.x);
  };
  const auto fetch = [&](int64_t first, int stage) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t element = (first + r) * a.hidden + column;
      if (first + r >= a.rows || !active) continue;
      copy_async(slot(stage, 0, r), a.dy + element);
      copy_async(slot(stage, 1, r), a.sum + element);
      if (a.dresidual != nullptr) copy_async(slot(stage, 2, r), a.dresidual + element);
    }
    end_copy_group();
  };
  float weight[kSize], dweight[kSize] = {}, dbias[kSize] = {}, ddelta_bias[kSize] = {};
#pragma unroll
  for (int j = 0; j < kSize; ++j) weight[j] = active ? to_float(a.weight[column + j]) : 0.0f;
  int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  float mean[kRows], inv_std[kRows];
  const auto read_statistics = [&](int64_t at) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      mean[r] = at + r < a.rows && !a.rms ? a.mean[at + r] : 0.0f;
      inv_std[r] = at + r < a.rows ? a.inv_std[at + r] : 0.0f;
    }
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) fetch(first + s * stride, s);
  read_statistics(first);
  int stage = 0, turn = 0;
  for (; first < a.rows; first += stride, turn ^= 1) {
    fetch(first + (kStages - 1) * stride, stage == 0 ? kStages - 1 : stage - 1);
    wait_copies<kStages - 1>();
    float g[kRows][kSize], normal[kRows][kSize], spread[kRows], part[2 * kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Pack<T> dy{}, x{};  // zeros outside of the tensor: they add nothing
      if (first + r < a.rows && active) {
        dy = load_pack(reinterpret_cast<const T*>(slot(stage, 0, r)));
        x = load_pack(reinterpret_cast<const T*>(slot(stage, 1, r)));
      }
      const float shift = -mean[r] * inv_std[r];
      float total = 0.0f, dot = 0.0f;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        normal[r][j] = fmaf(x.get(j), inv_std[r], shift);
        dweight[j] = fmaf(dy.get(j), normal[r][j], dweight[j]);
        dbias[j] += dy.get(j);
        g[r][j] = dy.get(j) * weight[j];
        total += g[r][j];
        dot = fmaf(g[r][j], normal[r][j], dot);
      }
      part[2 * r] = total;
      part[2 * r + 1] = dot;
      spread[r] = inv_std[r];
    }
    const float joined = warp_sums(part, lane);
    if (lane % (kWarp / (2 * kRows)) == 0)
      reinterpret_cast<float*>(shared[turn])[(lane / (kWarp / (2 * kRows))) / 2 * (2 * kWarp) +
                                             2 * warp + (lane / (kWarp / (2 * kRows))) % 2] =
          joined;
    read_statistics(first + stride);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first + r;
      float total = 0.0f, dot = 0.0f;
      for (int w = 0; w < warps; ++w) {
        const float2 part = shared[turn][r][w];
        total += part.x;
        dot += part.y;
      }
      total = a.rms ? 0.0f : total * inverse_hidden;
      dot *= inverse_hidden;
      if (row >= a.rows || !active) continue;
      const int64_t element = row * a.hidden + column;
      Pack<T> dx, dres;
      if (a.dresidual != nullptr) dres = load_pack(reinterpret_cast<const T*>(slot(stage, 2, r)));
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        g[r][j] = (g[r][j] - total - normal[r][j] * dot) * spread[r];
        if (a.dresidual != nullptr) g[r][j] += dres.get(j);
        dx.set(j, g[r][j]);
      }
      store_pack(a.dx + element, dx);
      if (a.drop) {
        float factor[kSize];
        dropout_factors<kSize>(a.dropout, row, column, factor);
#pragma unroll
        for (int j = 0; j < kSize; ++j) dx.set(j, g[r][j] * factor[j]);
        store_pack(a.ddelta + element, dx);
      }
#pragma unroll
      for (int j = 0; j < kSize; ++j) ddelta_bias[j] += dx.get(j);
    }
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
  wait_copies<0>();
  if (!active) return;
  float* mine = a.partial + static_cast<int64_t>(blockIdx.x) * 3 * a.hidden + column;
#pragma unroll
  for (int j = 0; j < kSize; ++j) {
    mine[j] = dweight[j];
    mine[a.hidden + j] = dbias[j];
    mine[2 * a.hidden + j] = ddelta_bias[j];
  }
}

// Any H: one block a row for dx; the column sums are left to the two kernels below.
template <typename T>
__global__ void __launch_bounds__(256) add_norm_backward_plain_kernel(BackwardArgs<T> a) {
  __shared__ float shared[2][kWarp];
  const int64_t row = blockIdx.x, base = row * a.hidden;
  const float mean = a.rms ? 0.0f : a.mean[row], inv_std = a.inv_std[row];
  float total = 0.0f, dot = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += 256) {
    const float g = to_float(a.dy[base + i]) * to_float(a.weight[i]);
    total += g;
    dot += g * (to_float(a.sum[base + i]) - mean) * inv_std;
  }
  total = a.rms ? 0.0f : block_sum(total, shared[0]) / static_cast<float>(a.hidden);
  dot = block_sum(dot, shared[1]) / static_cast<float>(a.hidden);
  for (int i = static_cast<int>(threadIdx.x); i < a.hidden; i += 256) {
    const float normal = (to_float(a.sum[base + i]) - mean) * inv_std;
    const float dy = to_float(a.dy[base + i]);
    float g = (dy * to_float(a.weight[i]) - total - normal * dot) * inv_std;
    if (a.dresidual != nullptr) g += to_float(a.dresidual[base + i]);
    a.dx[base + i] = from_float<T>(g);
    if (a.drop) a.ddelta[base + i] = from_float<T>(g * dropout_factor(a.dropout, row, i));
  }
}

// One thread a column, a slice of rows a block (blockIdx.y); fills partial as the fast kernel does.
// Runs before dx is written, because dx may be the memory of dy.
template <typename T>
__global__ void __launch_bounds__(128) norm_column_sums_plain_kernel(BackwardArgs<T> a) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= a.hidden) return;
  float dweight = 0.0f, dbias = 0.0f;
  for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
    const int64_t e = row * a.hidden + column;
    const float dy = to_float(a.dy[e]);
    dweight += dy * (to_float(a.sum[e]) - (a.rms ? 0.0f : a.mean[row])) * a.inv_std[row];
    dbias += dy;
  }
  float* mine = a.partial + static_cast<int64_t>(blockIdx.y) * 3 * a.hidden + column;
  mine[0] = dweight;
  mine[a.hidden] = dbias;
}

template <typename T>
__global__ void __launch_bounds__(128) delta_column_sums_plain_kernel(BackwardArgs<T> a) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= a.hidden) return;
  const T* from = a.drop ? a.ddelta : a.dx;
  float total = 0.0f;
  for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y)
    total += to_float(from[row * a.hidden + column]);
  a.partial[(static_cast<int64_t>(blockIdx.y) * 3 + 2) * a.hidden + column] = total;
}

// dresidual = dresidual_out and dbranch = dropout'(dresidual_out), where nothing was normed.
template <typename T>
__global__ void __launch_bounds__(256) dropout_backward_kernel(BackwardArgs<T> a) {
  const int64_t elements = a.rows * a.hidden;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * 256) {
    const T g = a.dresidual[i];
    a.dx[i] = g;
    if (a.drop) {
      const float factor = dropout_factor(a.dropout, i / a.hidden, static_cast<int>(i % a.hidden));
      a.ddelta[i] = from_float<T>(to_float(g) * factor);
    }
  }
}

/// The fast kernel's grid, a function of H and the card only, because it decides the order of the
/// sums.
struct BackwardGrid {
  int threads;
  int64_t blocks;
};
BackwardGrid backward_grid(int64_t hidden, int64_t pack, int multiprocessors) {
  const int threads = static_cast<int>(round_up(ceil_div(hidden, pack), kWarp));
  return {threads, static_cast<int64_t>(multiprocessors) * std::clamp(768 / threads, 1, 8)};
}

template <typename T, int kRows, int kMaxThreads>
void start_fast(const BackwardArgs<T>& a, const BackwardGrid& grid, cudaStream_t stream) {
  constexpr int kStages = 2;
  auto* kernel = add_norm_backward_kernel<T, kRows, kStages, kMaxThreads>;
  const int bytes = kStages * 3 * kRows * 16 * grid.threads;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<static_cast<unsigned>(grid.blocks), grid.threads, static_cast<size_t>(bytes), stream>>>(
      a);
}

template <typename T>
void start_fast(const BackwardArgs<T>& a, const BackwardGrid& grid, cudaStream_t stream) {
  if (grid.threads <= 256)
    start_fast<T, 2, 256>(a, grid, stream);
  else if (grid.threads <= 512)
    start_fast<T, 2, 512>(a, grid, stream);
  else
    start_fast<T, 1, 1024>(a, grid, stream);
}

}  // namespace

int64_t norm_backward_scratch(int64_t hidden, int64_t element_bytes, int multiprocessors) {
  const BackwardGrid grid = backward_grid(hidden, 16 / element_bytes, multiprocessors);
  return std::max<int64_t>(grid.blocks, kPlainSlices) * 3 * hidden * 4;
}

void CudaOps::residual_norm_backward(const ResidualNormBackward& args) {
  check(args, device());
  if (args.dresidual.elements() == 0) return;
  dispatch_float(args.dresidual.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    BackwardArgs<T> a{};
    a.dx = data<T>(args.dresidual);
    a.ddelta = data<T>(args.dbranch);
    a.dy = data<T>(args.dy);
    a.dresidual = data<T>(args.dresidual_out);
    a.sum = data<T>(args.x);
    a.weight = data<T>(args.weight);
    a.mean = data<float>(args.mean);
    a.inv_std = data<float>(args.rstd);
    a.rows = args.dresidual.rows();
    a.hidden = static_cast<int>(args.dresidual.columns());
    a.rms = args.norm == Norm::rmsnorm;
    a.drop = args.dropout.p > 0 && args.dbranch;
    a.dropout = dropout_draw(args.dropout, args.dresidual.shape[1]);
    if (a.dy == nullptr) {
      const int blocks = grid_for(a.rows * a.hidden, 256, multiprocessors_, 16);
      dropout_backward_kernel<T><<<blocks, 256, 0, stream_>>>(a);
      return;
    }
    a.partial = reinterpret_cast<float*>(
        scratch(norm_backward_scratch(a.hidden, sizeof(T), multiprocessors_)));
    const BackwardGrid grid = backward_grid(a.hidden, Pack<T>::kSize, multiprocessors_);
    int64_t parts = grid.blocks;
    const bool fast = grid.threads <= 1024 && packable(a.hidden, sizeof(T), a.dx, a.ddelta, a.dy,
                                                       a.dresidual, a.sum, a.weight);
    if (fast) {
      start_fast(a, grid, stream_);
    } else {
      parts = kPlainSlices;
      const dim3 slices(static_cast<unsigned>(ceil_div(a.hidden, 128)), kPlainSlices);
      norm_column_sums_plain_kernel<T><<<slices, 128, 0, stream_>>>(a);
      add_norm_backward_plain_kernel<T><<<static_cast<unsigned>(a.rows), 256, 0, stream_>>>(a);
      delta_column_sums_plain_kernel<T><<<slices, 128, 0, stream_>>>(a);
    }
    CUDA_CHECK(cudaGetLastError());
    const SumTargets targets{
        {sum_target(args.dweight), sum_target(args.dbias), sum_target(args.dbranch_bias)},
        args.accumulate};
    sum_partials(targets, a.partial, parts, 3 * a.hidden, a.hidden, stream_);
  });
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace ops::cuda
