// Backward of residual add + dropout + norm in one pass over memory, with all its column sums.
// Lives here: ResidualNormBackward and its kernels. Bound by memory: reads dy, x and
// dresidual_out, writes dresidual (and dbranch under dropout), R*H elements each.
// Gradients of weight, bias and of the bias of the linear before are summed in registers by each
// block, then over blocks in a fixed order (sum_partials): no atomics, the same bits every time.
// Source: Ba et al. 2016; Zhang and Sennrich 2019; equals cpu/norm.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/norm_grid.h"
#include "trainer/ops/launch.h"

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

/// Sums of 2 * kRows values over the warp in few shuffles: lane i * 32 / (2 * kRows) and its
/// followers hold the sum of value i. Each of the first rounds halves the values a lane carries.
template <int kCount>
__device__ __forceinline__ float warp_sums(float (&v)[kCount], int lane) {
  int width = kWarp / 2;
#pragma unroll
  for (int count = kCount / 2; count > 0; count /= 2, width /= 2) {
    const bool high = (lane & width) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float mine = high ? v[i + count] : v[i], other = high ? v[i] : v[i + count];
      v[i] = mine + __shfl_xor_sync(0xffffffffu, other, width);
    }
  }
  float x = v[0];
#pragma unroll
  for (; width > 0; width /= 2) x += __shfl_xor_sync(0xffffffffu, x, width);
  return x;
}

// A block owns kRows rows at a time and strides over all rows; thread t owns columns [t*8, t*8+8)
// of every row, so its three column sums stay in registers to the end. Rows pass through two stages
// of shared memory (16 bytes per thread, tensor and row), which only their own thread reads, so
// they need no barrier. One barrier for each kRows rows joins the row sums; what is needed on both
// sides of it is computed again from shared memory, which costs less than registers would. Dynamic
// shared memory: 2 * 3 * kRows * 16 bytes a thread. Memory bound: reads dy, sum, dresidual, writes
// dx (and ddelta).
template <typename T, int kRows, int kMaxThreads, int kMinBlocks>
__global__ void __launch_bounds__(kMaxThreads, kMinBlocks)
    add_norm_backward_kernel(BackwardArgs<T> a) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kSums = 2 * kRows;  // of each row: the total of g, and of g times the normal
  extern __shared__ int4 stages[];
  __shared__ float shared[2][kWarp][kSums];
  static_assert(sizeof shared == kRows * kNormStaticBytes);
  const int threads = static_cast<int>(blockDim.x), warps = threads / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column = static_cast<int>(threadIdx.x) * kSize;
  const bool active = column < a.hidden;
  const float inverse_hidden = 1.0f / static_cast<float>(a.hidden);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRows;
  const auto slot = [&](int stage, int tensor, int r) {
    return stages + ((stage * 3 + tensor) * kRows + r) * threads + static_cast<int>(threadIdx.x);
  };
  const auto kept = [&](int stage, int tensor, int r) {
    return load_pack(reinterpret_cast<const T*>(slot(stage, tensor, r)));
  };
  const auto fetch = [&](int64_t from, int stage) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t element = (from + r) * a.hidden + column;
      if (from + r >= a.rows || !active) {  // zeros change no sum
        *slot(stage, 0, r) = *slot(stage, 1, r) = make_int4(0, 0, 0, 0);
        continue;
      }
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
  float scale[kRows], shift[kRows], next_mean[kRows], next_scale[kRows];  // normal = x*scale+shift
  const auto read_statistics = [&](int64_t from) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      next_mean[r] = from + r < a.rows && !a.rms ? a.mean[from + r] : 0.0f;
      next_scale[r] = from + r < a.rows ? a.inv_std[from + r] : 0.0f;
    }
  };
  fetch(first, 0);
  read_statistics(first);
  for (int stage = 0; first < a.rows; first += stride, stage ^= 1) {
    fetch(first + stride, stage ^ 1);
    float part[kSums];
    wait_copies<1>();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      scale[r] = next_scale[r];
      shift[r] = -next_mean[r] * next_scale[r];
      const Pack<T> dy = kept(stage, 0, r), x = kept(stage, 1, r);
      float total = 0.0f, dot = 0.0f;
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float g = dy.get(j) * weight[j];
        total += g;
        dot = fmaf(g, fmaf(x.get(j), scale[r], shift[r]), dot);
      }
      part[2 * r] = total;
      part[2 * r + 1] = dot;
    }
    read_statistics(first + stride);
    const float joined = warp_sums(part, lane);
    if (lane % (kWarp / kSums) == 0) shared[stage][warp][lane / (kWarp / kSums)] = joined;
    __syncthreads();
    float row_sums[kSums] = {};
#pragma unroll 4
    for (int w = 0; w < warps; ++w) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) row_sums[i] += shared[stage][w][i];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = first + r;
      if (row >= a.rows || !active) continue;
      const float total = a.rms ? 0.0f : row_sums[2 * r] * inverse_hidden;
      const float dot = row_sums[2 * r + 1] * inverse_hidden;
      const Pack<T> dy = kept(stage, 0, r), x = kept(stage, 1, r);
      Pack<T> dx, dres;
      if (a.dresidual != nullptr) dres = kept(stage, 2, r);
      float gradient[kSize];
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float d = dy.get(j), normal = fmaf(x.get(j), scale[r], shift[r]);
        dweight[j] = fmaf(d, normal, dweight[j]);
        dbias[j] += d;
        gradient[j] = (fmaf(d, weight[j], -total) - normal * dot) * scale[r];
        if (a.dresidual != nullptr) gradient[j] += dres.get(j);
        dx.set(j, gradient[j]);
      }
      const int64_t element = row * a.hidden + column;
      store_pack(a.dx + element, dx);
      if (a.drop) {
        float factor[kSize];
        dropout_factors<kSize>(a.dropout, row, column, factor);
#pragma unroll
        for (int j = 0; j < kSize; ++j) dx.set(j, gradient[j] * factor[j]);
        store_pack(a.ddelta + element, dx);
      }
#pragma unroll
      for (int j = 0; j < kSize; ++j) ddelta_bias[j] += dx.get(j);
    }
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

// Any H: one block per row for dx; the two kernels below compute the column sums.
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

// One thread per column, one slice of rows per block (blockIdx.y); fills partial as the fast kernel
// does. Runs before dx is written, because dx may be the memory of dy.
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

// dresidual = dresidual_out and dbranch = dropout'(dresidual_out), without a norm.
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

template <typename T, int kRows, int kMaxThreads, int kMinBlocks>
void start_fast(const BackwardArgs<T>& a, const NormBackwardGrid& grid, cudaStream_t stream) {
  auto* kernel = add_norm_backward_kernel<T, kRows, kMaxThreads, kMinBlocks>;
  const int bytes = grid.dynamic_bytes();
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<static_cast<unsigned>(grid.blocks), grid.threads, static_cast<size_t>(bytes), stream>>>(
      a);
}

template <typename T>
void start_fast(const BackwardArgs<T>& a, const NormBackwardGrid& grid, cudaStream_t stream) {
  if (grid.rows == 1) return start_fast<T, 1, 1024, 1>(a, grid, stream);
  if (grid.rows == 2 && grid.threads <= 128) return start_fast<T, 2, 128, 7>(a, grid, stream);
  if (grid.rows == 2 && grid.threads <= 160) return start_fast<T, 2, 160, 5>(a, grid, stream);
  if (grid.rows == 2 && grid.threads <= 512) return start_fast<T, 2, 512, 1>(a, grid, stream);
  if (grid.threads <= 128)
    start_fast<T, 4, 128, 5>(a, grid, stream);
  else if (grid.threads <= 256)
    start_fast<T, 4, 256, 2>(a, grid, stream);
  else if (grid.threads <= 512)
    start_fast<T, 4, 512, 1>(a, grid, stream);
  else
    start_fast<T, 2, 1024, 1>(a, grid, stream);
}

}  // namespace

int64_t scratch_bytes(CudaOps& cuda, const ResidualNormBackward& args) {
  if (!args.dy) return 0;
  const int64_t hidden = args.dy.columns();
  const auto pack = static_cast<int>(16 / size_bytes(args.dy.dtype));
  // Rows per block, which depend on shared memory, do not matter here.
  const NormBackwardGrid grid = norm_backward_grid(hidden, pack, cuda.multiprocessors(), 0);
  return std::max<int64_t>(grid.blocks, kPlainSlices) * 3 * hidden * 4;
}

void launch(CudaOps& cuda, const ResidualNormBackward& args) {
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
      const int blocks = grid_for(a.rows * a.hidden, 256, cuda.multiprocessors(), 16);
      dropout_backward_kernel<T><<<blocks, 256, 0, cuda.stream()>>>(a);
      return;
    }
    a.partial = reinterpret_cast<float*>(cuda.scratch(scratch_bytes(cuda, args)));
    const NormBackwardGrid grid = norm_backward_grid(
        a.hidden, Pack<T>::kSize, cuda.multiprocessors(), cuda.shared_bytes_per_block());
    int64_t parts = grid.blocks;
    const bool fast = grid.threads <= 1024 && packable(a.hidden, sizeof(T), a.dx, a.ddelta, a.dy,
                                                       a.dresidual, a.sum, a.weight);
    if (fast) {
      start_fast(a, grid, cuda.stream());
    } else {
      parts = kPlainSlices;
      const dim3 slices(static_cast<unsigned>(ceil_div(a.hidden, 128)), kPlainSlices);
      norm_column_sums_plain_kernel<T><<<slices, 128, 0, cuda.stream()>>>(a);
      add_norm_backward_plain_kernel<T>
          <<<static_cast<unsigned>(a.rows), 256, 0, cuda.stream()>>>(a);
      delta_column_sums_plain_kernel<T><<<slices, 128, 0, cuda.stream()>>>(a);
    }
    CUDA_CHECK(cudaGetLastError());
    const SumTargets targets{
        {sum_target(args.dweight), sum_target(args.dbias), sum_target(args.dbranch_bias)},
        args.accumulate};
    sum_partials(targets, a.partial, parts, 3 * a.hidden, a.hidden, cuda.stream());
  });
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::ResidualNormBackward>;
