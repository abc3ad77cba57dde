// Attention by plain matrix products and a softmax kernel: for fp32, and head sizes that cuDNN does
// not support. Lives here: attention_forward_plain, attention_backward_plain. One sample and one
// member of every group at a time: products batched over the G groups, scores (G, S, S) in scratch.
// Deterministic, with the same dropout mask as the CPU backend. For tests and small runs: it moves
// the whole score matrix several times. Source: equals cpu/attention.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/attention_layout.h"
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/gemm.h"
#include "trainer/ops/cuda/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 256;

/// What the softmax kernels need to know of one (sample, member): head of group g is g * members +
/// member.
struct Part {
  PackedLayout l;
  int64_t sample, member;
  float scale;
  bool causal, drop;
  const int32_t* first_key;  // (S, B) or null
  float* stats;              // (B, N, S) or null
  uint32_t first_head;
  DropoutDraw dropout;
};

__device__ __forceinline__ float attention_factor(const Part& p, int64_t head, int64_t query,
                                                  int64_t key) {
  const uint4 counter = make_uint4(static_cast<uint32_t>(key / 8),
                                   p.dropout.first_position + static_cast<uint32_t>(query),
                                   p.dropout.first_sample + static_cast<uint32_t>(p.sample),
                                   static_cast<uint32_t>(p.dropout.state->iteration));
  const uint4 w =
      philox(counter, p.dropout.seed, p.dropout.site + p.first_head + static_cast<uint32_t>(head));
  return dropout_factor_of(p.dropout, w, static_cast<int>(key & 7));
}

// A block owns one row (group, query) of scores: probabilities out, log-sum-exp kept.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(T* probabilities, const float* scores, Part p) {
  __shared__ float shared[2][kWarp];
  const int64_t query = blockIdx.x % p.l.length, group = blockIdx.x / p.l.length;
  const int64_t head = group * p.l.members() + p.member;
  const float* row = scores + static_cast<int64_t>(blockIdx.x) * p.l.length;
  T* out = probabilities + static_cast<int64_t>(blockIdx.x) * p.l.length;
  const int64_t begin = p.first_key != nullptr ? p.first_key[query * p.l.batch + p.sample] : 0;
  const int64_t end = p.causal ? query + 1 : p.l.length;
  float largest = -INFINITY;
  for (int64_t k = begin + threadIdx.x; k < end; k += kThreads)
    largest = fmaxf(largest, row[k] * p.scale);
  largest = warp_max(largest);
  if (threadIdx.x % kWarp == 0) shared[0][threadIdx.x / kWarp] = largest;
  __syncthreads();
  largest =
      warp_max(threadIdx.x % kWarp < kThreads / kWarp ? shared[0][threadIdx.x % kWarp] : -INFINITY);
  float sum = 0.0f;
  for (int64_t k = begin + threadIdx.x; k < end; k += kThreads)
    sum += expf(row[k] * p.scale - largest);
  sum = block_sum(sum, shared[1]);
  for (int64_t k = threadIdx.x; k < p.l.length; k += kThreads) {
    float value = 0.0f;
    if (k >= begin && k < end) {
      value = expf(row[k] * p.scale - largest) / sum;
      if (p.drop) value *= attention_factor(p, head, query, k);
    }
    out[k] = from_float<T>(value);
  }
  if (p.stats != nullptr && threadIdx.x == 0)
    p.stats[(p.sample * p.l.heads + head) * p.l.length + query] = largest + logf(sum);
}

// A block owns one row: from scores and dP~ (gradient of the dropped probabilities) makes P~ and
// dS.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    softmax_backward_kernel(T* probabilities, T* dscores, const float* scores,
                            const float* dprobabilities, const T* out, const T* dout, Part p) {
  __shared__ float shared[kWarp];
  const int64_t query = blockIdx.x % p.l.length, group = blockIdx.x / p.l.length;
  const int64_t head = group * p.l.members() + p.member;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * p.l.length;
  const int64_t begin = p.first_key != nullptr ? p.first_key[query * p.l.batch + p.sample] : 0;
  const int64_t end = p.causal ? query + 1 : p.l.length;
  const float log_sum = p.stats[(p.sample * p.l.heads + head) * p.l.length + query];
  const int64_t o = ((query * p.l.batch + p.sample) * p.l.heads + head) * p.l.channels;
  float dot = 0.0f;
  for (int64_t c = threadIdx.x; c < p.l.channels; c += kThreads)
    dot += to_float(out[o + c]) * to_float(dout[o + c]);
  dot = block_sum(dot, shared);
  for (int64_t k = threadIdx.x; k < p.l.length; k += kThreads) {
    float value = 0.0f, gradient = 0.0f;
    if (k >= begin && k < end) {
      const float probability = expf(scores[at + k] * p.scale - log_sum);
      const float factor = p.drop ? attention_factor(p, head, query, k) : 1.0f;
      value = probability * factor;
      gradient = probability * (dprobabilities[at + k] * factor - dot) * p.scale;
    }
    probabilities[at + k] = from_float<T>(value);
    dscores[at + k] = from_float<T>(gradient);
  }
}

struct Scratch {
  float *scores, *dprobabilities;
  char *probabilities, *dscores, *workspace;
};
Scratch cut_scratch(char* memory, const PackedLayout& l, DType dtype) {
  const int64_t elements = l.groups * l.length * l.length;
  const int64_t wide = round_up(elements * 4, 256),
                narrow = round_up(elements * size_bytes(dtype), 256);
  return {reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + wide),
          memory + 2 * wide, memory + 2 * wide + narrow, memory + 2 * (wide + narrow)};
}

/// Batched products over groups, in row-major terms: score products give (S queries, S keys) in
/// fp32, the others (S, D) columns inside packed rows or rows of out.
GemmKey score_key(const PackedLayout& l, DType dtype, int64_t lda, int64_t stride_a, int64_t ldb,
                  int64_t stride_b) {
  return {.m = l.length,
          .n = l.length,
          .k = l.channels,
          .lda = lda,
          .ldb = ldb,
          .ldd = l.length,
          .batch = l.groups,
          .stride_a = stride_a,
          .stride_b = stride_b,
          .stride_d = l.length * l.length,
          .transpose_a = true,
          .a = dtype,
          .b = dtype,
          .d = DType::f32};
}
GemmKey mix_key(const PackedLayout& l, DType dtype, int64_t lda, int64_t stride_a, int64_t ldd,
                int64_t stride_d, bool transpose_b, bool add) {
  return {.m = l.channels,
          .n = l.length,
          .k = l.length,
          .lda = lda,
          .ldb = l.length,
          .ldd = ldd,
          .batch = l.groups,
          .stride_a = stride_a,
          .stride_b = l.length * l.length,
          .stride_d = stride_d,
          .transpose_b = transpose_b,
          .add_c = add,
          .a = dtype,
          .b = dtype,
          .d = dtype};
}

Part part_of(const AttentionShape& shape, const PackedLayout& l, const Tensor& first_key,
             const Tensor& stats, const Dropout& dropout) {
  Part p{};
  p.l = l;
  p.scale = shape.softmax_scale;
  p.causal = shape.causal;
  p.first_key = data<int32_t>(first_key);
  p.stats = data<float>(stats);
  p.first_head = static_cast<uint32_t>(dropout.first_head);
  p.drop = dropout.p > 0;
  p.dropout = dropout_draw(dropout, l.batch);
  return p;
}

}  // namespace

int64_t plain_attention_scratch(const PackedLayout& l, DType dtype) {
  const int64_t elements = l.groups * l.length * l.length;
  return 2 * (round_up(elements * 4, 256) + round_up(elements * size_bytes(dtype), 256)) +
         Gemm::kWorkspaceBytes;
}

void attention_forward_plain(CudaOps& cuda, const AttentionForward& args) {
  const PackedLayout l = packed_layout(args.shape, args.qkv);
  const DType dtype = args.qkv.dtype;
  const Scratch s = cut_scratch(cuda.scratch(plain_attention_scratch(l, dtype)), l, dtype);
  const int64_t width = l.heads * l.channels, position = l.batch * l.row();
  Part part = part_of(args.shape, l, args.first_key, args.stats, args.dropout);
  dispatch_float(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (part.sample = 0; part.sample < l.batch; ++part.sample) {
      const T* row = data<T>(args.qkv) + part.sample * l.row();
      const T *key = row + l.members() * l.channels, *value = key + l.channels;
      for (part.member = 0; part.member < l.members(); ++part.member) {
        T* out = data<T>(args.out) + part.sample * width + part.member * l.channels;
        cuda.gemm().run(score_key(l, dtype, position, l.group(), position, l.group()),
                        {.a = key, .b = row + part.member * l.channels, .d = s.scores}, s.workspace,
                        cuda.stream(), false);
        softmax_kernel<T>
            <<<static_cast<unsigned>(l.groups * l.length), kThreads, 0, cuda.stream()>>>(
                reinterpret_cast<T*>(s.probabilities), s.scores, part);
        CUDA_CHECK(cudaGetLastError());
        cuda.gemm().run(mix_key(l, dtype, position, l.group(), l.batch * width,
                                l.members() * l.channels, false, false),
                        {.a = value, .b = s.probabilities, .d = out}, s.workspace, cuda.stream(),
                        false);
      }
    }
  });
}

void attention_backward_plain(CudaOps& cuda, const AttentionBackward& args) {
  const PackedLayout l = packed_layout(args.shape, args.qkv);
  const DType dtype = args.qkv.dtype;
  const Scratch s = cut_scratch(cuda.scratch(plain_attention_scratch(l, dtype)), l, dtype);
  const int64_t width = l.heads * l.channels, position = l.batch * l.row();
  Part part = part_of(args.shape, l, args.first_key, args.stats, args.dropout);
  dispatch_float(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (part.sample = 0; part.sample < l.batch; ++part.sample) {
      const int64_t base = part.sample * l.row();
      const int64_t k = base + l.members() * l.channels, v = k + l.channels;
      const T* qkv = data<T>(args.qkv);
      T* dqkv = data<T>(args.dqkv);
      for (part.member = 0; part.member < l.members(); ++part.member) {
        const int64_t q = base + part.member * l.channels;
        const T* dout = data<T>(args.dout) + part.sample * width + part.member * l.channels;
        const int64_t out_row = l.batch * width, out_group = l.members() * l.channels;
        const bool add = part.member > 0;  // every member of a group adds to its key and value
        cuda.gemm().run(score_key(l, dtype, position, l.group(), position, l.group()),
                        {.a = qkv + k, .b = qkv + q, .d = s.scores}, s.workspace, cuda.stream(),
                        false);
        cuda.gemm().run(score_key(l, dtype, position, l.group(), out_row, out_group),
                        {.a = qkv + v, .b = dout, .d = s.dprobabilities}, s.workspace,
                        cuda.stream(), false);
        softmax_backward_kernel<T>
            <<<static_cast<unsigned>(l.groups * l.length), kThreads, 0, cuda.stream()>>>(
                reinterpret_cast<T*>(s.probabilities), reinterpret_cast<T*>(s.dscores), s.scores,
                s.dprobabilities, data<T>(args.out), data<T>(args.dout), part);
        CUDA_CHECK(cudaGetLastError());
        cuda.gemm().run(mix_key(l, dtype, out_row, out_group, position, l.group(), true, add),
                        {.a = dout, .b = s.probabilities, .c = dqkv + v, .d = dqkv + v},
                        s.workspace, cuda.stream(), false);
        cuda.gemm().run(mix_key(l, dtype, position, l.group(), position, l.group(), true, add),
                        {.a = qkv + q, .b = s.dscores, .c = dqkv + k, .d = dqkv + k}, s.workspace,
                        cuda.stream(), false);
        cuda.gemm().run(mix_key(l, dtype, position, l.group(), position, l.group(), false, false),
                        {.a = qkv + k, .b = s.dscores, .d = dqkv + q}, s.workspace, cuda.stream(),
                        false);
      }
    }
  });
}

}  // namespace ops::cuda
