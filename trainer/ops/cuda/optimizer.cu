// The end of a step: sum of squares, the gradient check on the device, AdamW over flat memory.
// Lives here: BeginStep, SumSquares, JudgeGradients, AdamCorrections, AdamW, CountNonfinite.
// Numbers that change from step to step are read from StepState in device memory, so that a
// captured step replays with new ones. AdamW is bound by memory: 28 bytes a parameter with fp32
// main, moments and gradients (30 with a 16-bit model). Source: Loshchilov and Hutter 2019;
// Megatron-LM grad_scaler.py and clip_grads.py; equals cpu/optimizer.cc.
// SPDX-License-Identifier: MIT
#include "trainer/ops/cuda/cuda_ops.h"
#include "trainer/ops/cuda/device.cuh"
#include "trainer/ops/cuda/launch.h"
#include "trainer/ops/launch.h"

namespace ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSumBlocksPerSm = 8;  // fixed: it decides the order of the sum
constexpr int kVector = 4;          // elements per thread at once

__global__ void begin_step_kernel(StepState* state, int64_t iteration, float lr,
                                  float weight_decay) {
  state->iteration = iteration;
  state->lr = lr;
  state->weight_decay = weight_decay;
  state->loss = 0.0f;
}

/// Four adjacent elements, moved by one instruction of 16 or 8 bytes.
template <typename T>
struct alignas(sizeof(T) * kVector) Four {
  T value[kVector];
};
template <typename T>
__device__ __forceinline__ Four<T> load_four(const T* p) {
  return *reinterpret_cast<const Four<T>*>(p);
}
template <typename T>
__device__ __forceinline__ void store_four(T* p, const Four<T>& v) {
  *reinterpret_cast<Four<T>*>(p) = v;
}

// Stage one: a grid-stride sum, one number a block. A NaN or Inf makes the number non-finite by
// itself.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_squares_kernel(float* partial, const T* x, int64_t elements, bool packed) {
  __shared__ float shared[kWarp];
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  constexpr int kSize = Pack<T>::kSize;
  const int64_t packs = packed ? elements / kSize : 0;
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t p = first; p < packs; p += stride) {
    const Pack<T> v = load_pack(x + p * kSize);
#pragma unroll
    for (int j = 0; j < kSize; ++j) sum += v.get(j) * v.get(j);
  }
  for (int64_t i = packs * kSize + first; i < elements; i += stride)
    sum += to_float(x[i]) * to_float(x[i]);
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
// Stage two: one warp, in fp64, parts in order.
__global__ void __launch_bounds__(kWarp)
    sum_squares_join_kernel(float* out, const float* partial, int parts, bool accumulate) {
  double sum = 0.0;
  for (int p = static_cast<int>(threadIdx.x); p < parts; p += kWarp) sum += partial[p];
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2) sum += __shfl_down_sync(0xffffffffu, sum, i);
  if (threadIdx.x == 0) *out = static_cast<float>(accumulate ? *out + sum : sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    count_nonfinite_kernel(unsigned long long* out, const T* x, int64_t elements) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  unsigned count = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements;
       i += stride)
    count += isfinite(to_float(x[i])) ? 0u : 1u;
  if (count != 0)
    atomicAdd(out, static_cast<unsigned long long>(count));  // integers: the order does not matter
}

__global__ void judge_gradients_kernel(StepState* s, const float* sum_squares, JudgeGradients a) {
  const float q = *sum_squares;
  const float scale = s->loss_scale;
  s->used_loss_scale = scale;
  s->grad_norm = sqrtf(q) / scale;
  s->skip = isfinite(q) ? 0 : 1;
  float multiplier = 1.0f / scale;
  if (a.clip_grad > 0.0f) multiplier *= fminf(1.0f, a.clip_grad / (s->grad_norm + 1e-6f));
  s->grad_multiplier = multiplier;
  if (s->skip == 0) {
    s->updates += 1;
  } else {
    s->skipped_steps += 1;
  }
  if (!a.dynamic) return;
  if (s->skip != 0) {
    s->growth_tracker = 0;
    s->hysteresis_tracker -= 1;
    if (s->hysteresis_tracker <= 0) s->loss_scale = fmaxf(scale * a.backoff, a.min_scale);
  } else {
    s->growth_tracker += 1;
    if (s->growth_tracker == a.window) {
      s->growth_tracker = 0;
      s->hysteresis_tracker = a.hysteresis;
      s->loss_scale = scale * a.growth;
    }
  }
}

__global__ void adam_corrections_kernel(StepState* s, float beta1, float beta2) {
  const double updates = static_cast<double>(s->updates);
  s->bias_correction1 = static_cast<float>(1.0 - pow(static_cast<double>(beta1), updates));
  s->bias_correction2 = static_cast<float>(1.0 - pow(static_cast<double>(beta2), updates));
}

template <typename Model, typename Moment, typename Grad>
struct AdamArgs {
  Model* model;
  float* main;
  Moment* m;
  Moment* v;
  const Grad* grad;
  const StepState* state;
  int64_t elements, decay_elements, first_element;
  float beta1, beta2, eps;
  uint32_t seed;
};

__device__ __forceinline__ void store_moment(float& out, float x, uint32_t) { out = x; }
__device__ __forceinline__ void store_moment(__nv_bfloat16& out, float x, uint32_t draw) {
  if (!isfinite(x)) {
    out = __float2bfloat16_rn(x);
    return;
  }
  const uint32_t bits = __float_as_uint(x) + (draw & 0xffffu);
  out = __ushort_as_bfloat16(static_cast<unsigned short>(bits >> 16));
}
__device__ __forceinline__ uint32_t word_of(const uint4& w, int64_t i) {
  const int lane = static_cast<int>(i & 3);
  return lane == 0 ? w.x : lane == 1 ? w.y : lane == 2 ? w.z : w.w;
}
/// Words for elements e .. e+3 of the whole flat space; of moment 0 (m) or 1 (v).
__device__ __forceinline__ uint32_t moment_draw(uint32_t seed, int64_t e, int64_t iteration,
                                                uint32_t which) {
  const auto quad = static_cast<uint64_t>(e) / 4;
  const uint4 counter = make_uint4(static_cast<uint32_t>(quad), static_cast<uint32_t>(quad >> 32),
                                   static_cast<uint32_t>(iteration), which);
  return word_of(philox(counter, seed, 0), e);
}

/// The step's numbers, read once by each thread.
struct AdamNumbers {
  float multiplier, lr, weight_decay, inverse1, inverse2;
  int64_t iteration;
};
template <typename Model, typename Moment, typename Grad>
__device__ __forceinline__ void adam_element(const AdamArgs<Model, Moment, Grad>& a,
                                             const AdamNumbers& n, int64_t i, float& main,
                                             Moment& m, Moment& v, float grad) {
  const float g = grad * n.multiplier;
  const float m1 = a.beta1 * to_float(m) + (1.0f - a.beta1) * g;
  const float v1 = a.beta2 * to_float(v) + (1.0f - a.beta2) * g * g;
  const float decay = i < a.decay_elements ? n.weight_decay : 0.0f;
  // The approximate square root and quotient are within 2 units of the last place of fp32.
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v1 * n.inverse2));
  main -= n.lr * (__fdividef(m1 * n.inverse1, root + a.eps) + decay * main);
  if constexpr (sizeof(Moment) == 2) {
    store_moment(m, m1, moment_draw(a.seed, a.first_element + i, n.iteration, 0));
    store_moment(v, v1, moment_draw(a.seed, a.first_element + i, n.iteration, 1));
  } else {
    store_moment(m, m1, 0);
    store_moment(v, v1, 0);
  }
}

// A thread owns four adjacent elements per iteration, and loads the next four before it computes
// these. Reads main, m, v, grad; writes main, m, v, model. The last one to three elements go to
// single threads.
template <typename Model, typename Moment, typename Grad, bool kHasModel>
__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamArgs<Model, Moment, Grad> a) {
  if (a.state->skip != 0) return;
  const AdamNumbers n{a.state->grad_multiplier,
                      a.state->lr,
                      a.state->weight_decay,
                      1.0f / a.state->bias_correction1,
                      1.0f / a.state->bias_correction2,
                      a.state->iteration};
  const int64_t fours = a.elements / kVector;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t start = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
#pragma unroll 2
  for (int64_t q = start; q < fours; q += stride) {
    const int64_t first = q * kVector;
    Four<float> main = load_four(a.main + first);
    Four<Moment> m = load_four(a.m + first), v = load_four(a.v + first);
    const Four<Grad> grad = load_four(a.grad + first);
    Four<Model> model;
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      adam_element(a, n, first + j, main.value[j], m.value[j], v.value[j], to_float(grad.value[j]));
      if constexpr (kHasModel) model.value[j] = from_float<Model>(main.value[j]);
    }
    store_four(a.main + first, main);
    store_four(a.m + first, m);
    store_four(a.v + first, v);
    if constexpr (kHasModel) store_four(a.model + first, model);
  }
  const int64_t i = fours * kVector + start;
  if (i >= a.elements) return;
  adam_element(a, n, i, a.main[i], a.m[i], a.v[i], to_float(a.grad[i]));
  if constexpr (kHasModel) a.model[i] = from_float<Model>(a.main[i]);
}

template <typename Model, typename Moment, typename Grad>
void start_adamw(const AdamW& args, int multiprocessors, cudaStream_t stream) {
  AdamArgs<Model, Moment, Grad> a{};
  a.model = data<Model>(args.model);
  a.main = data<float>(args.main);
  a.m = data<Moment>(args.m);
  a.v = data<Moment>(args.v);
  a.grad = data<Grad>(args.grad);
  a.state = data<StepState>(args.state);
  a.elements = args.main.elements();
  a.decay_elements = args.decay_elements;
  a.first_element = args.first_element;
  a.beta1 = args.beta1;
  a.beta2 = args.beta2;
  a.eps = args.eps;
  a.seed = args.seed;
  const auto bits = reinterpret_cast<uintptr_t>(a.main) |
                    reinterpret_cast<uintptr_t>(a.m) * (4 / sizeof(Moment)) |
                    reinterpret_cast<uintptr_t>(a.v) * (4 / sizeof(Moment)) |
                    reinterpret_cast<uintptr_t>(a.grad) * (4 / sizeof(Grad)) |
                    reinterpret_cast<uintptr_t>(a.model) * (4 / sizeof(Model));
  if (bits % 16 != 0)
    throw ShapeError("cuda: adamw: a pointer is not aligned to four elements: pad the flat memory");
  const int blocks = grid_for(ceil_div(a.elements, kVector), kThreads, multiprocessors, 16);
  if (args.model)
    adamw_kernel<Model, Moment, Grad, true><<<blocks, kThreads, 0, stream>>>(a);
  else
    adamw_kernel<Model, Moment, Grad, false><<<blocks, kThreads, 0, stream>>>(a);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch(CudaOps& cuda, const BeginStep& args) {
  begin_step_kernel<<<1, 1, 0, cuda.stream()>>>(data<StepState>(args.state), args.iteration,
                                                args.lr, args.weight_decay);
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps& cuda, const SumSquares&) {
  return int64_t{cuda.multiprocessors()} * kSumBlocksPerSm * 4;
}

void launch(CudaOps& cuda, const SumSquares& args) {
  auto* partial = reinterpret_cast<float*>(cuda.scratch(scratch_bytes(cuda, args)));
  const int blocks = cuda.multiprocessors() * kSumBlocksPerSm;
  dispatch_float(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    sum_squares_kernel<T><<<blocks, kThreads, 0, cuda.stream()>>>(
        partial, data<T>(args.x), args.x.elements(), packable(16, 1, data<T>(args.x)));
  });
  sum_squares_join_kernel<<<1, kWarp, 0, cuda.stream()>>>(data<float>(args.out), partial, blocks,
                                                          args.accumulate);
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const JudgeGradients& args) {
  judge_gradients_kernel<<<1, 1, 0, cuda.stream()>>>(data<StepState>(args.state),
                                                     data<float>(args.sum_squares), args);
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const AdamCorrections& args) {
  adam_corrections_kernel<<<1, 1, 0, cuda.stream()>>>(data<StepState>(args.state), args.beta1,
                                                      args.beta2);
  CUDA_CHECK(cudaGetLastError());
}

void launch(CudaOps& cuda, const AdamW& args) {
  if (args.main.elements() == 0) return;
  dispatch_float(args.grad.dtype, [&](auto* grad_type) {
    using Grad = std::remove_pointer_t<decltype(grad_type)>;
    dispatch_float(args.model ? args.model.dtype : DType::f32, [&](auto* model_type) {
      using Model = std::remove_pointer_t<decltype(model_type)>;
      if (args.m.dtype == DType::bf16)
        start_adamw<Model, __nv_bfloat16, Grad>(args, cuda.multiprocessors(), cuda.stream());
      else
        start_adamw<Model, float, Grad>(args, cuda.multiprocessors(), cuda.stream());
    });
  });
}

void launch(CudaOps& cuda, const CountNonfinite& args) {
  CUDA_CHECK(cudaMemsetAsync(args.out.data, 0, sizeof(int64_t), cuda.stream()));
  dispatch_float(args.x.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    count_nonfinite_kernel<T>
        <<<grid_for(args.x.elements(), kThreads, cuda.multiprocessors(), 16), kThreads, 0,
           cuda.stream()>>>(data<unsigned long long>(args.out), data<T>(args.x), args.x.elements());
  });
  CUDA_CHECK(cudaGetLastError());
}

int64_t scratch_bytes(CudaOps&, const BeginStep&) { return 0; }
int64_t scratch_bytes(CudaOps&, const JudgeGradients&) { return 0; }
int64_t scratch_bytes(CudaOps&, const AdamCorrections&) { return 0; }
int64_t scratch_bytes(CudaOps&, const AdamW&) { return 0; }
int64_t scratch_bytes(CudaOps&, const CountNonfinite&) { return 0; }

}  // namespace ops::cuda

template struct ops::Launch<ops::cuda::CudaOps, ops::BeginStep>;
template struct ops::Launch<ops::cuda::CudaOps, ops::SumSquares>;
template struct ops::Launch<ops::cuda::CudaOps, ops::JudgeGradients>;
template struct ops::Launch<ops::cuda::CudaOps, ops::AdamCorrections>;
template struct ops::Launch<ops::cuda::CudaOps, ops::AdamW>;
template struct ops::Launch<ops::cuda::CudaOps, ops::CountNonfinite>;
