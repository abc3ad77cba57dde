// See dry_run.h. The estimate is two roofs: floating point operations at the measured rate of one
// of the model's own products, and bytes of everything at the measured rate of a copy, added, since
// products and the rest do not overlap on one stream.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/dry_run.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "trainer/data/batch_loader.h"
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
  ops.run(ops::Fill{product.x, 0.01f});
  ops.run(ops::Fill{product.weight, 0.01f});
  const double product_seconds = time_of(ops, [&] { ops.run(product); });
  const double copy_seconds = time_of(ops, [&] { ops.run(ops::Copy{copy, product.y}); });
  ops.set_workspace({});
  return {2.0 * static_cast<double>(rows * width) * static_cast<double>(outputs) / product_seconds,
          2.0 * static_cast<double>(copy.bytes()) / copy_seconds};
}

// Plans of one rank of each pipeline stage: tensor- and data-parallel ranks of a stage are alike.
std::vector<EnginePlan> plan_stages(const TrainConfig& config, const ModelSpec& spec,
                                    const EngineOptions& options, ops::Ops* ops) {
  const int tensor = static_cast<int>(config.tensor_model_parallel_size);
  const int pipeline = static_cast<int>(config.pipeline_model_parallel_size);
  const int world = static_cast<int>(config.derived.world_size);
  std::vector<EnginePlan> plans;
  for (int stage = 0; stage < pipeline; ++stage)
    plans.push_back(Engine::plan(spec, options, ops,
                                 make_topology(world / pipeline * stage, world, tensor, pipeline)));
  return plans;
}

// Of a step's time on each rank, what the pipeline leaves it to compute in.
double busy_share(const TrainConfig& config, const EngineOptions& options) {
  const StepTime time =
      step_time(options.schedule, static_cast<int>(config.pipeline_model_parallel_size),
                options.max_microbatches, options.chunks);
  return static_cast<double>(time.busy) / static_cast<double>(time.whole);
}

void print_layout(const TrainConfig& config, const EngineOptions& options,
                  const std::vector<EnginePlan>& plans) {
  if (config.derived.world_size == 1) return;
  std::printf("layout      tensor %lld%s x pipeline %lld x data %lld\n",
              static_cast<long long>(config.tensor_model_parallel_size),
              options.sequence_parallel ? " (sequence parallel)" : "",
              static_cast<long long>(config.pipeline_model_parallel_size),
              static_cast<long long>(config.derived.data_parallel_size));
  if (plans.size() == 1) return;
  std::printf("schedule    %s, %d chunks a rank, %lld micro-batches: %.1f%% of the time idle\n",
              config.derived.pipeline_schedule.c_str(), options.chunks,
              static_cast<long long>(options.max_microbatches),
              100 * (1 - busy_share(config, options)));
  for (size_t stage = 0; stage < plans.size(); ++stage)
    std::printf("stage %-5zu %s planned, %.4g flop\n", stage,
                cli::readable_bytes(static_cast<double>(plans[stage].total_bytes)).c_str(),
                plans[stage].step_flops);
}

// What there is to read and what the run reads of it; false when it cannot be opened.
bool print_data(const TrainConfig& config) {
  if (config.data_path.empty() && config.data_args_path.empty() && config.train_data_path.empty() &&
      config.per_split_data_args_path.empty())
    return true;
  const int64_t wanted = config.derived.train_samples * config.seq_length;
  try {
    const int64_t tokens = count_tokens(config);
    std::printf("data        %s tokens; the run reads %s, %.3g times as many\n",
                cli::with_commas(tokens).c_str(), cli::with_commas(wanted).c_str(),
                static_cast<double>(wanted) / static_cast<double>(std::max<int64_t>(tokens, 1)));
    return true;
  } catch (const cli::UsageError&) {
    throw;
  } catch (const std::exception& error) {
    std::printf("data        %s\n", cli::one_line(cli::describe(error)).c_str());
    return false;
  }
}

// What cuBLASLt and cuDNN are given of a GPU that is elsewhere: the scratch of products, or of the
// deterministic backward of attention, two bytes a score in cuts of whole samples of 2 GiB at most.
int64_t library_workspace(const TrainConfig& config, const EngineOptions& options) {
  constexpr int64_t kProducts = int64_t{64} << 20, kMostScores = int64_t{2} << 30;
  const int64_t heads = config.derived.num_attention_heads / config.tensor_model_parallel_size;
  const int64_t sample = 2 * heads * options.seq_length * options.seq_length;
  const int64_t scores = std::max(sample, std::min(options.micro_batch_size * sample, kMostScores));
  return kProducts + (options.model_dtype == DType::f32 ? 0 : scores);
}

// What the run has of memory: of the device, of the card by name, or unknown.
struct Room {
  std::optional<int64_t> bytes;
  int64_t workspace_bytes = 0;  ///< To be added to a plan.
};

std::string describe(const ops::Ops* ops, const ops::Gpu* gpu) {
  if (ops != nullptr) return ops->describe();
  if (gpu == nullptr) return "planned for a GPU: there is none here";
  return cli::concat("planned for ", gpu->product, " (", ops::text(gpu->capability), ")",
                     gpu->capability == ops::kTestedCapability
                         ? ""
                         : cli::concat("; tested on ", ops::text(ops::kTestedCapability),
                                       " alone, no card of this kind was tried"));
}

void print_memory(const std::vector<EnginePlan>& plans, const EnginePlan& most, const Room& room) {
  std::string free = "and the workspace of the GPU's libraries";
  if (room.bytes)
    free = cli::concat(cli::readable_bytes(static_cast<double>(*room.bytes)), " free");
  if (room.workspace_bytes > 0)
    free = cli::concat("about ", cli::readable_bytes(static_cast<double>(room.workspace_bytes)),
                       " of the GPU's libraries, ", free);
  std::printf("memory      %s planned%s, %s\n%s",
              cli::readable_bytes(static_cast<double>(most.total_bytes)).c_str(),
              plans.size() > 1 ? " where it is most" : "", free.c_str(), most.report.c_str());
}

// What the ranks together write to disk, and hold in host memory while they do.
void print_checkpoint(const TrainConfig& config, const ModelSpec& spec,
                      const EngineOptions& options) {
  if (config.save.empty()) return;
  int64_t bytes = 0;
  for (const ParamSpec& param : param_table(spec)) {
    int64_t item = size_bytes(options.model_dtype);
    if (!config.no_save_optim) {
      item += options.model_dtype == DType::f32 ? 0 : 4;
      for (const StateSpec& state : optimizer_states(options.optimizer))
        if (keeps(state, param))
          item += size_bytes(state.always_fp32 ? DType::f32 : options.moment_dtype);
    }
    bytes += param.elements() * item;
  }
  std::printf("checkpoint  %s on disk, and as much host memory, over all ranks\n",
              cli::readable_bytes(static_cast<double>(bytes)).c_str());
}

void print_time(const TrainConfig& config, const ModelSpec& spec, const EngineOptions& options,
                const std::vector<EnginePlan>& plans, ops::Ops& ops) {
  const Rates rates = measure(ops, spec, options);
  double step = 0, flops = 0, bytes = 0;
  for (const EnginePlan& p : plans) {
    const double time = p.step_flops / rates.flops + p.step_bytes_moved / rates.bytes;
    if (time > step) step = time, flops = p.step_flops, bytes = p.step_bytes_moved;
  }
  step /= busy_share(config, options);
  const double tokens = static_cast<double>(config.derived.global_batch_size * config.seq_length);
  std::printf("step        about %.3g s: %.4g flop at %.3g flop/s, %.4g bytes at %.3g bytes/s%s\n",
              step, flops, rates.flops, bytes, rates.bytes,
              config.derived.world_size > 1 ? ", communication not counted" : "");
  std::printf("tokens/s    about %.4g\n", tokens / step);
  std::printf("run         %lld steps, about %s\n",
              static_cast<long long>(config.derived.train_iters),
              format_duration(step * static_cast<double>(config.derived.train_iters)).c_str());
}

}  // namespace

int dry_run(const TrainConfig& config, const ModelSpec& spec, const EngineOptions& options,
            ops::Ops* ops, const ops::Gpu* gpu) {
  const std::vector<EnginePlan> plans = plan_stages(config, spec, options, ops);
  const EnginePlan& most = *std::max_element(
      plans.begin(), plans.end(), [](auto& a, auto& b) { return a.total_bytes < b.total_bytes; });
  Room room;
  if (ops != nullptr) room.bytes = ops->free_bytes();
  if (ops == nullptr && gpu != nullptr)
    room = {ops::usable_bytes(*gpu), library_workspace(config, options)};
  std::printf("device      %s\n", describe(ops, gpu).c_str());
  if (gpu != nullptr && !gpu->peer_access && config.derived.world_size > 1)
    std::printf("links       %s\n", ops::kNoPeerAccess);
  std::printf("parameters  %s (%s with padding of the vocabulary to %lld rows)\n",
              cli::with_commas(count_parameters(spec)).c_str(),
              spec.family.empty() ? "no family" : spec.family.c_str(),
              static_cast<long long>(spec.padded_vocab_size));
  const bool readable = print_data(config);
  print_layout(config, options, plans);
  print_memory(plans, most, room);
  print_checkpoint(config, spec, options);
  cli::finish_stdout();
  const bool fits = !room.bytes || most.total_bytes + room.workspace_bytes <= *room.bytes;
  if (!fits)
    std::printf(
        "does not fit: smaller --micro-batch-size, or --recompute-activations, or "
        "--recompute-granularity full\n");
  if (ops == nullptr) {
    std::printf("step        %.4g flop, %.4g bytes moved; no time without the GPU\n",
                most.step_flops, most.step_bytes_moved);
    return readable && fits ? 0 : 1;
  }
  if (!fits) return 1;
  print_time(config, spec, options, plans, *ops);
  return readable ? 0 : 1;
}

}  // namespace trainer
