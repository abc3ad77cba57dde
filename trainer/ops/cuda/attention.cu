// Attention over packed q/k/v: calls of cuDNN, rotary embedding, and decoding against a cache.
// Lives here: AttentionForward, AttentionBackward, Rotary, AttentionDecode. Not here:
// cuDNN's graphs (sdpa.cc), their biases (attention_bias.cu), plain attention for fp32 and other
// head sizes (attention_plain.cu). A row of qkv is G groups of N/G query heads, one key head, one
// value head, D each, so head strides are affine for G = N and cuDNN reads the row in place; for G
// < N the queries are gathered into scratch first. 16-bit dropout masks are cuDNN's own, from a
// seed made of the Dropout's fields: the same in both directions.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/attention_layout.h"
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/cuda/sdpa.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kSeedBytes = 256;

__global__ void seed_kernel(int64_t* seed_and_offset, DropoutDraw d, uint32_t first_head) {
  const uint4 w = philox(make_uint4(d.first_position, d.first_sample, first_head,
                                    static_cast<uint32_t>(d.state->iteration)),
                         d.seed, d.site);
  seed_and_offset[0] = static_cast<int64_t>((static_cast<uint64_t>(w.x) << 31) ^ w.y);
  seed_and_offset[1] = 0;
}

// Queries of a packed row to (S, B, N, D), or back; a thread owns one element.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    move_queries_kernel(T* packed, T* queries, PackedLayout l, bool gather) {
  const int64_t width = l.heads * l.channels, elements = l.length * l.batch * width;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t row = i / width, head = i % width / l.channels, c = i % l.channels;
    const int64_t at =
        row * l.row() + head / l.members() * l.group() + head % l.members() * l.channels + c;
    if (gather)
      queries[i] = packed[at];
    else
      packed[at] = queries[i];
  }
}

struct RotaryArgs {
  const int32_t* positions;
  const float* cosine;
  const float* sine;
  int64_t rows, half;
  bool interleaved, inverse;
};
// A thread owns one pair of one q or k head.
template <typename T>
__global__ void __launch_bounds__(kThreads) rotary_kernel(T* qkv, PackedLayout l, RotaryArgs a) {
  const int64_t heads = l.members() + 1, pairs = a.rows * l.groups * heads * a.half;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < pairs;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t p = i % a.half, head = i / a.half % heads;
    const int64_t group = i / (a.half * heads) % l.groups, row = i / (a.half * heads * l.groups);
    T* start = qkv + row * l.row() + group * l.group() + head * l.channels;
    T* first = start + (a.interleaved ? 2 * p : p);
    T* second = start + (a.interleaved ? 2 * p + 1 : p + a.half);
    const int64_t table = a.positions[row] * a.half + p;
    const float c = a.cosine[table], s = a.inverse ? -a.sine[table] : a.sine[table];
    const float x = to_float(*first), y = to_float(*second);
    *first = from_float<T>(x * c - y * s);
    *second = from_float<T>(x * s + y * c);
  }
}

// New keys and values into the cache rows cached .. cached + S - 1; a thread owns one element.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    append_cache_kernel(T* keys, T* values, const T* qkv, PackedLayout l, int64_t cached) {
  const int64_t width = l.groups * l.channels, elements = l.length * l.batch * width;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t row = i / width, group = i % width / l.channels, c = i % l.channels;
    const T* from = qkv + row * l.row() + group * l.group() + l.members() * l.channels + c;
    keys[cached * l.batch * width + i] = from[0];
    values[cached * l.batch * width + i] = from[l.channels];
  }
}

// What a call of decode_kernel needs besides tensors and layout.
struct DecodeCall {
  int64_t cached = 0, first = 0, window = 0;
  float* spill = nullptr;
  float scale = 1;
  bool causal = true;
};
constexpr int64_t kDecodeStaticBytes = 8192;             // the kernel's own, with a margin
constexpr int64_t kMostSpillBytes = int64_t{256} << 20;  // more queries are split into several
                                                         // launches

// A block owns one query (position s, sample b, head n), the first of them `first`: scores of keys
// begin .. cached + s (begin is 0 or the start of the window) in dynamic shared memory (4 bytes per
// key), or in a row of `spill` where they do not fit; softmax over the block, then one thread per
// channel. Bound by reading the cache.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(T* out, const T* qkv, const T* keys, const T* values, PackedLayout l,
                  DecodeCall call) {
  extern __shared__ float held[];
  __shared__ float shared[kWarp], query[1024];
  const int64_t cached = call.cached, index = call.first + blockIdx.x;
  float* scores = call.spill == nullptr ? held : call.spill + blockIdx.x * (cached + l.length);
  const int64_t head = index % l.heads, row = index / l.heads;
  const int64_t s = row / l.batch, b = row % l.batch, group = head / l.members();
  const int64_t width = l.groups * l.channels;
  const int64_t count = call.causal ? cached + s + 1 : cached + l.length;
  const int64_t begin =
      call.window > 0 && cached + s + 1 > call.window ? cached + s + 1 - call.window : 0;
  const T* q = qkv + row * l.row() + group * l.group() + head % l.members() * l.channels;
  for (int64_t c = threadIdx.x; c < l.channels; c += kThreads)
    query[c] = to_float(q[c]) * call.scale;
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  float largest = -INFINITY;
  for (int64_t t = begin + warp; t < count; t += kThreads / kWarp) {
    const T* key = keys + (t * l.batch + b) * width + group * l.channels;
    float dot = 0.0f;
    for (int64_t c = lane; c < l.channels; c += kWarp) dot += query[c] * to_float(key[c]);
    dot = warp_sum(dot);
    if (lane == 0) scores[t] = dot;
    largest = fmaxf(largest, dot);
  }
  if (lane == 0) shared[warp] = largest;
  __syncthreads();
  largest = warp_max(lane < kThreads / kWarp ? shared[lane] : -INFINITY);
  float sum = 0.0f;
  for (int64_t t = begin + threadIdx.x; t < count; t += kThreads) {
    scores[t] = expf(scores[t] - largest);
    sum += scores[t];
  }
  __syncthreads();
  sum = block_sum(sum, shared);
  __syncthreads();
  for (int64_t c = threadIdx.x; c < l.channels; c += kThreads) {
    float total = 0.0f;
    for (int64_t t = begin; t < count; ++t)
      total += scores[t] * to_float(values[(t * l.batch + b) * width + group * l.channels + c]);
    out[row * l.heads * l.channels + head * l.channels + c] = from_float<T>(total / sum);
  }
}

/// Why cuDNN is not tried; null where it is. It has no deterministic graph for dropout together
/// with separate documents.
const char* cudnn_objection(const AttentionShape& shape, const Tensor& qkv, bool documents,
                            float dropout) {
  if (qkv.dtype == DType::f32) return "fp32";
  if (shape.kv_channels % 8 != 0) return "heads that are no multiple of 8 wide";
  if (shape.kv_channels > 128) return "heads wider than 128";
  if (qkv.shape[0] < 2) return "one position";
  return documents && dropout > 0 ? "documents apart with dropout" : nullptr;
}

/// What a call depends on besides the shape of attention.
struct SdpaWants {
  DType dtype;
  float dropout = 0;
  bool bias = false, stats = true, backward = false;
};

/// Samples per call, chosen so that the quadratic scratch memory of a deterministic backward stays
/// bounded; forward splits the same way where a seed or a bias depends on the split.
int64_t sdpa_batch(const PackedLayout& l) {
  constexpr int64_t kMostBytes = int64_t{2} << 30;
  const int64_t of_sample = l.heads * l.length * l.length * 2;
  int64_t batch = std::clamp<int64_t>(kMostBytes / std::max<int64_t>(of_sample, 1), 1, l.batch);
  while (l.batch % batch != 0) --batch;
  return batch;
}

SdpaShape sdpa_shape(const PackedLayout& l, const AttentionShape& a, const SdpaWants& wants) {
  SdpaShape s{.batch = wants.backward || wants.dropout > 0 || wants.bias ? sdpa_batch(l) : l.batch,
              .heads = l.heads,
              .groups = l.groups,
              .length = l.length,
              .channels = l.channels,
              .dtype = wants.dtype,
              .scale = a.softmax_scale,
              .dropout = wants.dropout,
              .bias = wants.bias,
              .causal = a.causal,
              .with_stats = wants.stats,
              .backward = wants.backward};
  const int64_t width = l.heads * l.channels;
  const int64_t packed[3] = {l.row(), l.group(), l.batch * l.row()};
  const int64_t plain[3] = {width, l.channels, l.batch * width};
  for (int i = 0; i < 3; ++i) {
    s.kv_stride[i] = packed[i];
    s.q_stride[i] = l.heads == l.groups ? packed[i] : plain[i];
    s.out_stride[i] = plain[i];
  }
  return s;
}

int64_t bias_bytes(const SdpaShape& s) {
  return s.bias ? round_up(s.batch * s.length * sdpa_pitch(s.length) * 2, 256) : 0;
}

/// The scratch memory of a cuDNN call: seed, queries, bias, the library's own.
struct SdpaScratch {
  int64_t queries_bytes = 0, total = 0;
};
SdpaScratch sdpa_scratch(Sdpa& sdpa, const SdpaShape& s, int64_t whole_batch) {
  SdpaScratch out;
  if (s.heads != s.groups)
    out.queries_bytes =
        round_up(whole_batch * s.length * s.heads * s.channels * size_bytes(s.dtype), 256) *
        (s.backward ? 2 : 1);
  out.total = kSeedBytes + out.queries_bytes + bias_bytes(s) + sdpa.workspace_bytes(s);
  return out;
}

template <typename T>
void move_queries(void* packed, void* queries, const PackedLayout& l, bool gather,
                  int multiprocessors, cudaStream_t stream) {
  const int blocks =
      grid_for(l.length * l.batch * l.heads * l.channels, kThreads, multiprocessors, 16);
  move_queries_kernel<T><<<blocks, kThreads, 0, stream>>>(static_cast<T*>(packed),
                                                          static_cast<T*>(queries), l, gather);
  CUDA_CHECK(cudaGetLastError());
}
void move_queries_16(void* packed, void* queries, const PackedLayout& l, bool gather, int sms,
                     cudaStream_t stream) {
  move_queries<uint16_t>(packed, queries, l, gather, sms, stream);
}

char* at(const void* base, int64_t elements) {
  return static_cast<char*>(const_cast<void*>(base)) + elements * 2;
}

/// Fills seed and bias of the samples from `b` on, named in `call`; returns where cuDNN's own
/// scratch begins. `memory` begins with the seed, `bias` follows the queries.
struct SideInputs {
  Dropout dropout;
  const Tensor& first_key;
  int64_t whole_batch;
  cudaStream_t stream;
};
char* fill_side_inputs(char* memory, char* bias, const SdpaShape& s, const SideInputs& from,
                       int64_t b, SdpaCall& call) {
  if (s.dropout > 0) {
    Dropout d = from.dropout;
    d.first_sample += b;
    seed_kernel<<<1, 1, 0, from.stream>>>(reinterpret_cast<int64_t*>(memory),
                                          dropout_draw(d, from.whole_batch),
                                          static_cast<uint32_t>(d.first_head));
    CUDA_CHECK(cudaGetLastError());
    call.seed = memory;
    call.offset = memory + sizeof(int64_t);
  }
  if (s.bias)
    fill_document_bias(call.bias = bias, s, data<int32_t>(from.first_key) + b,
                       from.first_key.shape[1], from.stream);
  return bias + bias_bytes(s);
}

}  // namespace

bool CudaOps::cudnn_attends(const AttentionShape& shape, const Tensor& qkv, bool documents,
                            float dropout) {
  const char* objection = cudnn_objection(shape, qkv, documents, dropout);
  std::string reason = objection != nullptr ? objection : "";
  const PackedLayout l = packed_layout(shape, qkv);
  for (const bool backward : {false, true}) {
    if (!reason.empty()) break;
    const SdpaShape s = sdpa_shape(
        l, shape,
        {.dtype = qkv.dtype, .dropout = dropout, .bias = documents, .backward = backward});
    if (!sdpa_->supports(s)) reason = "cuDNN has no kernel: " + sdpa_->why_not(s);
  }
  attention_ways_.insert(reason.empty() ? "cuDNN" : "plain products (" + reason + ")");
  return reason.empty();
}

namespace {

/// Scratch bytes of AttentionForward or AttentionBackward.
template <class Args>
int64_t attention_scratch(CudaOps& cuda, const Args& args, bool backward) {
  const PackedLayout l = packed_layout(args.shape, args.qkv);
  if (!cuda.cudnn_attends(args.shape, args.qkv, bool(args.first_key), args.dropout.p))
    return plain_attention_scratch(l, args.qkv.dtype);
  return sdpa_scratch(cuda.sdpa(),
                      sdpa_shape(l, args.shape,
                                 {.dtype = args.qkv.dtype,
                                  .dropout = args.dropout.p,
                                  .bias = bool(args.first_key),
                                  .backward = backward}),
                      l.batch)
      .total;
}

}  // namespace

int64_t scratch_bytes(CudaOps& cuda, const AttentionForward& args) {
  return attention_scratch(cuda, args, false);
}

void launch(CudaOps& cuda, const AttentionForward& args) {
  if (args.out.elements() == 0) return;
  if (!cuda.cudnn_attends(args.shape, args.qkv, bool(args.first_key), args.dropout.p))
    return attention_forward_plain(cuda, args);
  const PackedLayout l = packed_layout(args.shape, args.qkv);
  const SdpaShape s = sdpa_shape(l, args.shape,
                                 {.dtype = args.qkv.dtype,
                                  .dropout = args.dropout.p,
                                  .bias = bool(args.first_key),
                                  .stats = bool(args.stats)});
  const SdpaScratch need = sdpa_scratch(cuda.sdpa(), s, l.batch);
  char* memory = cuda.scratch(need.total);
  char* queries = memory + kSeedBytes;
  const void* q = args.qkv.data;
  if (l.heads != l.groups) {
    move_queries_16(args.qkv.data, queries, l, true, cuda.multiprocessors(), cuda.stream());
    q = queries;
  }
  for (int64_t b = 0; b < l.batch; b += s.batch) {
    SdpaCall call{.q = at(q, b * s.q_stride[0]), .out = at(args.out.data, b * s.out_stride[0])};
    call.k = at(args.qkv.data, b * l.row() + l.members() * l.channels);
    call.v = at(args.qkv.data, b * l.row() + (l.members() + 1) * l.channels);
    if (args.stats) call.stats = data<float>(args.stats) + b * l.heads * l.length;
    char* library =
        fill_side_inputs(memory, queries + need.queries_bytes, s,
                         {args.dropout, args.first_key, l.batch, cuda.stream()}, b, call);
    cuda.sdpa().run(s, call, library, cuda.stream());
  }
}

int64_t scratch_bytes(CudaOps& cuda, const AttentionBackward& args) {
  return attention_scratch(cuda, args, true);
}

void launch(CudaOps& cuda, const AttentionBackward& args) {
  if (args.dqkv.elements() == 0) return;
  if (!cuda.cudnn_attends(args.shape, args.qkv, bool(args.first_key), args.dropout.p))
    return attention_backward_plain(cuda, args);
  const PackedLayout l = packed_layout(args.shape, args.qkv);
  const SdpaShape s = sdpa_shape(l, args.shape,
                                 {.dtype = args.qkv.dtype,
                                  .dropout = args.dropout.p,
                                  .bias = bool(args.first_key),
                                  .backward = true});
  const SdpaScratch need = sdpa_scratch(cuda.sdpa(), s, l.batch);
  char* memory = cuda.scratch(need.total);
  char* queries = memory + kSeedBytes;
  const bool gathers = l.heads != l.groups;
  const void* q = gathers ? queries : args.qkv.data;
  const void* dq = gathers ? queries + need.queries_bytes / 2 : args.dqkv.data;
  if (gathers)
    move_queries_16(args.qkv.data, queries, l, true, cuda.multiprocessors(), cuda.stream());
  for (int64_t b = 0; b < l.batch; b += s.batch) {
    const int64_t key = b * l.row() + l.members() * l.channels, value = key + l.channels;
    SdpaCall call{.q = at(q, b * s.q_stride[0]),
                  .k = at(args.qkv.data, key),
                  .v = at(args.qkv.data, value),
                  .out = at(args.out.data, b * s.out_stride[0]),
                  .stats = data<float>(args.stats) + b * l.heads * l.length,
                  .dout = at(args.dout.data, b * s.out_stride[0]),
                  .dq = at(dq, b * s.q_stride[0]),
                  .dk = at(args.dqkv.data, key),
                  .dv = at(args.dqkv.data, value)};
    char* library =
        fill_side_inputs(memory, queries + need.queries_bytes, s,
                         {args.dropout, args.first_key, l.batch, cuda.stream()}, b, call);
    cuda.sdpa().run(s, call, library, cuda.stream());
  }
  if (gathers)
    move_queries_16(args.dqkv.data, queries + need.queries_bytes / 2, l, false,
                    cuda.multiprocessors(), cuda.stream());
}

void launch(CudaOps& cuda, const Rotary& args) {
  if (args.qkv.elements() == 0) return;
  const AttentionShape shape{
      .num_attention_heads = args.num_attention_heads,
      .num_query_groups = args.num_query_groups,
      .kv_channels = args.qkv.columns() / (args.num_attention_heads + 2 * args.num_query_groups)};
  const PackedLayout l = packed_layout(shape, args.qkv);
  const RotaryArgs a{data<int32_t>(args.positions),
                     data<float>(args.cosine),
                     data<float>(args.sine),
                     args.qkv.rows(),
                     args.cosine.columns(),
                     args.interleaved,
                     args.inverse};
  dispatch_float(args.qkv.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int blocks = grid_for(a.rows * l.groups * (l.members() + 1) * a.half, kThreads,
                                cuda.multiprocessors(), 16);
    rotary_kernel<T><<<blocks, kThreads, 0, cuda.stream()>>>(data<T>(args.qkv), l, a);
  });
  CUDA_CHECK(cudaGetLastError());
}

namespace {

/// Where the queries' scores are kept: in shared memory or, where that is too small, in scratch
/// memory, `at_once` queries at a time.
struct DecodeSpread {
  int64_t bytes, queries, at_once, spill_bytes;
};
DecodeSpread decode_spread(CudaOps& cuda, const AttentionDecode& args) {
  const PackedLayout l = packed_layout(args.shape, args.qkv);
  const int64_t bytes = (args.cached + l.length) * 4, queries = l.length * l.batch * l.heads;
  if (bytes <= cuda.shared_bytes_per_block() - kDecodeStaticBytes)
    return {bytes, queries, queries, 0};
  const int64_t at_once = std::clamp<int64_t>(kMostSpillBytes / bytes, 1, queries);
  return {bytes, queries, at_once, at_once * bytes};
}

}  // namespace

int64_t scratch_bytes(CudaOps& cuda, const AttentionDecode& args) {
  return decode_spread(cuda, args).spill_bytes;
}

void launch(CudaOps& cuda, const AttentionDecode& args) {
  if (args.out.elements() == 0) return;
  const PackedLayout l = packed_layout(args.shape, args.qkv);
  if (l.channels > 1024) throw ShapeError("cuda: attention_decode: kv_channels: at most 1024");
  const DecodeSpread spread = decode_spread(cuda, args);
  DecodeCall call{.cached = args.cached,
                  .window = args.window,
                  .scale = args.shape.softmax_scale,
                  .causal = args.shape.causal};
  if (spread.spill_bytes > 0)
    call.spill = reinterpret_cast<float*>(cuda.scratch(spread.spill_bytes));
  dispatch_float(args.qkv.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int blocks =
        grid_for(l.length * l.batch * l.groups * l.channels, kThreads, cuda.multiprocessors(), 16);
    append_cache_kernel<T><<<blocks, kThreads, 0, cuda.stream()>>>(
        data<T>(args.key_cache), data<T>(args.value_cache), data<T>(args.qkv), l, args.cached);
    auto* kernel = decode_kernel<T>;
    const bool spills = call.spill != nullptr;
    if (!spills)
      CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(spread.bytes)));
    for (; call.first < spread.queries; call.first += spread.at_once) {
      const int64_t blocks = std::min(spread.at_once, spread.queries - call.first);
      kernel<<<static_cast<unsigned>(blocks), kThreads,
               static_cast<size_t>(spills ? 0 : spread.bytes), cuda.stream()>>>(
          data<T>(args.out), data<T>(args.qkv), data<T>(args.key_cache), data<T>(args.value_cache),
          l, call);
    }
  });
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const Rotary&) { return 0; }

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::AttentionForward>;
template struct ops::Launch<ops::cuda::CudaOps, ops::AttentionBackward>;
template struct ops::Launch<ops::cuda::CudaOps, ops::Rotary>;
template struct ops::Launch<ops::cuda::CudaOps, ops::AttentionDecode>;
