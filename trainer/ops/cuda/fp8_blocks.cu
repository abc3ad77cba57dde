// FP8 on the GPU with scales of rows or of blocks: QuantizeInBlocks. Not here: one scale a tensor,
// and products (fp8.cu). A tile of 128 by 128 has all values of its blocks, so one pass reads v,
// finds the blocks' largest values and writes both layouts; it is bound by memory: 2 bytes an
// element in (4 with a slope, 16-bit types), 1 or 2 out. Scales of whole rows need a pass before it
// that finds the largest values, by atomic maxima, which do not depend on an order. Column sums go
// tile by tile into scratch, then over tiles in a fixed order. Source: equals cpu/fp8.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/fp8_values.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kTile = static_cast<int>(kScaleBlock);
constexpr int kSquare = 32;  // a warp's part, both ways
constexpr int kAcross = kTile / kSquare;
constexpr int kThreads = kAcross * kAcross * kWarp;
constexpr int kWords = kTile / kQuad;  // in a transposed column, of four rows each

template <typename T>
struct BlocksArgs : ValuesOf<T> {
  uint8_t* rows_out;
  uint8_t* columns_out;
  float* row_scale;
  float* column_scale;
  float* partial;         // (tiles down, C)
  unsigned* row_most;     // (R) bits of the largest magnitudes, with scales of rows
  unsigned* column_most;  // (C)
  int64_t row_stride;     // square blocks: of row_scale and column_scale
  int64_t column_stride;
  Scaling scaling;
  bool find;  // only the largest magnitudes
  float largest;
  int margin;
  bool power_of_two, e5m2;
};

template <typename T>
__device__ __forceinline__ float factor_of(const BlocksArgs<T>& a, float most) {
  if (!isfinite(most) || most == 0.0f) return 1.0f;
  const float exact = fminf(
      fmaxf(ldexpf(__fdiv_rn(a.largest, most), -a.margin), 1.0f / kLargestFactor), kLargestFactor);
  return a.power_of_two ? __uint_as_float(__float_as_uint(exact) & 0x7f800000u) : exact;
}

/// The largest of a value over the lanes that differ in these bits.
template <int kFirst, int kEnd>
__device__ __forceinline__ float largest_of_lanes(float x) {
#pragma unroll
  for (int i = kFirst; i < kEnd; i *= 2) x = largest_of(x, __shfl_xor_sync(0xffffffffu, x, i));
  return x;
}

/// Of each row and each column of a tile, by warp: magnitudes, then factors in the first warp's
/// place; and column sums.
struct TileShared {
  float row_most[kAcross][kTile];
  float column_most[kAcross][kTile];
  float sums[kAcross][kTile];
  uint32_t transposed[kTile][kWords + 1];
};

/// The factors of the tile's rows and columns, by thread, and their scales.
template <typename T>
__device__ __forceinline__ void find_factors(const BlocksArgs<T>& a, TileShared& s,
                                             int64_t first_row, int64_t first_column) {
  const int i = static_cast<int>(threadIdx.x) % kTile;
  const bool of_columns = threadIdx.x >= kTile;
  if (threadIdx.x >= 2 * kTile) return;
  float(*most)[kTile] = of_columns ? s.column_most : s.row_most;
  const int64_t at = (of_columns ? first_column : first_row) + i;
  const bool inside = at < (of_columns ? a.columns : a.rows);
  float* scales = of_columns ? a.column_scale : a.row_scale;
  float largest = 0.0f;
  if (a.scaling == Scaling::row) {
    const unsigned* bits = of_columns ? a.column_most : a.row_most;
    if (inside && scales != nullptr) largest = __uint_as_float(bits[at]);
  } else {
    for (int w = 0; w < kAcross; ++w) largest = largest_of(largest, most[w][i]);
  }
  const float factor = factor_of(a, largest);
  most[0][i] = factor;
  if (!inside || scales == nullptr) return;
  const float scale = __fdiv_rn(1.0f, factor);
  const unsigned across = of_columns ? blockIdx.y : blockIdx.x;
  if (a.scaling == Scaling::row && across == 0) scales[at] = scale;
  if (a.scaling == Scaling::row_block)
    scales[across * (of_columns ? a.columns : a.rows) + at] = scale;
}

/// One factor for the tile, and its scale; the last tile of a row of scales fills the rest of it
/// with zeros.
template <typename T>
__device__ __forceinline__ float square_factor(const BlocksArgs<T>& a, TileShared& s) {
  float most = 0.0f;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < kAcross * kTile; i += kWarp)
    most = largest_of(most, s.row_most[i / kTile][i % kTile]);
  const float factor = factor_of(a, largest_of_lanes<1, kWarp>(most));
  if (threadIdx.x != 0) return factor;
  const float scale = __fdiv_rn(1.0f, factor);
  const auto store = [&](float* scales, int64_t stride, unsigned row, unsigned at, unsigned last) {
    if (scales == nullptr) return;
    scales[row * stride + at] = scale;
    if (at == last)
      for (int64_t rest = at + 1; rest < stride; ++rest) scales[row * stride + rest] = 0.0f;
  };
  store(a.row_scale, a.row_stride, blockIdx.y, blockIdx.x, gridDim.x - 1);
  store(a.column_scale, a.column_stride, blockIdx.x, blockIdx.y, gridDim.y - 1);
  return factor;
}

/// Blocks per multiprocessor: what registers allow.
template <typename T, Source kSource>
constexpr int kBlocks = sizeof(T) == 4 || Inputs<T, kSource>::kHasPre ? 1 : 2;

// A block owns a tile of 128 rows by 128 columns, a warp 32 by 32 of it, a thread 8 adjacent
// elements of 4 rows, which it keeps in registers. Shared: 23 KiB. A thread's part is entirely
// inside or entirely outside of the matrix, since both sizes are multiples of 16.
template <typename T, Source kSource>
__global__ void __launch_bounds__(kThreads, kBlocks<T, kSource>) blocks_kernel(BlocksArgs<T> a) {
  __shared__ TileShared s;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int down = warp % kAcross, across = warp / kAcross;
  const int column_in_tile = across * kSquare + lane % 4 * kEight;
  const int row_in_tile = down * kSquare + lane / 4 * kQuad;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t column = first_column + column_in_tile, row = first_row + row_in_tile;
  const bool inside = row < a.rows && column < a.columns;
  float v[kQuad][kEight] = {};
  if (inside) {
    Inputs<T, kSource> inputs[kQuad];
#pragma unroll
    for (int r = 0; r < kQuad; ++r) inputs[r].load(a, row + r, column);
    ColumnNorm<T, kSource> column_norm;
    column_norm.load(a, column);
#pragma unroll
    for (int r = 0; r < kQuad; ++r)
#pragma unroll
      for (int j = 0; j < kEight; ++j) v[r][j] = inputs[r].value(a, column_norm, column, j);
  }
  if (a.find || a.scaling != Scaling::row) {
#pragma unroll
    for (int r = 0; r < kQuad; ++r) {
      float most = 0.0f;
#pragma unroll
      for (int j = 0; j < kEight; ++j) most = largest_of(most, v[r][j]);
      most = largest_of_lanes<1, 4>(most);
      if (lane % 4 == 0) s.row_most[across][row_in_tile + r] = most;
    }
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
      float most = 0.0f;
#pragma unroll
      for (int r = 0; r < kQuad; ++r) most = largest_of(most, v[r][j]);
      most = largest_of_lanes<4, kWarp>(most);
      if (lane < 4) s.column_most[down][column_in_tile + j] = most;
    }
  }
  if (a.partial != nullptr && !a.find) {
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
      float sum = 0.0f;
#pragma unroll
      for (int r = 0; r < kQuad; ++r) sum += v[r][j];
#pragma unroll
      for (int i = 4; i < kWarp; i *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
      if (lane < 4) s.sums[down][column_in_tile + j] = sum;
    }
  }
  __syncthreads();
  if (a.find) {
    const int i = static_cast<int>(threadIdx.x) % kTile;
    const bool of_columns = threadIdx.x >= kTile;
    if (threadIdx.x >= 2 * kTile) return;
    unsigned* most_of = of_columns ? a.column_most : a.row_most;
    const int64_t at = (of_columns ? first_column : first_row) + i;
    if (most_of == nullptr || at >= (of_columns ? a.columns : a.rows)) return;
    float most = 0.0f;
    for (int w = 0; w < kAcross; ++w)
      most = largest_of(most, of_columns ? s.column_most[w][i] : s.row_most[w][i]);
    // The bits of non-negative numbers have the same order as the numbers, and a NaN is above them
    // all.
    atomicMax(most_of + at, __float_as_uint(most));
    return;
  }
  const bool square = a.scaling == Scaling::square_block;
  const float of_tile = square ? square_factor(a, s) : 1.0f;
  if (!square) {
    find_factors(a, s, first_row, first_column);
    __syncthreads();
  }
  if (inside) {
    float by_column[kEight];
#pragma unroll
    for (int j = 0; j < kEight; ++j)
      by_column[j] = square ? of_tile : s.column_most[0][column_in_tile + j];
    uint32_t words[2][kQuad];  // columns 0 to 3, and 4 to 7, with the columns' factors
#pragma unroll
    for (int r = 0; r < kQuad; ++r) {
      const float by_row = square ? of_tile : s.row_most[0][row_in_tile + r];
#pragma unroll
      for (int j = 0; j < kEight; ++j)  // only finite numbers saturate
        if (!isfinite(v[r][j])) v[r][j] = __int_as_float(0x7fc00000);
      const auto two = [&](int j, float x, float y) {
        return two_fp8(v[r][j] * x, v[r][j + 1] * y, a.e5m2);
      };
      if (a.rows_out != nullptr)
        *reinterpret_cast<uint2*>(a.rows_out + (row + r) * a.columns + column) =
            make_uint2(two(0, by_row, by_row) | two(2, by_row, by_row) << 16,
                       two(4, by_row, by_row) | two(6, by_row, by_row) << 16);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        words[half][r] = two(half * 4, by_column[half * 4], by_column[half * 4 + 1]) |
                         two(half * 4 + 2, by_column[half * 4 + 2], by_column[half * 4 + 3]) << 16;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t out[kQuad];
      transpose_four(words[half], out);
#pragma unroll
      for (int j = 0; j < kQuad; ++j)
        s.transposed[column_in_tile + half * 4 + j][row_in_tile / kQuad] = out[j];
    }
  }
  __syncthreads();
  if (a.columns_out != nullptr && first_row + lane * kQuad < a.rows) {
#pragma unroll
    for (int i = 0; i < kTile; i += kThreads / kWarp) {
      const int c = i + warp;
      if (first_column + c < a.columns)
        *reinterpret_cast<uint32_t*>(a.columns_out + (first_column + c) * a.rows + first_row +
                                     lane * kQuad) = s.transposed[c][lane];
    }
  }
  if (a.partial == nullptr || threadIdx.x >= kTile || first_column + threadIdx.x >= a.columns)
    return;
  float total = 0.0f;
  for (int w = 0; w < kAcross; ++w) total += s.sums[w][threadIdx.x];
  a.partial[blockIdx.y * a.columns + first_column + threadIdx.x] = total;
}

int64_t partial_count(const QuantizeInBlocks& args) {
  return args.dbias ? ceil_div(args.row_count(), kTile) * args.column_count() : 0;
}
int64_t most_count(const QuantizeInBlocks& args) {
  return args.scaling == Scaling::row ? args.row_count() + args.column_count() : 0;
}

template <typename T>
void start(const QuantizeInBlocks& args, char* scratch, cudaStream_t stream) {
  BlocksArgs<T> a{};
  static_cast<ValuesOf<T>&>(a) = values_of<T>(args);
  a.rows_out = data<uint8_t>(args.rows);
  a.columns_out = data<uint8_t>(args.columns);
  a.row_scale = data<float>(args.row_scale);
  a.column_scale = data<float>(args.column_scale);
  if (args.dbias) a.partial = reinterpret_cast<float*>(scratch);
  a.row_stride = args.row_scale ? args.row_scale.columns() : 0;
  a.column_stride = args.column_scale ? args.column_scale.columns() : 0;
  a.scaling = args.scaling;
  const DType dtype = (args.rows ? args.rows : args.columns).dtype;
  a.largest = largest_fp8(dtype);
  a.margin = args.margin;
  a.power_of_two = args.power_of_two;
  a.e5m2 = dtype == DType::e5m2;
  if (!packable(a.columns, 1, a.x, a.pre, a.weight, a.bias, a.rows_out, a.columns_out))
    throw ShapeError("cuda: quantize_in_blocks: a pointer is not a multiple of 16");
  const dim3 grid(static_cast<unsigned>(ceil_div(a.columns, kTile)),
                  static_cast<unsigned>(ceil_div(a.rows, kTile)));
  dispatch_source(args, [&](auto source) {
    if (a.scaling == Scaling::row) {
      auto* most = reinterpret_cast<unsigned*>(scratch) + partial_count(args);
      CUDA_CHECK(cudaMemsetAsync(most, 0, static_cast<size_t>(most_count(args)) * sizeof(unsigned),
                                 stream));
      if (args.rows) a.row_most = most;
      if (args.columns) a.column_most = most + a.rows;
      a.find = true;
      blocks_kernel<T, decltype(source)::value><<<grid, kThreads, 0, stream>>>(a);
      a.find = false;
    }
    blocks_kernel<T, decltype(source)::value><<<grid, kThreads, 0, stream>>>(a);
  });
}

}  // namespace

int64_t scratch_bytes(CudaOps&, const QuantizeInBlocks& args) {
  return (partial_count(args) + most_count(args)) * int64_t{sizeof(float)};
}

void launch(CudaOps& cuda, const QuantizeInBlocks& args) {
  const int64_t rows = args.row_count(), columns = args.column_count();
  if (rows * columns == 0) return;
  const int64_t bytes = scratch_bytes(cuda, args);
  char* scratch = bytes > 0 ? cuda.scratch(bytes) : nullptr;
  dispatch_float(args.x.dtype, [&](auto* type) {
    start<std::remove_pointer_t<decltype(type)>>(args, scratch, cuda.stream());
  });
  CUDA_CHECK(cudaGetLastError());
  if (args.dbias)
    sum_partials({{sum_target(args.dbias)}, args.accumulate_bias},
                 reinterpret_cast<float*>(scratch), ceil_div(rows, kTile), columns, columns,
                 cuda.stream());
}

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::QuantizeInBlocks>;
