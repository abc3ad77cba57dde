// Parts of weights in flat memory on the GPU: quantized, with one scale or with scales of 128x128,
// and the transpose of a quantized matrix. Not here: whole tensors (fp8.cu, fp8_blocks.cu).
// All are bound by memory: quantizing reads 2 bytes an element (16-bit types) and writes one, with
// scales of blocks it reads them once more; TransposeFp8 reads and writes one. Source: equals
// cpu/fp8_flat.cc.
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

/// Eight numbers, rounded; those that are not finite become NaN, and only finite ones saturate.
template <typename T>
__device__ __forceinline__ uint2 eight_fp8(const Eight<T>& values, float factor, bool e5m2) {
  float v[kEight];
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    const float x = values.get(j);
    v[j] = isfinite(x) ? x * factor : __int_as_float(0x7fc00000);
  }
  return make_uint2(two_fp8(v[0], v[1], e5m2) | two_fp8(v[2], v[3], e5m2) << 16,
                    two_fp8(v[4], v[5], e5m2) | two_fp8(v[6], v[7], e5m2) << 16);
}

/// The largest over all threads, in the first one. of_warp: shared memory for each warp's.
__device__ __forceinline__ float largest_of_block(float most, float* of_warp) {
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2)
    most = largest_of(most, __shfl_xor_sync(0xffffffffu, most, i));
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = most;
  __syncthreads();
  for (int w = 1; w < kThreads / kWarp; ++w) most = largest_of(most, of_warp[w]);
  return most;
}

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
#pragma unroll
    for (int j = 0; j < kEight; ++j) most = largest_of(most, values.get(j));
    if (out != nullptr) *reinterpret_cast<uint2*>(out + i) = eight_fp8(values, factor, e5m2);
  }
  if (amax == nullptr) return;
  most = largest_of_block(most, most_of_warp);
  // The bits of non-negative numbers have the same order as the numbers, and a NaN is above them
  // all.
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<unsigned*>(amax), __float_as_uint(most));
}

/// A part of a matrix, and its largest magnitudes, by blocks of 128x128.
template <typename T>
struct InBlocksArgs {
  uint8_t* out;  // null: only the largest magnitudes are found
  float* amax;
  const T* x;
  int64_t first, elements, columns;
  float largest;
  int margin;
  bool power_of_two, e5m2;
};

__device__ __forceinline__ float factor_of_block(float most, float largest, int margin,
                                                 bool power_of_two) {
  if (!isfinite(most) || most == 0.0f) return 1.0f;
  const float exact = fminf(fmaxf(ldexpf(__fdiv_rn(largest, most), -margin), 1.0f / kLargestFactor),
                            kLargestFactor);
  return power_of_two ? __uint_as_float(__float_as_uint(exact) & 0x7f800000u) : exact;
}

// A block owns one of 128x128 elements of the matrix, a half-warp every 16th row of it, a thread 8
// adjacent elements: they are all in the part or all outside, since its ends are multiples of 128
// and rows of 16. Shared: 32 bytes.
template <typename T>
__global__ void __launch_bounds__(kThreads) in_blocks_kernel(InBlocksArgs<T> a) {
  __shared__ float most_of_warp[kThreads / kWarp];
  constexpr int kAcross = static_cast<int>(kScaleBlock) / kEight;
  const int64_t row_block = a.first / (a.columns * kScaleBlock) + blockIdx.y;
  const int64_t column = blockIdx.x * kScaleBlock + threadIdx.x % kAcross * kEight;
  float& amax = a.amax[row_block * gridDim.x + blockIdx.x];
  const float factor =
      a.out == nullptr ? 1.0f : factor_of_block(amax, a.largest, a.margin, a.power_of_two);
  float most = 0.0f;
  for (int64_t r = threadIdx.x / kAcross; r < kScaleBlock; r += kThreads / kAcross) {
    const int64_t at = (row_block * kScaleBlock + r) * a.columns + column - a.first;
    if (column >= a.columns || at < 0 || at >= a.elements) continue;
    const Eight<T> values = load_eight(a.x + at);
    if (a.out == nullptr) {
#pragma unroll
      for (int j = 0; j < kEight; ++j) most = largest_of(most, values.get(j));
    } else {
      *reinterpret_cast<uint2*>(a.out + at) = eight_fp8(values, factor, a.e5m2);
    }
  }
  if (a.out != nullptr) return;
  most = largest_of_block(most, most_of_warp);
  if (threadIdx.x == 0) amax = largest_of(most, amax);
}

// A thread computes one scale, and stores it in both layouts.
__global__ void __launch_bounds__(kThreads)
    scales_of_blocks_kernel(float* row_scale, float* column_scale, const float* amax, int64_t rows,
                            int64_t columns, float largest, int margin, bool power_of_two) {
  // The rest of a row of scales is filled with zeros.
  const int64_t wide = (columns + 3) / 4 * 4, high = (rows + 3) / 4 * 4;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t r = i / wide, c = i % wide;
  if (r >= high) return;
  const bool inside = r < rows && c < columns;
  const float scale =
      inside
          ? __fdiv_rn(1.0f, factor_of_block(amax[r * columns + c], largest, margin, power_of_two))
          : 0.0f;
  if (r < rows) row_scale[r * wide + c] = scale;
  if (c < columns) column_scale[c * high + r] = scale;
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

/// A grid of a block for each of 128x128 elements that have a part of x.
template <typename Args>
void start_in_blocks(CudaOps& cuda, const Args& args, const Tensor& out, bool power_of_two,
                     int margin) {
  const FlatPlace& place = args.place;
  const int64_t elements = args.x.elements(), high = place.columns * kScaleBlock;
  if (elements == 0) return;
  if (!packable(elements, 1, data<char>(args.x), data<char>(out)))
    throw ShapeError(std::string("cuda: ") + Args::kName + ": a pointer is not a multiple of 16");
  const dim3 grid(
      static_cast<unsigned>(place.column_blocks()),
      static_cast<unsigned>(ceil_div(place.first + elements, high) - place.first / high));
  dispatch_float(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    in_blocks_kernel<T><<<grid, kThreads, 0, cuda.stream()>>>({.out = data<uint8_t>(out),
                                                               .amax = data<float>(args.amax),
                                                               .x = data<T>(args.x),
                                                               .first = place.first,
                                                               .elements = elements,
                                                               .columns = place.columns,
                                                               .largest = largest_fp8(out.dtype),
                                                               .margin = margin,
                                                               .power_of_two = power_of_two,
                                                               .e5m2 = out.dtype == DType::e5m2});
  });
  CUDA_CHECK(cudaGetLastError());
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
    const int blocks =
        grid_for(elements / kEight, kThreads, cuda.multiprocessors(), kBlocksPerMultiprocessor);
    quantize_flat_kernel<T><<<blocks, kThreads, 0, cuda.stream()>>>(
        data<uint8_t>(args.out), data<float>(args.scale), data<float>(args.amax), data<T>(args.x),
        elements, args.out.dtype == DType::e5m2);
  });
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const AmaxOfBlocks&) { return 0; }

void launch(CudaOps& cuda, const AmaxOfBlocks& args) { start_in_blocks(cuda, args, {}, true, 0); }

int64_t scratch_bytes(CudaOps&, const QuantizeFlatInBlocks&) { return 0; }

void launch(CudaOps& cuda, const QuantizeFlatInBlocks& args) {
  start_in_blocks(cuda, args, args.out, args.power_of_two, args.margin);
}

int64_t scratch_bytes(CudaOps&, const ScalesOfBlocks&) { return 0; }

void launch(CudaOps& cuda, const ScalesOfBlocks& args) {
  const int64_t rows = args.amax.shape[0], columns = args.amax.shape[1];
  const int64_t scales = round_up(rows, 4) * round_up(columns, 4);
  if (scales == 0) return;
  scales_of_blocks_kernel<<<static_cast<unsigned>(ceil_div(scales, kThreads)), kThreads, 0,
                            cuda.stream()>>>(
      data<float>(args.row_scale), data<float>(args.column_scale), data<float>(args.amax), rows,
      columns, largest_fp8(args.dtype), args.margin, args.power_of_two);
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
template struct ops::Launch<ops::cuda::CudaOps, ops::AmaxOfBlocks>;
template struct ops::Launch<ops::cuda::CudaOps, ops::QuantizeFlatInBlocks>;
template struct ops::Launch<ops::cuda::CudaOps, ops::ScalesOfBlocks>;
template struct ops::Launch<ops::cuda::CudaOps, ops::TransposeFp8>;
