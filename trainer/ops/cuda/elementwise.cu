// Whole-tensor writes: fill, copy with conversion, scaled add, and initial values.
// Lives here: Fill, Copy, Add, NormalFill. Bound by memory, and rarely run during a step. A thread
// owns one element per iteration (the driver does copies without conversion).
// Source: equals cpu/memory.cc; Box and Muller 1958 over Philox4x32-10.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads) fill_kernel(T* out, T value, int64_t elements) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads)
    out[i] = value;
}

template <typename Out, typename In>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(Out* out, const In* in, int64_t elements) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads)
    out[i] = from_float<Out>(to_float(in[i]));
}

template <typename Out, typename In>
__global__ void __launch_bounds__(kThreads)
    add_kernel(Out* out, const In* in, float alpha, int64_t elements) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads)
    out[i] = from_float<Out>(to_float(out[i]) + alpha * to_float(in[i]));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    normal_fill_kernel(T* out, NormalFill a, int64_t rows, int64_t columns) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows * columns;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t e = (a.first_row + i / columns) * a.whole_columns + a.first_column + i % columns;
    const auto quad = static_cast<uint64_t>(e) / 4;
    const uint4 w =
        philox(make_uint4(static_cast<uint32_t>(quad), static_cast<uint32_t>(quad >> 32), 0, 0),
               a.seed, a.stream);
    const bool second_pair = (e & 2) != 0;
    const double u = (static_cast<double>(second_pair ? w.z : w.x) + 0.5) / 4294967296.0;
    const double t = static_cast<double>(second_pair ? w.w : w.y) / 4294967296.0;
    const double r = sqrt(-2.0 * log(u));
    const double normal = (e & 1) != 0 ? r * sinpi(2.0 * t) : r * cospi(2.0 * t);
    out[i] = from_float<T>(static_cast<float>(normal) * a.std);
  }
}

}  // namespace

KernelCode code_of_kernels() noexcept {
  cudaFuncAttributes found{};
  const cudaError_t status = cudaFuncGetAttributes(&found, fill_kernel<float>);
  return {status, found.ptxVersion, found.binaryVersion};
}

void launch(CudaOps& cuda, const Fill& args) {
  const int64_t elements = args.dst.elements();
  if (elements == 0) return;
  if (args.value == 0.0f) {
    CUDA_CHECK(
        cudaMemsetAsync(args.dst.data, 0, static_cast<size_t>(args.dst.bytes()), cuda.stream()));
    return;
  }
  const int blocks = grid_for(elements, kThreads, cuda.multiprocessors(), 16);
  if (args.dst.dtype == DType::i32) {
    fill_kernel<int32_t><<<blocks, kThreads, 0, cuda.stream()>>>(
        data<int32_t>(args.dst), static_cast<int32_t>(args.value), elements);
  } else {
    dispatch_float(args.dst.dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      fill_kernel<T><<<blocks, kThreads, 0, cuda.stream()>>>(data<T>(args.dst),
                                                             static_cast<T>(args.value), elements);
    });
  }
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const Copy& args) {
  const int64_t elements = args.dst.elements();
  if (elements == 0) return;
  if (args.dst.dtype == args.src.dtype) {
    CUDA_CHECK(cudaMemcpyAsync(args.dst.data, args.src.data, static_cast<size_t>(args.dst.bytes()),
                               cudaMemcpyDefault, cuda.stream()));
    return;
  }
  dispatch_float(args.dst.dtype, [&](auto* out_type) {
    using Out = std::remove_pointer_t<decltype(out_type)>;
    dispatch_float(args.src.dtype, [&](auto* in_type) {
      using In = std::remove_pointer_t<decltype(in_type)>;
      convert_kernel<Out, In>
          <<<grid_for(elements, kThreads, cuda.multiprocessors(), 16), kThreads, 0,
             cuda.stream()>>>(data<Out>(args.dst), data<In>(args.src), elements);
    });
  });
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const Add& args) {
  const int64_t elements = args.dst.elements();
  if (elements == 0) return;
  dispatch_float(args.dst.dtype, [&](auto* out_type) {
    using Out = std::remove_pointer_t<decltype(out_type)>;
    dispatch_float(args.a.dtype, [&](auto* in_type) {
      using In = std::remove_pointer_t<decltype(in_type)>;
      add_kernel<Out, In>
          <<<grid_for(elements, kThreads, cuda.multiprocessors(), 16), kThreads, 0,
             cuda.stream()>>>(data<Out>(args.dst), data<In>(args.a), args.alpha, elements);
    });
  });
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const NormalFill& args) {
  const int64_t elements = args.out.elements();
  if (elements == 0) return;
  const int64_t columns = args.out.rank == 1 ? elements : args.out.columns();
  dispatch_float(args.out.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    normal_fill_kernel<T>
        <<<grid_for(elements, kThreads, cuda.multiprocessors(), 16), kThreads, 0, cuda.stream()>>>(
            data<T>(args.out), args, elements / columns, columns);
  });
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const Fill&) { return 0; }
int64_t scratch_bytes(CudaOps&, const Copy&) { return 0; }
int64_t scratch_bytes(CudaOps&, const Add&) { return 0; }
int64_t scratch_bytes(CudaOps&, const NormalFill&) { return 0; }

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::Fill>;
template struct ops::Launch<ops::cuda::CudaOps, ops::Copy>;
template struct ops::Launch<ops::cuda::CudaOps, ops::Add>;
template struct ops::Launch<ops::cuda::CudaOps, ops::NormalFill>;
