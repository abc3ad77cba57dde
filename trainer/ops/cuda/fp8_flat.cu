// Parts of weights in flat memory on the GPU: quantized, and the transpose of a quantized matrix.
// Not here: whole tensors (fp8.cu), scales of blocks (fp8_blocks.cu).
// Both are bound by memory: QuantizeFlat reads 2 bytes an element (16-bit types) and writes one,
// TransposeFp8 reads and writes one. Source: equals cpu/fp8_flat.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/fp8_flat.h"

#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/fp8_values.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;
// A block's tile of a matrix that is transposed, divided into one square per warp.
constexpr int kTileRows = 128, kTileColumns = 64, kSquare = 32;
constexpr int kWarpsDown = kTileRows / kSquare;
constexpr int kWords = kTileRows / kQuad;  // in a transposed column, of four rows each
static_assert(kTileColumns / kSquare * kWarpsDown * kWarp == kThreads);

// A thread rounds eight adjacent elements at a time. Shared: 32 bytes.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_flat_kernel(uint8_t* out, const float* scale, float* amax, const T* x,
                         int64_t elements, bool e5m2) {
  __shared__ float most_of_warp[kThreads / kWarp];
  const float factor = out != nullptr ? scale[kScaleFactor] : 1.0f;
  float most = 0.0f;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * kEight;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kEight;
       i < elements; i += step) {
    const Eight<T> values = load_eight(x + i);
    float v[kEight], of_eight = 0.0f;
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
      v[j] = values.get(j);
      of_eight = largest_of(of_eight, v[j]);
    }
    most = largest_of(most, of_eight);
    if (out == nullptr) continue;
    if (!isfinite(of_eight)) {  // only finite numbers saturate
#pragma unroll
      for (int j = 0; j < kEight; ++j)
        if (!isfinite(v[j])) v[j] = __int_as_float(0x7fc00000);
    }
#pragma unroll
    for (int j = 0; j < kEight; ++j) v[j] *= factor;
    *reinterpret_cast<uint2*>(out + i) =
        make_uint2(two_fp8(v[0], v[1], e5m2) | two_fp8(v[2], v[3], e5m2) << 16,
                   two_fp8(v[4], v[5], e5m2) | two_fp8(v[6], v[7], e5m2) << 16);
  }
  if (amax == nullptr) return;
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2)
    most = largest_of(most, __shfl_xor_sync(0xffffffffu, most, i));
  if (threadIdx.x % kWarp == 0) most_of_warp[threadIdx.x / kWarp] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kThreads / kWarp; ++w) most = largest_of(most, most_of_warp[w]);
  // The bits of non-negative numbers have the same order as the numbers, and a NaN is above them
  // all.
  atomicMax(reinterpret_cast<unsigned*>(amax), __float_as_uint(most));
}

// A block owns a tile of 128 rows by 64 columns, a warp 32 by 32 of it, a thread 8 adjacent bytes
// of 4 rows, as in fp8.cu's quantize_kernel. Shared: 8.25 KiB.
__global__ void __launch_bounds__(kThreads)
    transpose_fp8_kernel(uint8_t* out, const uint8_t* in, int64_t rows, int64_t columns) {
  __shared__ uint32_t transposed[kTileColumns][kWords + 1];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column_in_tile = warp / kWarpsDown * kSquare + lane % 4 * kEight;
  const int row_in_tile = warp % kWarpsDown * kSquare + lane / 4 * kQuad;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTileRows;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kTileColumns;
  const int64_t column = first_column + column_in_tile, row = first_row + row_in_tile;
  if (row < rows && column < columns) {
    uint2 loaded[kQuad];
#pragma unroll
    for (int r = 0; r < kQuad; ++r)
      loaded[r] = *reinterpret_cast<const uint2*>(in + (row + r) * columns + column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t words[kQuad], turned[kQuad];
#pragma unroll
      for (int r = 0; r < kQuad; ++r) words[r] = half == 0 ? loaded[r].x : loaded[r].y;
      transpose_four(words, turned);
      const int at = column_in_tile + half * 4, word = row_in_tile / kQuad;
#pragma unroll
      for (int j = 0; j < kQuad; ++j) transposed[at + j][word] = turned[j];
    }
  }
  __syncthreads();
  if (first_row + lane * kQuad >= rows) return;
#pragma unroll
  for (int i = 0; i < kTileColumns; i += kThreads / kWarp) {
    const int c = i + warp;
    if (first_column + c < columns)
      *reinterpret_cast<uint32_t*>(out + (first_column + c) * rows + first_row + lane * kQuad) =
          transposed[c][lane];
  }
}

}  // namespace

int64_t scratch_bytes(CudaOps&, const QuantizeFlat&) { return 0; }

void launch(CudaOps& cuda, const QuantizeFlat& args) {
  const int64_t elements = args.x.elements();
  if (elements == 0) return;
  if (!packable(elements, 1, data<char>(args.x), data<char>(args.out)))
    throw ShapeError("cuda: quantize_flat: a pointer is not a multiple of 16");
  dispatch_float(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int blocks = grid_for(elements / kEight, kThreads, cuda.multiprocessors(),
                                kBlocksPerMultiprocessor);
    quantize_flat_kernel<T><<<blocks, kThreads, 0, cuda.stream()>>>(
        data<uint8_t>(args.out), data<float>(args.scale), data<float>(args.amax), data<T>(args.x),
        elements, args.out.dtype == DType::e5m2);
  });
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const TransposeFp8&) { return 0; }

void launch(CudaOps& cuda, const TransposeFp8& args) {
  const int64_t rows = args.rows.rows(), columns = args.rows.columns();
  if (rows * columns == 0) return;
  if (!packable(columns, 1, data<char>(args.rows), data<char>(args.columns)))
    throw ShapeError("cuda: transpose_fp8: a pointer is not a multiple of 16");
  const dim3 grid(static_cast<unsigned>(ceil_div(columns, kTileColumns)),
                  static_cast<unsigned>(ceil_div(rows, kTileRows)));
  transpose_fp8_kernel<<<grid, kThreads, 0, cuda.stream()>>>(
      data<uint8_t>(args.columns), data<uint8_t>(args.rows), rows, columns);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::QuantizeFlat>;
template struct ops::Launch<ops::cuda::CudaOps, ops::TransposeFp8>;
