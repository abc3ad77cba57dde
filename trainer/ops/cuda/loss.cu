// The loss: softmax cross entropy forward and backward in place, whole or with the vocabulary
// split, and the sums around it. Lives here: LossWeights, CrossEntropy,
// CrossEntropyStatistics, CrossEntropyGradient, AccumulateLoss. Not here: the logits' product and
// the loop over chunks. Bound by memory: a row of logits is read once, kept in shared memory where
// it fits, and written once. Source: equals cpu/loss.cc; the online maximum and sum of Milakov and
// Gimelshein 2018.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kSumThreads = 1024;
constexpr float kLog2E = 1.4426950408889634f;

/// Largest value so far and the sum of exp(value - largest).
struct Running {
  float largest, sum;
};
__device__ __forceinline__ Running merge(Running a, Running b) {
  const float largest = fmaxf(a.largest, b.largest);
  if (largest == -INFINITY) return {largest, 0.0f};
  return {largest, a.sum * exp2f((a.largest - largest) * kLog2E) +
                       b.sum * exp2f((b.largest - largest) * kLog2E)};
}
__device__ __forceinline__ Running block_merge(Running r, Running* shared) {
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2) {
    const Running other{__shfl_xor_sync(0xffffffffu, r.largest, i),
                        __shfl_xor_sync(0xffffffffu, r.sum, i)};
    r = merge(r, other);
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane == 0) shared[warp] = r;
  __syncthreads();
  r = lane < kThreads / kWarp ? shared[lane] : Running{-INFINITY, 0.0f};
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2) {
    const Running other{__shfl_xor_sync(0xffffffffu, r.largest, i),
                        __shfl_xor_sync(0xffffffffu, r.sum, i)};
    r = merge(r, other);
  }
  return r;
}

template <typename T>
struct RowArgs {
  T* logits;
  const int32_t* labels;
  const float* row_weights;
  float* token_loss;
  const StepState* state;
  const float* stats;  // (parts, R, 3), gathered; null: this kernel finds them itself
  float* stats_out;    // (R, 3) when only statistics are wanted
  int64_t rows, columns, first_token, parts;
  float factor;
  bool backward;
};

template <typename T, bool kPacked>
__device__ __forceinline__ Running row_statistics(const T* row, int64_t columns) {
  Running r{-INFINITY, 0.0f};
  if constexpr (kPacked) {
    constexpr int kSize = Pack<T>::kSize;
    const int packs = static_cast<int>(columns / kSize);
#pragma unroll 4
    for (int p = static_cast<int>(threadIdx.x); p < packs; p += kThreads) {
      const Pack<T> v = load_pack_once(row + p * kSize);
      float largest = v.get(0);
#pragma unroll
      for (int j = 1; j < kSize; ++j) largest = fmaxf(largest, v.get(j));
      if (largest > r.largest) {
        r.sum *= exp2f((r.largest - largest) * kLog2E);
        r.largest = largest;
      }
      const float shift = r.largest * kLog2E;
      if (r.largest == -INFINITY) continue;
#pragma unroll
      for (int j = 0; j < kSize; ++j) r.sum += exp2f(v.get(j) * kLog2E - shift);
    }
  } else {
    for (int64_t i = threadIdx.x; i < columns; i += kThreads)
      r = merge(r, Running{to_float(row[i]), 1.0f});
  }
  return r;
}

/// Largest value of the block, in every thread; `shared` holds 32 floats.
__device__ __forceinline__ float block_max(float x, float* shared) {
  x = warp_max(x);
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  return warp_max(lane < kThreads / kWarp ? shared[lane] : -INFINITY);
}

// For training: a block owns a row and keeps it in shared memory (columns * sizeof(T) bytes).
// The whole row is copied there without registers; then its maximum; then exp(x - maximum), which
// replaces x and is summed; then the gradient is written. Each thread reads back only its own
// packs, so they need no barrier. Only one exponential per element, because two would make their
// unit the bottleneck. The exponential is rounded to T before it is scaled and rounded again; fp16,
// which has few small numbers, computes it twice instead (kTwice). Two blocks fit on a
// multiprocessor for V = 50,304 in 16 bits.
template <typename T, bool kTwice>
__global__ void __launch_bounds__(kThreads, 2) cross_entropy_kept_kernel(RowArgs<T> a) {
  constexpr int kSize = Pack<T>::kSize;
  extern __shared__ int4 kept_bytes[];
  __shared__ float shared[2][kWarp];
  T* kept = reinterpret_cast<T*>(kept_bytes);
  const int64_t row = blockIdx.x;
  T* logits = a.logits + row * a.columns;
  const int packs = static_cast<int>(a.columns / kSize), start = static_cast<int>(threadIdx.x);
  for (int p = start; p < packs; p += kThreads) copy_async(kept + p * kSize, logits + p * kSize);
  end_copy_group();
  const int64_t label = a.labels[row];
  const bool counts = label >= 0 && label < a.columns;
  float label_logit = 0.0f;
  if (threadIdx.x == 0 && counts) label_logit = to_float(logits[label]);
  const float weight = counts ? a.row_weights[row] * a.state->loss_scale * a.factor : 0.0f;
  wait_copies<0>();
  float largest = -INFINITY;
#pragma unroll 4
  for (int p = start; p < packs; p += kThreads) {
    const Pack<T> v = load_pack(kept + p * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) largest = fmaxf(largest, v.get(j));
  }
  largest = block_max(largest, shared[0]);
  const float shift = largest * kLog2E;
  float sum = 0.0f;
#pragma unroll 2
  for (int p = start; p < packs; p += kThreads) {
    Pack<T> v = load_pack(kept + p * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float e = exp2f(fmaf(v.get(j), kLog2E, -shift));
      sum += e;
      if (!kTwice) v.set(j, e);
    }
    if (!kTwice) store_pack(kept + p * kSize, v);
  }
  sum = block_sum(sum, shared[1]);
  const float log_sum = largest + logf(sum);
  if (threadIdx.x == 0) a.token_loss[row] = counts ? log_sum - label_logit : 0.0f;
  const float multiplier = weight / sum;
  const int label_pack = counts ? static_cast<int>(label / kSize) : -1;
  const int label_place = counts ? static_cast<int>(label % kSize) : 0;
#pragma unroll 4
  for (int p = start; p < packs; p += kThreads) {
    Pack<T> v = load_pack(kept + p * kSize);
    float g[kSize];
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      g[j] = (kTwice ? exp2f(fmaf(v.get(j), kLog2E, -shift)) : v.get(j)) * multiplier;
      if (p == label_pack && j == label_place) g[j] -= weight;
      v.set(j, weight == 0.0f ? 0.0f : g[j]);
    }
    store_pack(logits + p * kSize, v);
  }
}

// For all else (evaluation, split vocabulary, rows too long to keep): a block owns a row and reads
// it again for the gradient.
template <typename T, bool kPacked>
__global__ void __launch_bounds__(kThreads, 2) cross_entropy_kernel(RowArgs<T> a) {
  __shared__ Running shared[kWarp];
  const int64_t row = blockIdx.x;
  T* logits = a.logits + row * a.columns;
  Running r{-INFINITY, 0.0f};
  float label_logit = 0.0f;
  const int64_t label = static_cast<int64_t>(a.labels[row]) - a.first_token;
  const bool mine = label >= 0 && label < a.columns;
  if (a.stats == nullptr) {
    if (threadIdx.x == 0 && mine) label_logit = to_float(logits[label]);
    r = block_merge(row_statistics<T, kPacked>(logits, a.columns), shared);
  } else {
    for (int64_t p = 0; p < a.parts; ++p) {
      const float* s = a.stats + (p * a.rows + row) * 3;
      r = merge(r, Running{s[0], s[1]});
      label_logit += s[2];
    }
  }
  if (a.stats_out != nullptr) {
    if (threadIdx.x == 0) {
      a.stats_out[row * 3] = r.largest;
      a.stats_out[row * 3 + 1] = r.sum;
      a.stats_out[row * 3 + 2] = label_logit;
    }
    return;
  }
  const float log_sum = r.largest + logf(r.sum);
  // With split vocabulary the caller's label counts when it is >= 0: some rank holds it.
  const bool counts = a.stats == nullptr ? mine : a.labels[row] >= 0;
  if (threadIdx.x == 0) a.token_loss[row] = counts ? log_sum - label_logit : 0.0f;
  if (!a.backward) return;
  const float weight = counts ? a.row_weights[row] * a.state->loss_scale * a.factor : 0.0f;
  const float shift = log_sum * kLog2E;
  const auto gradient = [&](float logit, int64_t column) {
    const float g = exp2f(fmaf(logit, kLog2E, -shift)) - (mine && column == label ? 1.0f : 0.0f);
    return weight == 0.0f ? 0.0f : g * weight;
  };
  if constexpr (kPacked) {
    constexpr int kSize = Pack<T>::kSize;
    const int packs = static_cast<int>(a.columns / kSize);
#pragma unroll 4
    for (int p = static_cast<int>(threadIdx.x); p < packs; p += kThreads) {
      Pack<T> v = load_pack(logits + p * kSize);
#pragma unroll
      for (int j = 0; j < kSize; ++j) v.set(j, gradient(v.get(j), p * kSize + j));
      store_pack(logits + p * kSize, v);
    }
  } else {
    for (int64_t i = threadIdx.x; i < a.columns; i += kThreads)
      logits[i] = from_float<T>(gradient(to_float(logits[i]), i));
  }
}

template <typename T>
void start_rows(const RowArgs<T>& a, int shared_limit, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(a.rows);
  const int64_t bytes = a.columns * static_cast<int64_t>(sizeof(T));
  if (!packable(a.columns, sizeof(T), a.logits)) {
    cross_entropy_kernel<T, false><<<blocks, kThreads, 0, stream>>>(a);
  } else if (a.backward && a.stats == nullptr && bytes + 1024 <= shared_limit) {
    auto* kernel = cross_entropy_kept_kernel<T, std::is_same_v<T, __half>>;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(bytes)));
    kernel<<<blocks, kThreads, static_cast<size_t>(bytes), stream>>>(a);
  } else {
    cross_entropy_kernel<T, true><<<blocks, kThreads, 0, stream>>>(a);
  }
  CUDA_CHECK(cudaGetLastError());
}

// One block adds everything in a fixed order; R floats are a few hundred kilobytes.
__global__ void __launch_bounds__(kSumThreads)
    loss_weights_kernel(float* weights, const float* mask, int64_t rows) {
  __shared__ float shared[kWarp];
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < rows; i += kSumThreads) sum += mask[i];
  sum = block_sum(sum, shared);
  const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
  for (int64_t i = threadIdx.x; i < rows; i += kSumThreads) weights[i] = mask[i] * inverse;
}

__global__ void __launch_bounds__(kSumThreads)
    accumulate_loss_kernel(StepState* state, const float* weights, const float* loss, int64_t rows,
                           float factor) {
  __shared__ float shared[kWarp];
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < rows; i += kSumThreads) sum += weights[i] * loss[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) state->loss += factor * sum;
}

}  // namespace

void launch(CudaOps& cuda, const CrossEntropy& args) {
  if (args.logits.elements() == 0) return;
  dispatch_float(args.logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    RowArgs<T> a{};
    a.logits = data<T>(args.logits);
    a.labels = data<int32_t>(args.labels);
    a.row_weights = data<float>(args.row_weights);
    a.token_loss = data<float>(args.token_loss);
    a.state = data<StepState>(args.state);
    a.rows = args.logits.rows();
    a.columns = args.logits.columns();
    a.factor = args.factor;
    a.backward = args.backward;
    start_rows<T>(a, cuda.shared_bytes_per_block(), cuda.stream());
  });
}

void launch(CudaOps& cuda, const CrossEntropyStatistics& args) {
  if (args.logits.elements() == 0) return;
  dispatch_float(args.logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    RowArgs<T> a{};
    a.logits = data<T>(args.logits);
    a.labels = data<int32_t>(args.labels);
    a.stats_out = data<float>(args.stats);
    a.rows = args.logits.rows();
    a.columns = args.logits.columns();
    a.first_token = args.first_token;
    start_rows<T>(a, cuda.shared_bytes_per_block(), cuda.stream());
  });
}

void launch(CudaOps& cuda, const CrossEntropyGradient& args) {
  if (args.logits.elements() == 0) return;
  dispatch_float(args.logits.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    RowArgs<T> a{};
    a.logits = data<T>(args.logits);
    a.labels = data<int32_t>(args.labels);
    a.row_weights = data<float>(args.row_weights);
    a.token_loss = data<float>(args.token_loss);
    a.state = data<StepState>(args.state);
    a.stats = data<float>(args.stats);
    a.parts = args.stats.shape[0];
    a.rows = args.logits.rows();
    a.columns = args.logits.columns();
    a.first_token = args.first_token;
    a.factor = args.factor;
    a.backward = args.backward;
    start_rows<T>(a, cuda.shared_bytes_per_block(), cuda.stream());
  });
}

void launch(CudaOps& cuda, const LossWeights& args) {
  loss_weights_kernel<<<1, kSumThreads, 0, cuda.stream()>>>(
      data<float>(args.row_weights), data<float>(args.loss_mask), args.row_weights.elements());
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const AccumulateLoss& args) {
  accumulate_loss_kernel<<<1, kSumThreads, 0, cuda.stream()>>>(
      data<StepState>(args.state), data<float>(args.row_weights), data<float>(args.token_loss),
      args.token_loss.elements(), args.factor);
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const CrossEntropy&) { return 0; }
int64_t scratch_bytes(CudaOps&, const CrossEntropyStatistics&) { return 0; }
int64_t scratch_bytes(CudaOps&, const CrossEntropyGradient&) { return 0; }
int64_t scratch_bytes(CudaOps&, const LossWeights&) { return 0; }
int64_t scratch_bytes(CudaOps&, const AccumulateLoss&) { return 0; }

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::CrossEntropy>;
template struct ops::Launch<ops::cuda::CudaOps, ops::CrossEntropyStatistics>;
template struct ops::Launch<ops::cuda::CudaOps, ops::CrossEntropyGradient>;
template struct ops::Launch<ops::cuda::CudaOps, ops::LossWeights>;
template struct ops::Launch<ops::cuda::CudaOps, ops::AccumulateLoss>;
