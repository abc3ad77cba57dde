// bench-kernels: the passes of a training step that are no matrix product, each alone, held.
//   bench-kernels [--seconds 0.4] [--only TEXT]
// Prints milliseconds and TB/s (every operand counted once) of norms, of GELU's slope with the bias
// gradient, of the bias gradient alone, of quantizing to FP8 in both layouts, and of attention
// without and with dropout and with documents apart (TFLOP/s, causal). Shapes are the benchmark
// models' (bench/step). Each pass is repeated until --seconds are over and the mean of the second
// half counts. Correctness is ops_cuda_test's matter.
// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "trainer/ops/arena.h"
#include "trainer/ops/cuda/cuda_check.h"
#include "trainer/ops/cuda/cuda_ops.h"

namespace {

using Clock = std::chrono::steady_clock;
using ops::DType;
using ops::Tensor;

struct Shape {
  const char* name;
  int64_t length, batch, hidden, heads;
};
constexpr Shape kShapes[] = {{"124M", 1024, 64, 768, 12},
                             {"345M", 1024, 32, 1024, 16},
                             {"774M", 1024, 16, 1280, 20},
                             {"1558M", 1024, 16, 1600, 25},
                             {"1.3B", 2048, 8, 2048, 16}};

class Bench {
 public:
  Bench(double seconds, std::string only) : seconds_(seconds), only_(std::move(only)) {}

  void run(const Shape& s) {
    shape_ = &s;
    for (auto pass : {&Bench::norms, &Bench::slopes, &Bench::quantizing, &Bench::attention}) {
      (this->*pass)(s);
      for (void* block : blocks_) device_.release(block);
      blocks_.clear();
    }
  }

 private:
  Tensor take(DType dtype, std::initializer_list<int64_t> shape, float value) {
    Tensor t(nullptr, dtype, device_.device(), shape);
    t.data = device_.allocate(t.bytes());
    blocks_.push_back(t.data);
    if (dtype == DType::bf16 || dtype == DType::f32) {
      if (t.elements() > 4096 && value != 0)
        device_.run(ops::NormalFill{.out = t.view({t.rows(), t.columns()}),
                                    .std = value,
                                    .seed = 7,
                                    .stream = ++filled_,
                                    .whole_columns = t.columns()});
      else
        device_.run(ops::Fill{.dst = t, .value = value});
    }
    return t;
  }

  /// Milliseconds of one call of `work`.
  double time(const std::function<void()>& work) {
    cudaEvent_t first, last;
    CUDA_CHECK(cudaEventCreate(&first));
    CUDA_CHECK(cudaEventCreate(&last));
    double total = 0;
    int64_t counted = 0;
    const Clock::time_point begin = Clock::now();
    for (double now = 0; now < seconds_;
         now = std::chrono::duration<double>(Clock::now() - begin).count()) {
      CUDA_CHECK(cudaEventRecord(first, device_.stream()));
      for (int i = 0; i < 8; ++i) work();
      CUDA_CHECK(cudaEventRecord(last, device_.stream()));
      device_.synchronize();
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, first, last));
      if (now >= seconds_ / 2) total += ms, counted += 8;
    }
    CUDA_CHECK(cudaEventDestroy(first));
    CUDA_CHECK(cudaEventDestroy(last));
    return total / static_cast<double>(std::max<int64_t>(counted, 1));
  }

  bool wanted(const std::string& what) const {
    return (std::string(shape_->name) + " " + what).find(only_) != std::string::npos;
  }
  void print_bytes(const std::string& what, double bytes, const std::function<void()>& work) {
    if (!wanted(what)) return;
    const double ms = time(work);
    std::printf("%-6s %-34s %8.4f ms %7.2f TB/s\n", shape_->name, what.c_str(), ms,
                bytes / ms / 1e9);
    std::fflush(stdout);
  }

  void norms(const Shape& s) {
    const int64_t h = s.hidden;
    const auto activation = [&] { return take(DType::bf16, {s.length, s.batch, h}, 1); };
    const Tensor x = activation(), y = activation(), branch = activation(), out = activation();
    const Tensor weight = take(DType::bf16, {h}, 1), bias = take(DType::bf16, {h}, 0.1f);
    const Tensor dweight = take(DType::f32, {h}, 0), dbias = take(DType::f32, {h}, 0),
                 dbranch_bias = take(DType::f32, {h}, 0);
    const Tensor mean = take(DType::f32, {s.length, s.batch}, 0.01f),
                 rstd = take(DType::f32, {s.length, s.batch}, 1.01f);
    const double tensor = static_cast<double>(x.bytes());
    ops::ResidualNormForward forward{.norm = ops::Norm::layernorm,
                                     .eps = 1e-5f,
                                     .y = y,
                                     .residual_out = out,
                                     .mean = mean,
                                     .rstd = rstd,
                                     .residual = x,
                                     .branch = branch,
                                     .weight = weight,
                                     .bias = bias};
    print_bytes("norm forward, residual added", 4 * tensor, [&] { device_.run(forward); });
    forward.y = forward.weight = forward.bias = {};
    print_bytes("norm's statistics, residual added", 3 * tensor, [&] { device_.run(forward); });
    device_.run(ops::Fill{.dst = mean, .value = 0});
    device_.run(ops::Fill{.dst = rstd, .value = 1});
    print_bytes("norm backward", 4 * tensor, [&] {
      device_.run(ops::ResidualNormBackward{.norm = ops::Norm::layernorm,
                                            .dresidual = out,
                                            .dweight = dweight,
                                            .dbias = dbias,
                                            .dbranch_bias = dbranch_bias,
                                            .dy = y,
                                            .dresidual_out = branch,
                                            .x = x,
                                            .mean = mean,
                                            .rstd = rstd,
                                            .weight = weight});
    });
  }

  void slopes(const Shape& s) {
    const int64_t rows = s.length * s.batch, f = 4 * s.hidden;
    const Tensor dx = take(DType::bf16, {rows, f}, 1), dy = take(DType::bf16, {rows, s.hidden}, 1),
                 pre = take(DType::bf16, {rows, f}, 1);
    const Tensor weight = take(DType::bf16, {s.hidden, f}, 0.02f), dbias = take(DType::f32, {f}, 0),
                 x = take(DType::bf16, {rows, s.hidden}, 1);
    const double wide = static_cast<double>(dx.bytes());
    print_bytes("GELU slope", 3 * wide, [&] {
      device_.run(ops::ActivationBackward{
          .dx = dx, .dy = dx, .x = pre, .activation = ops::Activation::gelu_tanh});
    });
    print_bytes("bias gradient", wide,
                [&] { device_.run(ops::LinearBackwardWeight{.dbias = dbias, .dy = dx, .x = x}); });
    const ops::LinearBackwardInput plain{.dx = dx, .dy = dy, .weight = weight};
    ops::LinearBackwardInput whole = plain;
    whole.pre_activation = pre;
    whole.activation = ops::Activation::gelu_tanh;
    whole.dbias = dbias;
    const ops::AnyArgs calls[] = {plain};
    device_.prepare(calls);
    const double product = wanted("dgrad") ? time([&] { device_.run(plain); }) : 0;
    const double both = wanted("dgrad") ? time([&] { device_.run(whole); }) : 0;
    if (both > 0)
      std::printf(
          "%-6s %-34s %8.4f ms; alone %.4f ms, so slope and bias gradient %.4f ms, %.2f TB/s\n",
          s.name, "dgrad of fc2 with slope and bias", both, product, both - product,
          3 * wide / (both - product) / 1e9);
  }

  void quantizing(const Shape& s) {
    const int64_t rows = s.length * s.batch, f = 4 * s.hidden;
    const Tensor x = take(DType::bf16, {rows, f}, 1), pre = take(DType::bf16, {rows, f}, 1),
                 gated = take(DType::bf16, {rows, f / 2}, 1), dbias = take(DType::f32, {f}, 0),
                 weight = take(DType::bf16, {f}, 1), bias = take(DType::bf16, {f}, 0.1f),
                 mean = take(DType::f32, {rows}, 0), rstd = take(DType::f32, {rows}, 1),
                 scale = take(DType::f32, {ops::kScaleSize}, 1), amax = take(DType::f32, {1}, 0);
    const Tensor q = take(DType::e4m3, {rows, f}, 0), qt = take(DType::e4m3, {f, rows}, 0);
    const double wide = static_cast<double>(x.bytes());
    const ops::Quantize plain{.rows = q, .columns = qt, .scale = scale, .amax = amax, .x = x};
    ops::Quantize sums = plain, activation = plain, slope = plain, gate = plain, dgate = plain,
                  norm = plain;
    norm.norm = {.weight = weight, .bias = bias, .mean = mean, .rstd = rstd};
    sums.dbias = slope.dbias = dbias;
    slope.pre_activation = dgate.pre_activation = pre;
    activation.activation = slope.activation = ops::Activation::gelu_tanh;
    gate.activation = dgate.activation = ops::Activation::swiglu;
    gate.rows = q.slice(0, rows / 2).view({rows, f / 2});
    gate.columns = qt.slice(0, f / 2);
    dgate.x = gated;
    const auto print = [&](const char* what, double bytes, const ops::Quantize& pass) {
      print_bytes(what, bytes, [&] { device_.run(pass); });
    };
    print("quantize", 2 * wide, plain);
    print("quantize, bias gradient", 2 * wide, sums);
    print("quantize after LayerNorm", 2 * wide, norm);
    print("quantize after GELU", 2 * wide, activation);
    print("quantize GELU's slope, bias", 3 * wide, slope);
    print("quantize after SwiGLU", 1.5 * wide, gate);
    print("quantize SwiGLU's slope", 2.5 * wide, dgate);
    for (const ops::Scaling scaling :
         {ops::Scaling::row, ops::Scaling::row_block, ops::Scaling::square_block}) {
      const auto scales = [&](int64_t r, int64_t c) {
        const ops::ScaleShape shape = ops::scale_shape(scaling, r, c);
        return take(DType::f32, {shape.rows, shape.columns}, 0);
      };
      const ops::QuantizeInBlocks pass{.rows = q,
                                       .columns = qt,
                                       .row_scale = scales(rows, f),
                                       .column_scale = scales(f, rows),
                                       .x = x,
                                       .scaling = scaling};
      const std::string what = scaling == ops::Scaling::row         ? "quantize, scales of rows"
                               : scaling == ops::Scaling::row_block ? "quantize, scales of 1x128"
                                                                    : "quantize, scales of 128x128";
      print_bytes(what, 2 * wide, [&] { device_.run(pass); });
      if (scaling == ops::Scaling::square_block) continue;  // weights
      ops::QuantizeInBlocks normed = pass;
      normed.norm = norm.norm;
      print_bytes(what + ", LayerNorm", 2 * wide, [&] { device_.run(normed); });
    }
  }

  void attention(const Shape& s) {
    const int64_t d = s.hidden / s.heads;
    const Tensor qkv = take(DType::bf16, {s.length, s.batch, 3 * s.hidden}, 1),
                 dqkv = take(DType::bf16, {s.length, s.batch, 3 * s.hidden}, 0),
                 out = take(DType::bf16, {s.length, s.batch, s.hidden}, 0),
                 dout = take(DType::bf16, {s.length, s.batch, s.hidden}, 1),
                 stats = take(DType::f32, {s.batch, s.heads, s.length}, 0),
                 first = take(DType::i32, {s.length, s.batch}, 0),
                 state = take(DType::u8, {sizeof(ops::StepState)}, 0);
    const ops::StepState fresh{.iteration = 3};
    device_.upload(state, &fresh);
    std::vector<int32_t> keys;
    for (int64_t i = 0; i < s.length * s.batch; ++i)
      keys.push_back(static_cast<int32_t>(i / s.batch / 300 * 300));
    device_.upload(first, keys.data());
    device_.synchronize();
    for (int mode = 0; mode < 3; ++mode) {
      const char* const names[] = {"", ", dropout 0.1", ", documents"};
      ops::AttentionForward f{.shape = {.num_attention_heads = s.heads,
                                        .num_query_groups = s.heads,
                                        .kv_channels = d,
                                        .softmax_scale = 0.125f},
                              .out = out,
                              .stats = stats,
                              .qkv = qkv};
      if (mode == 1) f.dropout = {.p = 0.1f, .seed = 1, .site = 1, .state = state};
      if (mode == 2) f.first_key = first;
      const ops::AttentionBackward b{.shape = f.shape,
                                     .dqkv = dqkv,
                                     .dout = dout,
                                     .out = out,
                                     .stats = stats,
                                     .qkv = qkv,
                                     .first_key = f.first_key,
                                     .dropout = f.dropout};
      const std::string what = std::string("attention") + names[mode];
      if (!wanted(what)) continue;
      const double flops = 2.0 * static_cast<double>(s.batch * s.heads * s.length * s.length * d);
      const double forward = time([&] { device_.run(f); });
      const double backward = time([&] { device_.run(b); });
      std::printf("%-6s %-34s %8.4f ms %7.1f TFLOP/s forward, %8.4f ms %7.1f TFLOP/s backward\n",
                  s.name, what.c_str(), forward, flops / forward / 1e9, backward,
                  2.5 * flops / backward / 1e9);
      std::fflush(stdout);
    }
  }

  double seconds_;
  std::string only_;
  ops::cuda::CudaOps device_{ops::cuda::CudaOptions{}};
  const Shape* shape_ = nullptr;
  std::vector<void*> blocks_;
  uint32_t filled_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.4;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--seconds") seconds = std::stod(argv[i + 1]);
    if (std::string(argv[i]) == "--only") only = argv[i + 1];
  }
  try {
    Bench bench(seconds, only);
    for (const Shape& shape : kShapes) bench.run(shape);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-kernels: %s\n", error.what());
    return 1;
  }
  return 0;
}
