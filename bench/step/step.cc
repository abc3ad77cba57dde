// bench-step: tokens per second of a whole GPT-2 training step, replayed as a CUDA graph.
// SPDX-License-Identifier: MIT
//
//   bench-step [--model 124M,345M,...] [--seconds 20] [--dtype bf16] [--shares]
//              [--attention-dropout P] [--hidden-dropout P]
//              [--choices FILE] [--hold SECONDS] [--micro-batch-size B] [--head-rows R]
//              [--layers L]
//              [--engine [--no-fuse] [--half-state] [--lean]
//               [--fp8 [hybrid-|e4m3-]delayed|tensorwise|rowwise|blockwise[-no-wgrad][-gather]]
//               [--fp8-fused-norm on|off]
//               [--documents TOKENS] [--recompute selective|full] [--microbatches M]
//               [--gpus N] [--tensor-model-parallel-size T] [--sequence-parallel]
//               [--pipeline-model-parallel-size P] [--zero-bubble] [--chunks C]
//               [--zero-stage Z] [--overlap] [--no-copy-engines] [--cpu-offload]
//               [--optimizer adam|muon]]
// The step is the one of gpt_step.h, or with --engine the trainer's own Engine; --half-state keeps
// moments and gradients in 16 bits, --lean also recomputes every layer, --gpus starts a process for
// each.
// First it verifies: the loss falls, and a replayed step gives the same bits as the same step
// queued call by call. Then it holds the load for --seconds and prints tokens/s over the second
// half, model flop/s use ("half": 6N + 6LHS a token, of 989.4 TFLOP/s), SM clock and power.
// --shares times every kind of operation in one step queued call by call.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "bench/step/device_meter.h"
#include "bench/step/engine_step.h"
#include "bench/step/gpt_step.h"
#include "trainer/ops/cuda/cuda_check.h"
#include "trainer/ops/cuda/cuda_ops.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kPeakFlops = 989.4e12;

constexpr bench::GptShape kModels[] = {
    {"124M", 12, 768, 12, 1024, 64, 50304, 32768},
    {"345M", 24, 1024, 16, 1024, 32, 50304, 16384},
    {"774M", 36, 1280, 20, 1024, 16, 50304, 16384},
    {"1558M", 48, 1600, 25, 1024, 16, 50304, 16384},
    {"1.3B", 24, 2048, 16, 2048, 8, 50304, 16384},
    {"6.7B", 32, 4096, 32, 2048, 4, 50304, 8192},
    {"22B", 48, 6144, 64, 2048, 4, 51200, 8192},
    {"13B", 40, 5120, 40, 2048, 2, 50304, 4096},
    {"tiny", 2, 256, 4, 256, 4, 1024, 512},
    {"8B", 32, 4096, 32, 8192, 1, 128256, 4096, "llama", 8, 14336},
};

struct Options {
  std::string models = "124M";
  ops::DType dtype = ops::DType::bf16;
  bool shares = false, engine = false;
  int64_t head_rows = 0, batch = 0, layers = 0;
  bench::EngineRun run;  ///< Seconds, dropout and choices are for both.
};

/// Flags without a value.
bool parse_switch(const std::string& flag, Options& o) {
  trainer::EngineOptions& engine = o.run.options;
  if (flag == "--shares") return o.shares = o.run.shares = true;
  if (flag == "--engine") return o.engine = true;
  if (flag == "--half-state") return o.run.half_state = true;
  if (flag == "--lean") return o.run.half_state = o.run.lean = true;
  if (flag == "--no-fuse") return engine.fuse_residual = false, true;
  if (flag == "--cpu-offload") return engine.cpu_offload = true;
  if (flag == "--overlap") return engine.overlap_grad_reduce = engine.overlap_param_gather = true;
  if (flag == "--no-copy-engines") return engine.copy_engines = false, true;
  if (flag == "--sequence-parallel") return engine.sequence_parallel = true;
  if (flag == "--zero-bubble") return engine.schedule = trainer::ScheduleKind::zero_bubble, true;
  return false;
}

void parse_layout(const std::string& flag, const std::string& value, Options& o) {
  trainer::EngineOptions& engine = o.run.options;
  if (flag == "--gpus") o.run.gpus = std::stoi(value);
  if (flag == "--tensor-model-parallel-size") o.run.tensor = std::stoi(value);
  if (flag == "--pipeline-model-parallel-size") o.run.pipeline = std::stoi(value);
  if (flag == "--zero-stage") engine.zero_stage = std::stoi(value);
  if (flag == "--optimizer" && value == "muon") engine.optimizer = trainer::OptimizerKind::muon;
  if (flag == "--microbatches") o.run.microbatches = std::stoll(value);
  if (flag == "--chunks") {
    engine.chunks = std::stoi(value);
    engine.schedule = trainer::ScheduleKind::interleaved;
  }
  if (flag == "--fp8") {
    using Fp8 = trainer::Fp8Options;
    const auto has = [&](const char* word) { return value.find(word) != std::string::npos; };
    engine.fp8.format = value.starts_with("e4m3") ? Fp8::Format::e4m3 : Fp8::Format::hybrid;
    engine.fp8.recipe = has("tensorwise")  ? Fp8::Recipe::tensorwise
                        : has("rowwise")   ? Fp8::Recipe::rowwise
                        : has("blockwise") ? Fp8::Recipe::blockwise
                                           : Fp8::Recipe::delayed;
    engine.fp8.weight_gradients = !has("no-wgrad");
    engine.fp8.param_gather = has("gather");
  }
  if (flag == "--fp8-fused-norm") engine.fp8.fuse_norms = value == "on";
  if (flag == "--recompute")
    engine.recompute.granularity = value == "full" ? trainer::Recompute::Granularity::full
                                                   : trainer::Recompute::Granularity::selective;
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (parse_switch(flag, o)) continue;
    const std::string value = i + 1 < argc ? argv[++i] : "";
    parse_layout(flag, value, o);
    if (flag == "--model") o.models = value;
    if (flag == "--seconds") o.run.seconds = std::stod(value);
    if (flag == "--choices") o.run.choices = value;
    if (flag == "--hold") o.run.hold = std::stod(value);
    if (flag == "--attention-dropout") o.run.attention_dropout = std::stof(value);
    if (flag == "--hidden-dropout") o.run.hidden_dropout = std::stof(value);
    if (flag == "--documents") o.run.documents = std::stoll(value);
    if (flag == "--head-rows") o.head_rows = std::stoll(value);
    if (flag == "--micro-batch-size") o.batch = std::stoll(value);
    if (flag == "--layers") o.layers = std::stoll(value);
    if (flag == "--dtype")
      o.dtype = value == "fp32"   ? ops::DType::f32
                : value == "fp16" ? ops::DType::f16
                                  : ops::DType::bf16;
  }
  o.run.options.model_dtype = o.dtype;
  o.run.options.head_rows = o.head_rows;
  return o;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Device time of each kind of operation in one step queued call by call.
void print_shares(bench::GptStep& step, ops::cuda::CudaOps& ops) {
  struct Row {
    double ms = 0, flops = 0, bytes = 0;
    int calls = 0;
  };
  std::map<std::string, Row> rows;
  constexpr int kRepeats = 5;
  std::vector<cudaEvent_t> events(4096);
  for (cudaEvent_t& e : events) CUDA_CHECK(cudaEventCreate(&e));
  double total = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<std::pair<std::string, ops::Cost>> seen;
    step.begin(100 + repeat);
    CUDA_CHECK(cudaEventRecord(events[0], ops.stream()));
    step.run([&](const char* name, const ops::AnyArgs& args) {
      seen.emplace_back(name, std::visit([](const auto& a) { return a.cost(); }, args));
      CUDA_CHECK(cudaEventRecord(events[seen.size()], ops.stream()));
    });
    ops.synchronize();
    for (size_t i = 0; i < seen.size(); ++i) {
      float ms = 0;
      CUDA_CHECK(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
      Row& row = rows[seen[i].first];
      row.ms += ms / kRepeats;
      row.flops += seen[i].second.flops / kRepeats;
      row.bytes += seen[i].second.bytes / kRepeats;
      ++row.calls;
      total += ms / kRepeats;
    }
  }
  for (cudaEvent_t e : events) cudaEventDestroy(e);
  std::printf("  %-16s %6s %9s %7s %9s %9s\n", "operation", "calls", "ms", "share", "TFLOP/s",
              "TB/s");
  for (const auto& [name, row] : rows)
    std::printf("  %-16s %6d %9.3f %6.1f%% %9.1f %9.2f\n", name.c_str(), row.calls / kRepeats,
                row.ms, 100 * row.ms / total, row.flops / row.ms / 1e9, row.bytes / row.ms / 1e9);
  std::printf("  %-16s %6s %9.3f\n", "sum", "", total);
}

/// Three steps call by call, then the same three replayed: equal bits, and a falling loss.
int64_t verify_and_capture(bench::GptStep& step, ops::cuda::CudaOps& ops) {
  constexpr int kSteps = 3;
  float loss[2][kSteps], norm[2][kSteps];
  int64_t graph = 0;
  for (int way = 0; way < 2; ++way) {
    step.reset();
    if (way == 1) {
      ops.begin_capture();
      step.run();
      graph = ops.end_capture();
    }
    for (int i = 0; i < kSteps; ++i) {
      step.begin(i + 1);
      if (way == 0)
        step.run();
      else
        ops.replay(graph);
      const ops::StepState state = step.state();
      loss[way][i] = state.loss;
      norm[way][i] = state.grad_norm;
    }
  }
  const bool same = std::memcmp(loss[0], loss[1], sizeof loss[0]) == 0 &&
                    std::memcmp(norm[0], norm[1], sizeof norm[0]) == 0;
  const bool falls = std::isfinite(loss[0][0]) && loss[0][2] < loss[0][0];
  std::printf("  loss %.4f %.4f %.4f, norm %.4f %.4f %.4f, replay %s, loss %s\n", loss[0][0],
              loss[0][1], loss[0][2], norm[0][0], norm[0][1], norm[0][2],
              same ? "bit-equal" : "DIFFERS", falls ? "falls" : "DOES NOT FALL");
  if (!same) std::printf("  replay: loss %.6f %.6f %.6f\n", loss[1][0], loss[1][1], loss[1][2]);
  return graph;
}

/// Holds the load for `seconds`: half warms the card up, the other half is measured step by step.
/// `queue` queues one step and may wait for an older one. Prints the result line.
void hold_and_print(const bench::GptShape& shape, const char* what, ops::cuda::CudaOps& ops,
                    double seconds, const std::function<void(int64_t)>& queue,
                    const std::function<float()>& loss) {
  std::vector<cudaEvent_t> events;
  int64_t iteration = 10;
  const auto hold = [&](bool measured) {
    const Clock::time_point begin = Clock::now();
    while (seconds_since(begin) < seconds / 2) {
      queue(++iteration);
      if (measured) {
        events.emplace_back();
        CUDA_CHECK(cudaEventCreate(&events.back()));
        CUDA_CHECK(cudaEventRecord(events.back(), ops.stream()));
      }
      if (iteration % 4 == 0) ops.synchronize();
    }
    ops.synchronize();
  };
  hold(false);
  bench::DeviceMeter meter;
  hold(true);
  const bench::DeviceMeter::Reading reading = meter.stop();
  std::vector<float> ms(events.size() - 1);
  for (size_t i = 0; i + 1 < events.size(); ++i)
    CUDA_CHECK(cudaEventElapsedTime(&ms[i], events[i], events[i + 1]));
  float whole = 0;
  CUDA_CHECK(cudaEventElapsedTime(&whole, events.front(), events.back()));
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2], mean = whole / static_cast<double>(ms.size());
  const double rate = static_cast<double>(shape.tokens()) / median * 1e3;
  std::printf(
      "%s %s: %.0f tokens/s (median of %zu steps, %.2f ms; mean %.2f ms), MFU %.1f%%, SM %.0f MHz, "
      "%.0f W, %.2f "
      "mJ/token, loss %.3f\n",
      shape.name, what, rate, ms.size(), median, mean,
      100 * rate * shape.flops_per_token() / kPeakFlops, reading.mean_mhz, reading.mean_watts,
      reading.mean_watts / rate * 1e3, static_cast<double>(loss()));
  std::fflush(stdout);
  for (cudaEvent_t e : events) cudaEventDestroy(e);
}

void measure(const bench::GptShape& shape, const Options& o) {
  const Clock::time_point start = Clock::now();
  ops::cuda::CudaOps ops({.gemm_choices_path = o.run.choices, .hold_seconds = o.run.hold});
  bench::GptStep step(ops, shape, o.dtype, o.run.hidden_dropout, o.run.attention_dropout);
  const std::vector<ops::AnyArgs> calls = step.calls();
  int64_t workspace = 0;
  for (const ops::AnyArgs& call : calls) workspace = std::max(workspace, ops.workspace_bytes(call));
  ops::Tensor scratch(nullptr, ops::DType::u8, ops.device(), {workspace});
  scratch.data = ops.allocate(workspace);
  ops.set_workspace(scratch);
  const double planned = seconds_since(start);
  ops.prepare(calls);
  const double prepared = seconds_since(start);
  step.begin(1);
  step.run();
  ops.synchronize();
  std::printf(
      "%s: %s, %lld layers, hidden %lld, %lld x %lld tokens, %s, %.1f GB; plans %.1f s, tuning "
      "%.1f s, first step %.2f s\n",
      shape.name, ops.describe().c_str(), static_cast<long long>(shape.layers),
      static_cast<long long>(shape.hidden), static_cast<long long>(shape.micro_batch_size),
      static_cast<long long>(shape.seq_length), ops::name(o.dtype),
      static_cast<double>(step.bytes() + workspace) / 1e9, planned, prepared - planned,
      seconds_since(start));
  const int64_t graph = verify_and_capture(step, ops);
  if (o.shares) print_shares(step, ops);
  step.reset();
  const auto queue = [&](int64_t iteration) {
    step.begin(iteration);
    ops.replay(graph);
  };
  hold_and_print(shape, "step", ops, o.run.seconds, queue, [&] { return step.state().loss; });
  ops.release(scratch.data);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  try {
    for (bench::GptShape shape : kModels) {
      if ((',' + options.models + ',').find(',' + std::string(shape.name) + ',') ==
          std::string::npos)
        continue;
      if (options.layers > 0) shape.layers = options.layers;
      if (options.batch > 0) shape.micro_batch_size = options.batch;
      if (options.head_rows > 0) shape.head_rows = options.head_rows;
      shape.head_rows = std::min(shape.head_rows, shape.tokens());
      if (options.engine)
        bench::measure_engine(shape, options.run);
      else
        measure(shape, options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-step: %s\n", error.what());
    return 1;
  }
  return 0;
}
