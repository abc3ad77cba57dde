// See dry_run.h. The estimate is two roofs: floating point operations at the measured rate of one
// of the model's own products, and bytes of everything at the measured rate of a copy, added, since
// products and the rest do not overlap on one stream.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/dry_run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/log/iteration_line.h"
#include "trainer/ops/arena.h"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds of one call of `work`, repeated for about a fifth of a second.
template <class Work>
double time_of(ops::Ops& ops, Work work) {
  work();
  ops.wait(ops.mark());
  const Clock::time_point begin = Clock::now();
  int64_t calls = 0;
  double seconds = 0;
  while (seconds < 0.2) {
    for (int i = 0; i < 4; ++i) work();
    ops.wait(ops.mark());
    calls += 4;
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return seconds / static_cast<double>(calls);
}

// Flop/s of a product of the model's width, and bytes/s of a copy.
struct Rates {
  double flops = 0, bytes = 0;
};

Rates measure(ops::Ops& ops, const ModelSpec& spec, const EngineOptions& options) {
  const int64_t rows = std::clamp<int64_t>(options.seq_length * options.micro_batch_size, 16, 4096);
  const int64_t width = std::clamp<int64_t>(spec.hidden_size, 16, 4096);
  const int64_t outputs = std::clamp<int64_t>(spec.ffn_hidden_size, 16, 4 * 4096);
  const DType dtype = options.model_dtype;
  const int64_t item = size_bytes(dtype);
  const int64_t workspace_bytes = int64_t{64} << 20;
  const int64_t bytes = ops::align_up(rows * width * item) + ops::align_up(outputs * width * item) +
                        2 * ops::align_up(rows * outputs * item) + workspace_bytes;
  ops::Arena arena(ops, bytes);
  ops::LinearForward product;
  product.x = arena.cut("x", dtype, {rows, width});
  product.weight = arena.cut("weight", dtype, {outputs, width});
  product.y = arena.cut("y", dtype, {rows, outputs});
  const Tensor copy = arena.cut("copy", dtype, {rows, outputs});
  const int64_t wanted = ops.workspace_bytes(product);
  if (wanted > 0 && wanted <= workspace_bytes)
    ops.set_workspace(arena.cut("workspace", DType::u8, {wanted}));
  ops.fill({product.x, 0.01f});
  ops.fill({product.weight, 0.01f});
  const double product_seconds = time_of(ops, [&] { ops.linear_forward(product); });
  const double copy_seconds = time_of(ops, [&] { ops.copy({copy, product.y}); });
  ops.set_workspace({});
  return {2.0 * static_cast<double>(rows * width) * static_cast<double>(outputs) / product_seconds,
          2.0 * static_cast<double>(copy.bytes()) / copy_seconds};
}

}  // namespace

int dry_run(const TrainConfig& config, const ModelSpec& spec, const EngineOptions& options,
            ops::Ops& ops) {
  const EnginePlan plan = Engine::plan(spec, options, &ops);
  const int64_t free = ops.free_bytes();
  std::printf("device      %s\n", ops.describe().c_str());
  std::printf("parameters  %s (%s with padding of the vocabulary to %lld rows)\n",
              cli::with_commas(count_parameters(spec)).c_str(), spec.family.c_str(),
              static_cast<long long>(spec.padded_vocab_size));
  std::printf("memory      %s planned, %s free\n%s",
              cli::readable_bytes(static_cast<double>(plan.total_bytes)).c_str(),
              cli::readable_bytes(static_cast<double>(free)).c_str(), plan.report.c_str());
  cli::finish_stdout();
  if (plan.total_bytes > free) {
    std::printf(
        "does not fit: smaller --micro-batch-size, or --recompute-activations, or "
        "--recompute-granularity full\n");
    return 1;
  }
  const Rates rates = measure(ops, spec, options);
  const double step = plan.step_flops / rates.flops + plan.step_bytes_moved / rates.bytes;
  const double tokens = static_cast<double>(config.derived.global_batch_size * config.seq_length);
  std::printf("step        about %.3g s: %.4g flop at %.3g flop/s, %.4g bytes at %.3g bytes/s\n",
              step, plan.step_flops, rates.flops, plan.step_bytes_moved, rates.bytes);
  std::printf("tokens/s    about %.4g\n", tokens / step);
  std::printf("run         %lld steps, about %s\n",
              static_cast<long long>(config.derived.train_iters),
              format_duration(step * static_cast<double>(config.derived.train_iters)).c_str());
  return 0;
}

}  // namespace trainer
