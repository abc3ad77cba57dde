// Activations forward and backward, sums over rows (bias gradients), and both in one pass.
// Lives here: ActivationForward, ActivationBackward, column_sum,
// activation_backward_sum, sum_partials. Not here: the epilogues of cuBLASLt that replace some of
// them (gemm.cc). All are bound by memory. Sums over rows go block by block into scratch, then over
// blocks in a fixed order. Source: equals cpu/activation.cc; GELU by Hendrycks and Gimpel 2016,
// SwiGLU by Shazeer 2020.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/activation.cuh"
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSumSlices = 528;   // row slices of a column sum: fixed, it decides the order
constexpr int kSumThreads = 384;  // most threads of a column sum's block

// A thread owns one pack per iteration; reads and writes 2 bytes per element in 16-bit types.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    activation_forward_kernel(T* y, const T* x, Activation kind, int64_t packs) {
  constexpr int kSize = Pack<T>::kSize;
  for (int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; p < packs;
       p += static_cast<int64_t>(gridDim.x) * kThreads) {
    Pack<T> v = load_pack_once(x + p * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) v.set(j, activate<T>(kind, v.get(j)));
    store_pack(y + p * kSize, v);
  }
}
template <typename T>
__global__ void __launch_bounds__(kThreads)
    activation_forward_plain_kernel(T* y, const T* x, Activation kind, int64_t elements) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads)
    y[i] = from_float<T>(activate<T>(kind, to_float(x[i])));
}
// x is (R, 2F) as [gate | up]; one element of y (R, F) per iteration.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(T* y, const T* x, int64_t rows, int64_t ffn) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows * ffn;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const T* row = x + i / ffn * 2 * ffn + i % ffn;
    const float gate = to_float(row[0]), up = to_float(row[ffn]);
    y[i] = from_float<T>(gate / (1.0f + expf(-gate)) * up);
  }
}
template <typename T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(T* dx, const T* dy, const T* x, int64_t rows, int64_t ffn) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows * ffn;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t e = i / ffn * 2 * ffn + i % ffn;
    const float gate = to_float(x[e]), up = to_float(x[e + ffn]), g = to_float(dy[i]);
    const float sigmoid = 1.0f / (1.0f + expf(-gate));
    dx[e] = from_float<T>(g * up * sigmoid * (1.0f + gate * (1.0f - sigmoid)));
    dx[e + ffn] = from_float<T>(g * gate * sigmoid);
  }
}

// With kActivation, dx = dy * activation'(pre); column sums of that (or of dy) where partial is
// given. A block owns the adjacent rows of slice blockIdx.y and reads whole rows (so that memory is
// read in long runs); a thread owns one pack of columns, kUnroll rows at once, and keeps its sums
// in registers to the end. Leaves partial[slice][column]. Reads dy (and pre), writes dx. Two blocks
// per multiprocessor, so that one computes while the other waits.
template <typename T, int kUnroll, Activation kActivation>
__global__ void __launch_bounds__(kSumThreads, 2)
    column_sum_kernel(float* partial, T* dx, const T* dy, const T* pre, int64_t rows,
                      int64_t columns) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr bool kSlopes = kActivation != Activation::none;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kSize;
  if (column >= columns) return;
  const int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  float sum[kSize] = {};
  const auto finish = [&](Pack<T> g, const Pack<T>& x, int64_t at) {
    if (kSlopes) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) g.set(j, g.get(j) * slope<T>(kActivation, x.get(j)));
      store_pack(dx + at, g);
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j) sum[j] += g.get(j);
  };
  int64_t row = begin, at = begin * columns + column;
  for (; row + kUnroll <= end; row += kUnroll, at += kUnroll * columns) {
    Pack<T> g[kUnroll], x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      g[u] = load_pack(dy + at + u * columns);
      if (kSlopes) x[u] = load_pack_once(pre + at + u * columns);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) finish(g[u], x[u], at + u * columns);
  }
  for (; row < end; ++row, at += columns) {
    Pack<T> x{};
    if (kSlopes) x = load_pack_once(pre + at);
    finish(load_pack(dy + at), x, at);
  }
  if (partial == nullptr) return;
#pragma unroll
  for (int j = 0; j < kSize; ++j) partial[blockIdx.y * columns + column + j] = sum[j];
}
// The same for any column count: one thread per column.
template <typename T>
__global__ void __launch_bounds__(128)
    column_sum_plain_kernel(float* partial, T* dx, const T* dy, const T* pre, Activation kind,
                            int64_t rows, int64_t columns) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const int64_t e = row * columns + column;
    T g = dy[e];
    if (pre != nullptr) g = from_float<T>(to_float(g) * slope<T>(kind, to_float(pre[e])));
    if (dx != nullptr) dx[e] = g;
    sum += to_float(g);
  }
  if (partial != nullptr) partial[blockIdx.y * columns + column] = sum;
}

__device__ __forceinline__ void add_into(const SumTarget& t, int64_t i, float x, bool accumulate) {
  if (t.dtype == DType::f32) {
    float* p = static_cast<float*>(t.out) + i;
    *p = accumulate ? *p + x : x;
  } else if (t.dtype == DType::bf16) {
    auto* p = static_cast<__nv_bfloat16*>(t.out) + i;
    *p = from_float<__nv_bfloat16>(accumulate ? to_float(*p) + x : x);
  } else {
    auto* p = static_cast<__half*>(t.out) + i;
    *p = from_float<__half>(accumulate ? to_float(*p) + x : x);
  }
}

// A block owns 32 columns of target blockIdx.y; warp w adds parts w, w+32, ..., then warp 0 adds
// the 32 sums in order. Shared: 32 x 33 floats. Bound by latency.
__global__ void __launch_bounds__(1024)
    sum_partials_kernel(SumTargets targets, const float* partial, int64_t parts, int64_t stride,
                        int64_t columns) {
  __shared__ float shared[kWarp][kWarp + 1];
  const SumTarget target = targets.target[blockIdx.y];
  if (target.out == nullptr) return;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0.0f;
  if (column < columns) {
    const float* mine = partial + blockIdx.y * columns + column;
#pragma unroll 8
    for (int64_t p = threadIdx.y; p < parts; p += kWarp) sum += mine[p * stride];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0.0f;
  for (int w = 0; w < kWarp; ++w) total += shared[w][threadIdx.x];
  add_into(target, column, total, targets.accumulate);
}

/// The grid of a column sum, a function of the columns only, because it decides the order of the
/// sums.
struct SumGrid {
  int threads;
  unsigned across, slices;
};
SumGrid sum_grid(int64_t columns, int64_t pack) {
  const int64_t packs = ceil_div(columns, pack), across = ceil_div(packs, kSumThreads);
  const int64_t slices = std::max<int64_t>(kSumSlices / across, 1);
  return {static_cast<int>(round_up(ceil_div(packs, across), kWarp)), static_cast<unsigned>(across),
          static_cast<unsigned>(slices)};
}

/// Queues the pass; returns how many rows of `partial` it fills. Without `pre` it only computes
/// sums.
template <typename T>
int64_t start_column_sum(float* partial, T* dx, const T* dy, const T* pre, Activation kind,
                         int64_t rows, int64_t columns, cudaStream_t stream) {
  const bool copies = pre != nullptr && kind == Activation::none;
  if (copies || !packable(columns, sizeof(T), dx, dy, pre)) {
    const dim3 grid(static_cast<unsigned>(ceil_div(columns, 128)), kSumSlices);
    column_sum_plain_kernel<T><<<grid, 128, 0, stream>>>(partial, dx, dy, pre, kind, rows, columns);
    CUDA_CHECK(cudaGetLastError());
    return kSumSlices;
  }
  const SumGrid grid = sum_grid(columns, Pack<T>::kSize);
  const dim3 blocks(grid.across, grid.slices);
  const auto start = [&](auto* kernel) {
    kernel<<<blocks, grid.threads, 0, stream>>>(partial, dx, dy, pre, rows, columns);
  };
  if (pre == nullptr)
    start(column_sum_kernel<T, 8, Activation::none>);
  else if (kind == Activation::gelu_tanh)
    start(column_sum_kernel<T, 4, Activation::gelu_tanh>);
  else if (kind == Activation::gelu_erf)
    start(column_sum_kernel<T, 4, Activation::gelu_erf>);
  else
    start(column_sum_kernel<T, 4, Activation::relu>);
  CUDA_CHECK(cudaGetLastError());
  return grid.slices;
}

}  // namespace

void sum_partials(const SumTargets& targets, const float* partial, int64_t parts, int64_t stride,
                  int64_t columns, cudaStream_t stream) {
  int count = 3;
  while (count > 0 && targets.target[count - 1].out == nullptr) --count;
  if (count == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(columns, kWarp)), static_cast<unsigned>(count));
  sum_partials_kernel<<<grid, dim3(kWarp, kWarp), 0, stream>>>(targets, partial, parts, stride,
                                                               columns);
  CUDA_CHECK(cudaGetLastError());
}

int64_t column_sum_scratch(int64_t columns) { return kSumSlices * columns * 4; }

void column_sum(CudaOps& cuda, const Tensor& dy, const Tensor& out, bool accumulate,
                char* workspace) {
  auto* partial = reinterpret_cast<float*>(workspace);
  const int64_t columns = dy.columns();
  dispatch_float(dy.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t slices = start_column_sum<T>(partial, nullptr, data<T>(dy), nullptr,
                                               Activation::none, dy.rows(), columns, cuda.stream());
    sum_partials({{sum_target(out)}, accumulate}, partial, slices, columns, columns, cuda.stream());
  });
}

void activation_backward_sum(CudaOps& cuda, const ActivationBackward& args, const Tensor& dbias,
                             bool accumulate, char* workspace) {
  auto* partial = dbias ? reinterpret_cast<float*>(workspace) : nullptr;
  const int64_t columns = args.dy.columns();
  dispatch_float(args.dy.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t slices =
        start_column_sum<T>(partial, data<T>(args.dx), data<T>(args.dy), data<T>(args.x),
                            args.activation, args.dy.rows(), columns, cuda.stream());
    if (dbias)
      sum_partials({{sum_target(dbias)}, accumulate}, partial, slices, columns, columns,
                   cuda.stream());
  });
}

void launch(CudaOps& cuda, const ActivationForward& args) {
  const int64_t elements = args.y.elements();
  if (elements == 0) return;
  dispatch_float(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* y = data<T>(args.y);
    const T* x = data<T>(args.x);
    const int blocks = grid_for(elements, kThreads, cuda.multiprocessors(), 32);
    if (args.activation == Activation::swiglu)
      swiglu_forward_kernel<T>
          <<<blocks, kThreads, 0, cuda.stream()>>>(y, x, args.y.rows(), args.y.columns());
    else if (packable(elements, sizeof(T), y, x))
      activation_forward_kernel<T>
          <<<grid_for(elements / Pack<T>::kSize, kThreads, cuda.multiprocessors(), 32), kThreads, 0,
             cuda.stream()>>>(y, x, args.activation, elements / Pack<T>::kSize);
    else
      activation_forward_plain_kernel<T>
          <<<blocks, kThreads, 0, cuda.stream()>>>(y, x, args.activation, elements);
  });
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const ActivationBackward& args) {
  const int64_t elements = args.dy.elements();
  if (elements == 0) return;
  if (args.activation != Activation::swiglu) {
    activation_backward_sum(cuda, args, Tensor(), false, nullptr);
    return;
  }
  dispatch_float(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    swiglu_backward_kernel<T>
        <<<grid_for(elements, kThreads, cuda.multiprocessors(), 32), kThreads, 0, cuda.stream()>>>(
            data<T>(args.dx), data<T>(args.dy), data<T>(args.x), args.dy.rows(), args.dy.columns());
  });
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const ActivationForward&) { return 0; }
int64_t scratch_bytes(CudaOps&, const ActivationBackward&) { return 0; }

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::ActivationForward>;
template struct ops::Launch<ops::cuda::CudaOps, ops::ActivationBackward>;
