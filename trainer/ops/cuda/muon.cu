// Muon's momentum, matrices and update. Lives here: MuonMomentum, MuonMatrix, MuonNormalize,
// MuonUpdate. All are bound by memory: 12 bytes a parameter for the momentum with fp32 gradients,
// 8 for the matrix, 6 for its norm with bf16 products, 12 for the update with a 16-bit model. The
// products between them cost far more. Numbers that change from step to step are read from
// StepState in device memory. Source: equals cpu/muon.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 8;
constexpr int kTile = 32;  // rows and columns that a block transposes through shared memory
constexpr int kTileRows = kThreads / kTile;

/// Calls body for the elements of a thread in a grid-stride loop.
template <typename Body>
__device__ __forceinline__ void each(int64_t elements, const Body& body) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += stride)
    body(i);
}

// A thread owns one element per iteration. Reads momentum and grad, writes momentum.
template <typename Grad>
__global__ void __launch_bounds__(kThreads)
    momentum_kernel(float* momentum, const Grad* grad, const StepState* state, int64_t elements,
                    float beta) {
  if (state->skip != 0) return;
  const float multiplier = state->grad_multiplier;
  each(elements, [&](int64_t i) {
    const float before = momentum[i];
    momentum[i] = before + (1.0f - beta) * (to_float(grad[i]) * multiplier - before);
  });
}

/// A part of a matrix: its rows, and where they are.
struct PartShape {
  int64_t rows, columns;
  RowPart part;
};
__device__ __forceinline__ int64_t element_of(const PartShape& s, int64_t row, int64_t column) {
  const int64_t at = row / s.part.count * s.part.period + s.part.first + row % s.part.count;
  return at * s.columns + column;
}

/// Calls body(place in the part's own memory, place in the matrix) for the elements of a thread. A
/// block owns one row per iteration, so no thread divides for each element.
template <typename Body>
__device__ __forceinline__ void each_of_rows(const PartShape& s, const Body& body) {
  for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const int64_t place = row * s.columns, element = element_of(s, row, 0);
    for (int64_t c = threadIdx.x; c < s.columns; c += kThreads) body(place + c, element + c);
  }
}

template <typename Grad>
struct MatrixArgs {
  const float* momentum;
  const Grad* grad;  // null without Nesterov
  const StepState* state;
  float beta;
};
template <typename Grad>
__device__ __forceinline__ float matrix_element(const MatrixArgs<Grad>& a, float multiplier,
                                                int64_t i) {
  const float momentum = a.momentum[i];
  if (a.grad == nullptr) return momentum;
  const float g = to_float(a.grad[i]) * multiplier;
  return g + a.beta * (momentum - g);
}

// A block owns one row of the part per iteration.
template <typename Grad>
__global__ void __launch_bounds__(kThreads)
    matrix_kernel(float* out, MatrixArgs<Grad> a, PartShape s) {
  const float multiplier = a.state->grad_multiplier;
  each_of_rows(s, [&](int64_t place, int64_t element) {
    out[place] = matrix_element(a, multiplier, element);
  });
}

// A block owns kTile x kTile elements, read by rows of the matrix and written by rows of its
// transpose through 4.1 KiB of shared memory.
template <typename Grad>
__global__ void __launch_bounds__(kThreads)
    matrix_transposed_kernel(float* out, MatrixArgs<Grad> a, PartShape s) {
  __shared__ float tile[kTile][kTile + 1];
  const float multiplier = a.state->grad_multiplier;
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t across = (s.columns + kTile - 1) / kTile;
  const int64_t row0 = blockIdx.x / across * kTile, column0 = blockIdx.x % across * kTile;
  for (int r = y; r < kTile; r += kTileRows)
    if (row0 + r < s.rows && column0 + x < s.columns)
      tile[r][x] = matrix_element(a, multiplier, element_of(s, row0 + r, column0 + x));
  __syncthreads();
  for (int c = y; c < kTile; c += kTileRows)
    if (row0 + x < s.rows && column0 + c < s.columns)
      out[(column0 + c) * s.rows + row0 + x] = tile[x][c];
}

// A thread owns one element per iteration.
template <typename Out>
__global__ void __launch_bounds__(kThreads)
    normalize_kernel(Out* out, const float* x, const float* sum_squares, int64_t elements,
                     float eps) {
  const float norm = fmaxf(sqrtf(*sum_squares), eps);
  each(elements, [&](int64_t i) { out[i] = from_float<Out>(x[i] / norm); });
}

template <typename Model>
struct UpdateArgs {
  Model* model;  // null when model parameters are main parameters
  float* main;
  const StepState* state;
  bool decays;
  float scale;
};
/// The step's numbers, read once by each thread.
struct UpdateNumbers {
  float lr, decay;
};
template <typename Model>
__device__ __forceinline__ UpdateNumbers numbers_of(const UpdateArgs<Model>& a) {
  return {a.state->lr, a.decays ? a.state->weight_decay : 0.0f};
}
template <typename Model>
__device__ __forceinline__ void update_element(const UpdateArgs<Model>& a, const UpdateNumbers& n,
                                               int64_t i, float direction) {
  const float before = a.main[i];
  const float after = before - n.lr * (a.scale * direction + n.decay * before);
  a.main[i] = after;
  if (a.model != nullptr) a.model[i] = from_float<Model>(after);
}

// A block owns one row of the part per iteration.
template <typename Model, typename Direction>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const Direction* direction, UpdateArgs<Model> a, PartShape s) {
  if (a.state->skip != 0) return;
  const UpdateNumbers n = numbers_of(a);
  each_of_rows(s, [&](int64_t place, int64_t element) {
    update_element(a, n, element, to_float(direction[place]));
  });
}

// As matrix_transposed_kernel, the other way.
template <typename Model, typename Direction>
__global__ void __launch_bounds__(kThreads)
    update_transposed_kernel(const Direction* direction, UpdateArgs<Model> a, PartShape s) {
  if (a.state->skip != 0) return;
  const UpdateNumbers n = numbers_of(a);
  __shared__ float tile[kTile][kTile + 1];
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const int64_t across = (s.columns + kTile - 1) / kTile;
  const int64_t row0 = blockIdx.x / across * kTile, column0 = blockIdx.x % across * kTile;
  for (int c = y; c < kTile; c += kTileRows)
    if (row0 + x < s.rows && column0 + c < s.columns)
      tile[c][x] = to_float(direction[(column0 + c) * s.rows + row0 + x]);
  __syncthreads();
  for (int r = y; r < kTile; r += kTileRows)
    if (row0 + r < s.rows && column0 + x < s.columns)
      update_element(a, n, element_of(s, row0 + r, column0 + x), tile[x][r]);
}

PartShape shape_of(const Tensor& matrix, const RowPart& part) {
  return {part.rows_of(matrix.shape[0]), matrix.shape[1], part};
}
int tiles(const PartShape& s) {
  return static_cast<int>(ceil_div(s.rows, kTile) * ceil_div(s.columns, kTile));
}
int rows_for(CudaOps& cuda, const PartShape& s) {
  return grid_for(s.rows, 1, cuda.multiprocessors(), kBlocksPerSm);
}
int blocks_for(CudaOps& cuda, int64_t elements) {
  return grid_for(elements, kThreads, cuda.multiprocessors(), kBlocksPerSm);
}

template <typename Grad>
void start_matrix(CudaOps& cuda, const MuonMatrix& args) {
  const MatrixArgs<Grad> a{data<float>(args.momentum), data<Grad>(args.grad),
                           data<StepState>(args.state), args.beta};
  const PartShape s = shape_of(args.momentum, args.part);
  auto* out = data<float>(args.out);
  if (args.transposed)
    matrix_transposed_kernel<Grad><<<tiles(s), kThreads, 0, cuda.stream()>>>(out, a, s);
  else
    matrix_kernel<Grad><<<rows_for(cuda, s), kThreads, 0, cuda.stream()>>>(out, a, s);
  CUDA_CHECK(cudaGetLastError());
}

template <typename Model, typename Direction>
void start_update(CudaOps& cuda, const MuonUpdate& args) {
  const UpdateArgs<Model> a{data<Model>(args.model), data<float>(args.main),
                            data<StepState>(args.state), args.decays, args.scale};
  const PartShape s = shape_of(args.main, args.part);
  const auto* direction = data<Direction>(args.direction);
  if (args.transposed)
    update_transposed_kernel<Model, Direction>
        <<<tiles(s), kThreads, 0, cuda.stream()>>>(direction, a, s);
  else
    update_kernel<Model, Direction>
        <<<rows_for(cuda, s), kThreads, 0, cuda.stream()>>>(direction, a, s);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch(CudaOps& cuda, const MuonMomentum& args) {
  const int64_t n = args.momentum.elements();
  if (n == 0) return;
  dispatch_float(args.grad.dtype, [&](auto* type) {
    using Grad = std::remove_pointer_t<decltype(type)>;
    momentum_kernel<Grad><<<blocks_for(cuda, n), kThreads, 0, cuda.stream()>>>(
        data<float>(args.momentum), data<Grad>(args.grad), data<StepState>(args.state), n,
        args.beta);
  });
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const MuonMatrix& args) {
  if (args.out.elements() == 0) return;
  dispatch_float(args.grad ? args.grad.dtype : DType::f32, [&](auto* type) {
    start_matrix<std::remove_pointer_t<decltype(type)>>(cuda, args);
  });
}

void launch(CudaOps& cuda, const MuonNormalize& args) {
  const int64_t n = args.x.elements();
  if (n == 0) return;
  dispatch_float(args.out.dtype, [&](auto* type) {
    using Out = std::remove_pointer_t<decltype(type)>;
    normalize_kernel<Out><<<blocks_for(cuda, n), kThreads, 0, cuda.stream()>>>(
        data<Out>(args.out), data<float>(args.x), data<float>(args.sum_squares), n, args.eps);
  });
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const MuonUpdate& args) {
  if (args.direction.elements() == 0) return;
  dispatch_float(args.model ? args.model.dtype : DType::f32, [&](auto* type) {
    using Model = std::remove_pointer_t<decltype(type)>;
    if (args.direction.dtype == DType::bf16)
      start_update<Model, __nv_bfloat16>(cuda, args);
    else
      start_update<Model, float>(cuda, args);
  });
}

int64_t scratch_bytes(CudaOps&, const MuonMomentum&) { return 0; }
int64_t scratch_bytes(CudaOps&, const MuonMatrix&) { return 0; }
int64_t scratch_bytes(CudaOps&, const MuonNormalize&) { return 0; }
int64_t scratch_bytes(CudaOps&, const MuonUpdate&) { return 0; }

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::MuonMomentum>;
template struct ops::Launch<ops::cuda::CudaOps, ops::MuonMatrix>;
template struct ops::Launch<ops::cuda::CudaOps, ops::MuonNormalize>;
template struct ops::Launch<ops::cuda::CudaOps, ops::MuonUpdate>;
