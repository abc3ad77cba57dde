// Embedding forward and its deterministic backward.
// Lives here: EmbeddingForward, EmbeddingBackward and their kernels. Rows are (s, b), R
// = S*B. Backward sorts the rows by table entry (stable radix sort, so equal entries stay in row
// order), cuts the sorted list into windows of kWindow rows, and adds each run of equal entries in
// order; a run cut by a window's edge leaves partial sums that a second kernel joins. No atomics.
// Bound by memory: reads dx once. Source: equals cpu/embedding.cc.
// SPDX-License-Identifier: MIT
#include <cub/device/device_radix_sort.cuh>

#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kWindow = 32;
constexpr int kThreads = 256;

template <typename T>
struct ForwardArgs {
  T* x;
  const int32_t* tokens;
  const T* token_table;
  const int32_t* positions;
  const T* position_table;
  int64_t rows, hidden;
  int64_t first_token, vocabulary;
  bool drop;
  DropoutDraw dropout;
};

// A warp owns a row. Reads two table rows, writes one.
template <typename T>
__global__ void __launch_bounds__(kThreads) embedding_forward_kernel(ForwardArgs<T> a) {
  constexpr int kSize = Pack<T>::kSize;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= a.rows) return;
  const int64_t token = a.token_table != nullptr ? a.tokens[row] - a.first_token : -1;
  const bool held = token >= 0 && token < a.vocabulary;
  const int64_t position = a.position_table != nullptr ? a.positions[row] : 0;
  for (int64_t c = lane * kSize; c < a.hidden; c += kWarp * kSize) {
    float value[kSize] = {};
    if (held) {
      const Pack<T> t = load_pack(a.token_table + token * a.hidden + c);
#pragma unroll
      for (int j = 0; j < kSize; ++j) value[j] = t.get(j);
    }
    if (a.position_table != nullptr) {
      const Pack<T> t = load_pack(a.position_table + position * a.hidden + c);
#pragma unroll
      for (int j = 0; j < kSize; ++j) value[j] += t.get(j);
    }
    if (a.drop) {
      float factor[kSize];
      dropout_factors<kSize>(a.dropout, row, static_cast<int>(c), factor);
#pragma unroll
      for (int j = 0; j < kSize; ++j) value[j] *= factor[j];
    }
    Pack<T> x;
#pragma unroll
    for (int j = 0; j < kSize; ++j) x.set(j, value[j]);
    store_pack(a.x + row * a.hidden + c, x);
  }
}
template <typename T>
__global__ void __launch_bounds__(kThreads) embedding_forward_plain_kernel(ForwardArgs<T> a) {
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < a.rows * a.hidden;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t row = i / a.hidden, c = i % a.hidden;
    const int64_t token = a.token_table != nullptr ? a.tokens[row] - a.first_token : -1;
    float value = 0.0f;
    if (token >= 0 && token < a.vocabulary) value = to_float(a.token_table[token * a.hidden + c]);
    if (a.position_table != nullptr)
      value += to_float(a.position_table[a.positions[row] * a.hidden + c]);
    if (a.drop) value *= dropout_factor(a.dropout, row, static_cast<int>(c));
    a.x[i] = from_float<T>(value);
  }
}

// keys[row] = entry of the table, or `entries` for rows that belong elsewhere; order[row] = row.
__global__ void __launch_bounds__(kThreads)
    sort_keys_kernel(uint32_t* keys, uint32_t* order, const int32_t* ids, int64_t first,
                     int64_t entries, int64_t rows) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= rows) return;
  const int64_t entry = ids[row] - first;
  keys[row] = static_cast<uint32_t>(entry >= 0 && entry < entries ? entry : entries);
  order[row] = static_cast<uint32_t>(row);
}

template <typename T>
struct BackwardArgs {
  SumTarget table;  // (entries, H)
  float* head;      // (windows, H): sum of a window's first run, when it began before the window
  float* tail;      // (windows, H): sum of a window's last run, when it continues after the window
  const T* dx;
  const uint32_t* keys;
  const uint32_t* order;
  int64_t rows, hidden, entries;
  bool drop;
  DropoutDraw dropout;
};

__device__ __forceinline__ void add_to_table(const SumTarget& t, int64_t i, float x) {
  if (t.dtype == DType::f32) {
    static_cast<float*>(t.out)[i] += x;
  } else if (t.dtype == DType::bf16) {
    auto* p = static_cast<__nv_bfloat16*>(t.out) + i;
    *p = from_float<__nv_bfloat16>(to_float(*p) + x);
  } else {
    auto* p = static_cast<__half*>(t.out) + i;
    *p = from_float<__half>(to_float(*p) + x);
  }
}

// A block owns one window; a thread owns columns threadIdx.x*kStep + k*blockDim.x*kStep, kStep of
// them.
template <typename T, int kStep>
__global__ void __launch_bounds__(kThreads) embedding_backward_kernel(BackwardArgs<T> a) {
  __shared__ uint32_t key[kWindow + 2], row[kWindow];  // key[i + 1] is of sorted place begin + i
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kWindow;
  const int count = static_cast<int>(min(static_cast<int64_t>(kWindow), a.rows - begin));
  constexpr uint32_t kNone = 0xffffffffu;
  for (int i = static_cast<int>(threadIdx.x); i < kWindow + 2; i += static_cast<int>(blockDim.x)) {
    const int64_t place = begin + i - 1;
    key[i] = place >= 0 && place < a.rows ? a.keys[place] : kNone;
    if (i < count) row[i] = a.order[begin + i];
  }
  __syncthreads();
  const int64_t mine = static_cast<int64_t>(blockIdx.x) * a.hidden;
  for (int64_t c = threadIdx.x * kStep; c < a.hidden; c += blockDim.x * kStep) {
    float sum[kStep] = {};
    int run_begin = 0;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      if (key[i + 1] < a.entries) {
        float value[kStep];
        const T* from = a.dx + static_cast<int64_t>(row[i]) * a.hidden + c;
        if constexpr (kStep > 1) {
          const Pack<T> g = load_pack(from);
#pragma unroll
          for (int j = 0; j < kStep; ++j) value[j] = g.get(j);
        } else {
          value[0] = to_float(*from);
        }
        if (a.drop) {
          if constexpr (kStep > 1) {
            float factor[kStep];
            dropout_factors<kStep>(a.dropout, row[i], static_cast<int>(c), factor);
#pragma unroll
            for (int j = 0; j < kStep; ++j) value[j] *= factor[j];
          } else {
            value[0] *= dropout_factor(a.dropout, row[i], static_cast<int>(c));
          }
        }
#pragma unroll
        for (int j = 0; j < kStep; ++j) sum[j] += value[j];
      }
      if (i + 1 < count && key[i + 2] == key[i + 1]) continue;
      // The run [run_begin, i] ends here, inside this window.
      const bool from_before = run_begin == 0 && key[0] == key[1];
      const bool goes_on = i + 1 == count && key[count + 1] == key[count];
      if (key[i + 1] < a.entries) {
#pragma unroll
        for (int j = 0; j < kStep; ++j) {
          if (from_before)
            a.head[mine + c + j] = sum[j];
          else if (goes_on)
            a.tail[mine + c + j] = sum[j];
          else
            add_to_table(a.table, static_cast<int64_t>(key[i + 1]) * a.hidden + c + j, sum[j]);
        }
      }
#pragma unroll
      for (int j = 0; j < kStep; ++j) sum[j] = 0.0f;
      run_begin = i + 1;
    }
  }
}

// Block w joins the run that begins in window w and continues: tail[w] + head[w+1] + head[w+2] +
// ...
template <typename T>
__global__ void __launch_bounds__(kThreads) embedding_join_kernel(BackwardArgs<T> a) {
  const int64_t window = blockIdx.x, begin = window * kWindow, end = begin + kWindow;
  if (end >= a.rows) return;
  const uint32_t key = a.keys[end - 1];
  if (key >= a.entries || a.keys[end] != key) return;
  if (begin > 0 && a.keys[begin] == key && a.keys[begin - 1] == key) return;  // it began earlier
  for (int64_t c = threadIdx.x; c < a.hidden; c += kThreads) {
    float sum = a.tail[window * a.hidden + c];
    for (int64_t w = window + 1; w * kWindow < a.rows && a.keys[w * kWindow] == key; ++w)
      sum += a.head[w * a.hidden + c];
    add_to_table(a.table, static_cast<int64_t>(key) * a.hidden + c, sum);
  }
}

int64_t sort_bytes(int64_t rows) {
  size_t bytes = 0;
  const uint32_t* in = nullptr;
  uint32_t* out = nullptr;
  CUDA_CHECK(
      cub::DeviceRadixSort::SortPairs(nullptr, bytes, in, out, in, out, static_cast<int>(rows)));
  return round_up(static_cast<int64_t>(bytes), 256);
}

template <typename T>
void start_backward(const EmbeddingBackward& args, const Tensor& ids, const Tensor& table,
                    int64_t first, bool accumulate, char* scratch, cudaStream_t stream) {
  const int64_t rows = args.dx.rows(), hidden = args.dx.columns(), entries = table.rows();
  const int64_t list_bytes = round_up(rows * 4, 256), windows = ceil_div(rows, kWindow);
  auto* keys = reinterpret_cast<uint32_t*>(scratch);
  auto* order = reinterpret_cast<uint32_t*>(scratch + list_bytes);
  auto* sorted_keys = reinterpret_cast<uint32_t*>(scratch + 2 * list_bytes);
  auto* sorted_order = reinterpret_cast<uint32_t*>(scratch + 3 * list_bytes);
  auto* head = reinterpret_cast<float*>(scratch + 4 * list_bytes);
  float* tail = head + windows * hidden;
  char* sort_scratch = reinterpret_cast<char*>(head) + round_up(2 * windows * hidden * 4, 256);
  size_t bytes = static_cast<size_t>(sort_bytes(rows));
  if (!accumulate)
    CUDA_CHECK(cudaMemsetAsync(table.data, 0, static_cast<size_t>(table.bytes()), stream));
  sort_keys_kernel<<<static_cast<unsigned>(ceil_div(rows, kThreads)), kThreads, 0, stream>>>(
      keys, order, data<int32_t>(ids), first, entries, rows);
  int bits = 1;
  while ((int64_t{1} << bits) <= entries) ++bits;
  CUDA_CHECK(cub::DeviceRadixSort::SortPairs(sort_scratch, bytes, keys, sorted_keys, order,
                                             sorted_order, static_cast<int>(rows), 0, bits,
                                             stream));
  BackwardArgs<T> a{};
  a.table = sum_target(table);
  a.head = head;
  a.tail = tail;
  a.dx = data<T>(args.dx);
  a.keys = sorted_keys;
  a.order = sorted_order;
  a.rows = rows;
  a.hidden = hidden;
  a.entries = entries;
  a.drop = args.dropout.p > 0;
  a.dropout = dropout_draw(args.dropout, args.dx.shape[1]);
  const auto blocks = static_cast<unsigned>(windows);
  const bool packed = packable(hidden, sizeof(T), a.dx);
  const int64_t steps = ceil_div(hidden, packed ? Pack<T>::kSize : 1);
  const int threads = static_cast<int>(std::min<int64_t>(kThreads, round_up(steps, kWarp)));
  if (packed)
    embedding_backward_kernel<T, Pack<T>::kSize><<<blocks, threads, 0, stream>>>(a);
  else
    embedding_backward_kernel<T, 1><<<blocks, threads, 0, stream>>>(a);
  embedding_join_kernel<T><<<blocks, kThreads, 0, stream>>>(a);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch(CudaOps& cuda, const EmbeddingForward& args) {
  if (args.x.elements() == 0) return;
  dispatch_float(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    ForwardArgs<T> a{};
    a.x = data<T>(args.x);
    a.tokens = data<int32_t>(args.tokens);
    a.token_table = data<T>(args.token_table);
    a.positions = data<int32_t>(args.positions);
    a.position_table = data<T>(args.position_table);
    a.rows = args.x.rows();
    a.hidden = args.x.columns();
    a.first_token = args.first_token;
    a.vocabulary = args.token_table ? args.token_table.rows() : 0;
    a.drop = args.dropout.p > 0;
    a.dropout = dropout_draw(args.dropout, args.x.shape[1]);
    if (packable(a.hidden, sizeof(T), a.x, a.token_table, a.position_table))
      embedding_forward_kernel<T><<<static_cast<unsigned>(ceil_div(a.rows, kThreads / kWarp)),
                                    kThreads, 0, cuda.stream()>>>(a);
    else
      embedding_forward_plain_kernel<T>
          <<<grid_for(a.rows * a.hidden, kThreads, cuda.multiprocessors(), 16), kThreads, 0,
             cuda.stream()>>>(a);
  });
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const EmbeddingBackward& args) {
  const int64_t rows = args.dx.rows(), windows = ceil_div(rows, kWindow);
  return 4 * round_up(rows * 4, 256) + round_up(2 * windows * args.dx.columns() * 4, 256) +
         sort_bytes(rows);
}

void launch(CudaOps& cuda, const EmbeddingBackward& args) {
  if (args.dx.elements() == 0) return;
  char* workspace = cuda.scratch(scratch_bytes(cuda, args));
  dispatch_float(args.dx.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (args.dtoken_table)
      start_backward<T>(args, args.tokens, args.dtoken_table, args.first_token,
                        args.accumulate_tokens, workspace, cuda.stream());
    if (args.dposition_table)
      start_backward<T>(args, args.positions, args.dposition_table, 0, args.accumulate_positions,
                        workspace, cuda.stream());
  });
}

int64_t scratch_bytes(CudaOps&, const EmbeddingForward&) { return 0; }

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::EmbeddingForward>;
template struct ops::Launch<ops::cuda::CudaOps, ops::EmbeddingBackward>;
