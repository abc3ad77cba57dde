// FP8 on the GPU: one pass that quantizes in both layouts, scales, and products through cuBLASLt.
// Lives here: Quantize, UpdateScales, Fp8Product. Not here: many scales a tensor (fp8_blocks.cu),
// plans of products (gemm.cc).
// Quantize is bound by memory: it reads 2 bytes an element (4 with a slope, 16-bit types) and
// writes one or two. Column sums go tile by tile into scratch, then over tiles in a fixed order;
// the largest value does not depend on an order. Products multiply scales on the device. Source:
// equals cpu/fp8.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/fp8_values.cuh"
#include "trainer/ops/cuda/gemm.h"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

// A block's tile of v, divided into one square per warp.
constexpr int kTileRows = 128, kTileColumns = 64;
constexpr int kSquare = 32;
constexpr int kWarpsDown = kTileRows / kSquare;
constexpr int kThreads = kTileColumns / kSquare * kWarpsDown * kWarp;
constexpr int kWords = kTileRows / kQuad;  // in a transposed column, of four rows each

template <typename T>
struct QuantizeArgs : ValuesOf<T> {
  uint8_t* rows_out;
  uint8_t* columns_out;
  const float* scale;
  float* amax;
  float* partial;  // (blocks down, C)
  bool e5m2;
};

/// Blocks per multiprocessor, so that some load while others compute: as many as leave each thread
/// the registers that it needs.
template <typename T, Source kSource>
constexpr int kBlocks = sizeof(T) == 4 || Inputs<T, kSource>::kHasUp                  ? 2
                        : Inputs<T, kSource>::kHasPre || Inputs<T, kSource>::kHasNorm ? 3
                                                                                      : 4;

// A block owns a tile of 128 rows by 64 columns, a warp 32 by 32 of it, a thread 8 adjacent
// elements of 4 rows: it stores eight bytes per row and, transposed, four bytes per column in
// shared memory, from which whole columns are then written. Shared: 9 KiB. A thread's part is
// entirely inside or entirely outside of the matrix, since both sizes are multiples of 16.
template <typename T, Source kSource>
__global__ void __launch_bounds__(kThreads, kBlocks<T, kSource>)
    quantize_kernel(QuantizeArgs<T> a) {
  __shared__ uint32_t transposed[kTileColumns][kWords + 1];
  __shared__ float sums[kWarpsDown][kTileColumns];
  __shared__ float most_of_warp[kThreads / kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column_in_tile = warp / kWarpsDown * kSquare + lane % 4 * kEight;
  const int row_in_tile = warp % kWarpsDown * kSquare + lane / 4 * kQuad;
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTileRows;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kTileColumns;
  const int64_t column = first_column + column_in_tile, row = first_row + row_in_tile;
  float most = 0.0f;
  float sum[kEight] = {};
  if (row < a.rows && column < a.columns) {
    Inputs<T, kSource> inputs[kQuad];
#pragma unroll
    for (int r = 0; r < kQuad; ++r) inputs[r].load(a, row + r, column);
    ColumnNorm<T, kSource> column_norm;
    column_norm.load(a, column);
    const bool rounds = a.rows_out != nullptr || a.columns_out != nullptr;
    const float factor = rounds ? a.scale[kScaleFactor] : 1.0f;
    uint32_t low[kQuad], high[kQuad];  // columns 0 to 3, and 4 to 7
#pragma unroll
    for (int r = 0; r < kQuad; ++r) {
      float v[kEight], of_row = 0.0f;
#pragma unroll
      for (int j = 0; j < kEight; ++j) {
        v[j] = inputs[r].value(a, column_norm, column, j);
        of_row = largest_of(of_row, v[j]);
        sum[j] += v[j];
      }
      most = largest_of(most, of_row);
      if (!isfinite(of_row)) {  // only finite numbers saturate
#pragma unroll
        for (int j = 0; j < kEight; ++j)
          if (!isfinite(v[j])) v[j] = __int_as_float(0x7fc00000);
      }
#pragma unroll
      for (int j = 0; j < kEight; ++j) v[j] *= factor;
      low[r] = two_fp8(v[0], v[1], a.e5m2) | two_fp8(v[2], v[3], a.e5m2) << 16;
      high[r] = two_fp8(v[4], v[5], a.e5m2) | two_fp8(v[6], v[7], a.e5m2) << 16;
      if (a.rows_out != nullptr)
        *reinterpret_cast<uint2*>(a.rows_out + (row + r) * a.columns + column) =
            make_uint2(low[r], high[r]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t* w = half == 0 ? low : high;
      uint32_t out[kQuad];
      transpose_four(w, out);
      const int at = column_in_tile + half * 4, word = row_in_tile / kQuad;
#pragma unroll
      for (int j = 0; j < kQuad; ++j) transposed[at + j][word] = out[j];
    }
  }
  if (a.amax != nullptr) {
#pragma unroll
    for (int i = kWarp / 2; i > 0; i /= 2)
      most = largest_of(most, __shfl_xor_sync(0xffffffffu, most, i));
    if (lane == 0) most_of_warp[warp] = most;
  }
  if (a.partial != nullptr) {
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
#pragma unroll
      for (int i = 4; i < kWarp; i *= 2) sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], i);
      if (lane < 4) sums[warp % kWarpsDown][column_in_tile + j] = sum[j];
    }
  }
  __syncthreads();
  if (a.columns_out != nullptr && first_row + lane * kQuad < a.rows) {
#pragma unroll
    for (int i = 0; i < kTileColumns; i += kThreads / kWarp) {
      const int c = i + warp;
      if (first_column + c < a.columns)
        *reinterpret_cast<uint32_t*>(a.columns_out + (first_column + c) * a.rows + first_row +
                                     lane * kQuad) = transposed[c][lane];
    }
  }
  if (threadIdx.x == 0 && a.amax != nullptr) {
    for (int w = 1; w < kThreads / kWarp; ++w) most = largest_of(most, most_of_warp[w]);
    // The bits of non-negative numbers have the same order as the numbers, and a NaN is above them
    // all.
    atomicMax(reinterpret_cast<unsigned*>(a.amax), __float_as_uint(most));
  }
  if (a.partial == nullptr || threadIdx.x >= kTileColumns ||
      first_column + threadIdx.x >= a.columns)
    return;
  float total = 0.0f;
  for (int w = 0; w < kWarpsDown; ++w) total += sums[w][threadIdx.x];
  a.partial[blockIdx.y * a.columns + first_column + threadIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    update_scales_kernel(float* scale, float* amax, float* history, int64_t tensors, int64_t length,
                         float largest, int margin, bool of_all) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= tensors) return;
  float most = amax[i];
  amax[i] = 0.0f;
  if (length > 0) {
    float* entries = history + i * length;
    if (!isfinite(most)) most = entries[0];
    float of_history = most;
    for (int64_t h = length - 1; h > 0; --h) {
      entries[h] = entries[h - 1];
      of_history = fmaxf(of_history, entries[h]);
    }
    entries[0] = most;
    if (of_all) most = of_history;
  }
  float factor = 1.0f;
  if (isfinite(most) && most != 0.0f)
    factor = ldexpf(__fdiv_rn(largest, most), -margin);
  else if (length > 0)
    return;
  factor = fminf(fmaxf(factor, 1.0f / kLargestFactor), kLargestFactor);
  scale[i * kScaleSize + kScaleFactor] = factor;
  scale[i * kScaleSize + kScaleInverse] = __fdiv_rn(1.0f, factor);
}

template <typename T>
void start_quantize(const Quantize& args, float* partial, cudaStream_t stream) {
  QuantizeArgs<T> a{};
  static_cast<ValuesOf<T>&>(a) = values_of<T>(args);
  a.rows_out = data<uint8_t>(args.rows);
  a.columns_out = data<uint8_t>(args.columns);
  a.scale = data<float>(args.scale);
  a.amax = data<float>(args.amax);
  a.partial = partial;
  a.e5m2 = (args.rows ? args.rows : args.columns).dtype == DType::e5m2;
  if (!packable(a.columns, 1, a.x, a.pre, a.weight, a.bias, a.rows_out, a.columns_out))
    throw ShapeError("cuda: quantize: a pointer is not a multiple of 16");
  const dim3 grid(static_cast<unsigned>(ceil_div(a.columns, kTileColumns)),
                  static_cast<unsigned>(ceil_div(a.rows, kTileRows)));
  dispatch_source(args, [&](auto source) {
    quantize_kernel<T, decltype(source)::value><<<grid, kThreads, 0, stream>>>(a);
  });
}

}  // namespace

int64_t scratch_bytes(CudaOps&, const Quantize& args) {
  return args.dbias ? ceil_div(args.row_count(), kTileRows) * args.column_count() * 4 : 0;
}

void launch(CudaOps& cuda, const Quantize& args) {
  const int64_t rows = args.row_count(), columns = args.column_count();
  if (rows * columns == 0) return;
  auto* partial =
      args.dbias ? reinterpret_cast<float*>(cuda.scratch(scratch_bytes(cuda, args))) : nullptr;
  dispatch_float(args.x.dtype, [&](auto* type) {
    start_quantize<std::remove_pointer_t<decltype(type)>>(args, partial, cuda.stream());
  });
  CUDA_CHECK(cudaGetLastError());
  if (args.dbias)
    sum_partials({{sum_target(args.dbias)}, args.accumulate_bias}, partial,
                 ceil_div(rows, kTileRows), columns, columns, cuda.stream());
}

int64_t scratch_bytes(CudaOps&, const UpdateScales&) { return 0; }

void launch(CudaOps& cuda, const UpdateScales& args) {
  const int64_t tensors = args.amax.elements();
  if (tensors == 0) return;
  update_scales_kernel<<<static_cast<unsigned>(ceil_div(tensors, kThreads)), kThreads, 0,
                         cuda.stream()>>>(
      data<float>(args.scale), data<float>(args.amax), data<float>(args.history), tensors,
      args.history ? args.history.shape[1] : 0, largest_fp8(args.dtype), args.margin,
      args.choice == AmaxChoice::max);
  CUDA_CHECK(cudaGetLastError());
}

// y^T (N, M) = b (N, K) a^T (K, M): for cuBLASLt both operands are transposed matrices of columns.
GemmKey fp8_product_key(const Fp8Product& args) {
  const int64_t m = args.a.rows(), n = args.b.rows(), k = args.a.columns();
  return {.m = n,
          .n = m,
          .k = k,
          .lda = k,
          .ldb = k,
          .ldd = n,
          .transpose_a = true,
          .add_c = bool(args.addend),
          .a = args.b.dtype,
          .b = args.a.dtype,
          .d = args.y.dtype,
          .fast_sums = args.fast_sums,
          .a_scaling = args.b_scaling,
          .b_scaling = args.a_scaling,
          .epilogue = args.bias ? Epilogue::bias : Epilogue::none};
}

int64_t scratch_bytes(CudaOps&, const Fp8Product&) { return Gemm::kWorkspaceBytes; }

void launch(CudaOps& cuda, const Fp8Product& args) {
  if (args.y.elements() == 0) return;
  char* workspace = cuda.scratch(scratch_bytes(cuda, args));
  const int64_t inverse = args.a_scaling == Scaling::tensor ? int64_t{kScaleInverse} : 0;
  const GemmCall call{.a = args.b.data,
                      .b = args.a.data,
                      .c = args.addend.data,
                      .d = args.y.data,
                      .bias = args.bias.data,
                      .a_scale = data<float>(args.b_scale) + inverse,
                      .b_scale = data<float>(args.a_scale) + inverse};
  cuda.gemm().run(fp8_product_key(args), call, workspace, cuda.stream(), !cuda.capturing());
}

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::Quantize>;
template struct ops::Launch<ops::cuda::CudaOps, ops::UpdateScales>;
template struct ops::Launch<ops::cuda::CudaOps, ops::Fp8Product>;
