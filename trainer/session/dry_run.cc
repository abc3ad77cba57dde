// See dry_run.h. A step is simulated with a card's table, as in plan-training. A device without a
// table gets one with two rates, measured here: floating point operations of one of the model's
// products, and bytes of a copy.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/dry_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "libindexed/output_file.h"
#include "tools/cli/run.h"
#include "tools/cli/text.h"
#include "tools/draw/bars.h"
#include "trainer/data/batch_loader.h"
#include "trainer/log/iteration_line.h"
#include "trainer/ops/arena.h"
#include "trainer/planning/times.h"
#include "trainer/session/auto_layout.h"
#include "trainer/session/memory_start.h"

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

// Plans of one rank of each pipeline stage: tensor- and data-parallel ranks of a stage have equal
// plans.
std::vector<EnginePlan> plan_stages(const TrainConfig& config, const ModelSpec& spec,
                                    const EngineOptions& options, ops::Ops* ops) {
  const int tensor = static_cast<int>(config.tensor_model_parallel_size);
  const int pipeline = static_cast<int>(config.pipeline_model_parallel_size);
  const int world = static_cast<int>(config.derived.world_size);
  std::vector<EnginePlan> plans;
  for (int stage = 0; stage < pipeline; ++stage)
    plans.push_back(plan_engine(
        {spec, options, make_topology(world / pipeline * stage, world, tensor, pipeline)}, ops));
  return plans;
}

void print_layout(const TrainConfig& config, const EngineOptions& options,
                  const std::vector<EnginePlan>& plans) {
  if (config.derived.world_size == 1) return;
  cli::print_format("layout      tensor %lld%s x pipeline %lld x data %lld\n",
                    static_cast<long long>(config.tensor_model_parallel_size),
                    options.sequence_parallel ? " (sequence parallel)" : "",
                    static_cast<long long>(config.pipeline_model_parallel_size),
                    static_cast<long long>(config.derived.data_parallel_size));
  if (plans.size() == 1) return;
  cli::print_format("schedule    %s, %d chunks a rank, %lld micro-batches\n",
                    config.derived.pipeline_schedule.c_str(), options.chunks,
                    static_cast<long long>(options.max_microbatches));
  for (size_t stage = 0; stage < plans.size(); ++stage)
    cli::print_format("stage %-5zu %s planned, %.4g flop\n", stage,
                      cli::readable_bytes(static_cast<double>(plans[stage].total_bytes)).c_str(),
                      plans[stage].step_flops);
}

// Draws what each pipeline stage computes in a step.
void draw_schedule(const std::string& path, const EngineOptions& options, int stages) {
  using Kind = Action::Kind;
  draw::BarPicture picture{
      .title = cli::concat("One step of ", cli::counted(stages, "pipeline stage"), ", ",
                           cli::with_commas(options.max_microbatches), " micro-batch",
                           options.max_microbatches == 1 ? "" : "es"),
      .legend = {"forward", "backward"}};
  if (options.schedule == ScheduleKind::zero_bubble)
    picture.legend = {"forward", "backward of inputs", "of weights"};
  const StepTime time =
      step_time(options.schedule, stages, options.max_microbatches, options.chunks);
  picture.words = cli::concat("a stage computes ", 100 * time.busy / time.whole,
                              "% of the time and waits for the others else");
  const auto schedule =
      timed_schedule(options.schedule, stages, options.max_microbatches, options.chunks);
  for (int stage = 0; stage < stages; ++stage) {
    picture.rows.push_back(cli::concat("stage ", stage));
    for (const auto& [action, begin, end] : schedule[static_cast<size_t>(stage)])
      picture.bars.push_back({.row = stage,
                              .begin = static_cast<double>(begin),
                              .end = static_cast<double>(end),
                              .text = std::to_string(action.microbatch),
                              .color = action.kind == Kind::forward           ? 0
                                       : action.kind == Kind::backward_weight ? 2
                                                                              : 1,
                              .faint = action.chunk % 2 == 1});
  }
  indexed::OutputFile file(path, indexed::Existing::replace);
  file.write(draw::bar_picture(picture));
  file.commit();
  cli::print_format("picture     %s\n", cli::one_line(path).c_str());
}

// Reads what the run reads first, of each split: most data of another vocabulary shows there.
// Errors: as BatchLoader::fill.
void read_first_batches(const TrainConfig& config, const Start& start,
                        const indexed::TrainingData& data, const Vocabulary& vocabulary) {
  const RunState state = start.state();
  const auto length = static_cast<size_t>(config.seq_length);
  std::vector<int32_t> tokens(length), labels(length), positions(length);
  std::vector<float> loss_mask(length);
  const auto read = [&](int64_t split, int64_t first, int64_t count) {
    if (data.split(split) == nullptr) return;
    const BatchLoader loader(data, *data.split(split),
                             {.seq_length = config.seq_length,
                              .micro_batch_size = 1,
                              .vocab_size = vocabulary.vocab_size,
                              .one_above = vocabulary.one_above,
                              .starts_over = split == 1});
    for (int64_t sample = first; sample < first + count; ++sample)
      loader.fill(sample, 1, {tokens, labels, positions, loss_mask});
  };
  const BatchSchedule batches(config);
  if (!config.skip_train && state.iteration < config.derived.train_iters)
    read(0, state.consumed_train_samples, batches.global_batch_size(state.consumed_train_samples));
  if (config.eval_iters == 0) return;
  read(1, config.skip_train ? 0 : state.consumed_valid_samples, config.derived.global_batch_size);
  read(2, 0, config.derived.global_batch_size);
}

// Prints how much data there is and how much the whole run reads; false if the run cannot read it.
bool print_data(const TrainConfig& config, const Start& start, const Vocabulary& vocabulary,
                cli::Console& console) {
  if (config.data_path.empty() && config.data_args_path.empty() && config.train_data_path.empty() &&
      config.per_split_data_args_path.empty())
    return true;
  try {
    const indexed::TrainingData data = open_training_data(config, indexed::CacheUse::read);
    check_data(config, start, data, console);
    read_first_batches(config, start, data, vocabulary);
    int64_t tokens = 0;
    for (const indexed::IndexedDataset& dataset : data.datasets()) tokens += dataset.num_tokens();
    cli::print_format("data        %s tokens", cli::with_commas(tokens).c_str());
    const int64_t read = samples_of_run(config, start.state()) * config.seq_length;
    if (!config.skip_train)
      cli::print_format("; the run reads %s, %.3g times as many", cli::with_commas(read).c_str(),
                        static_cast<double>(read) / static_cast<double>(tokens));
    cli::print_format("\n");
    return true;
  } catch (const cli::UsageError&) {
    throw;
  } catch (const cli::StdoutError&) {
    throw;
  } catch (const std::exception& error) {
    cli::print_format("data        %s\n", cli::one_line(cli::describe(error)).c_str());
    return false;
  }
}

// The memory that the run can use: the device's, the planned card's, or unknown.
struct Room {
  std::optional<int64_t> bytes;
  int64_t beside_bytes = 0;  ///< To be added to a plan: memory of CUDA, NCCL and the libraries,
  bool copies = false;       ///< and of transfers by copy engines.
};

std::string describe(const ops::Ops* ops, const Card* card) {
  if (ops != nullptr) return ops->describe();
  if (card == nullptr) return "planned for a GPU: there is none here";
  const ops::Gpu* gpu = ops::find_gpu(card->name);
  std::string text = cli::concat("planned for ", cli::one_line(card->product));
  if (gpu == nullptr) return text;
  text += cli::concat(" (", ops::text(gpu->capability), ")");
  if (gpu->capability != ops::kTestedCapability)
    text += cli::concat("; tested on ", ops::text(ops::kTestedCapability),
                        " alone, no card of this kind was tried");
  return text;
}

void print_memory(const std::vector<EnginePlan>& plans, const EnginePlan& most, const Room& room) {
  std::string free = "and what CUDA, NCCL and the GPU's libraries take";
  if (room.bytes)
    free = cli::concat(cli::readable_bytes(static_cast<double>(*room.bytes)), " free");
  if (room.beside_bytes > 0)
    free = cli::concat("about ", cli::readable_bytes(static_cast<double>(room.beside_bytes)),
                       room.copies ? " of CUDA, NCCL, copy engines" : " of CUDA, NCCL",
                       " and the GPU's libraries, ", free);
  cli::print_format("memory      %s planned%s, %s\n%s",
                    cli::readable_bytes(static_cast<double>(most.total_bytes)).c_str(),
                    plans.size() > 1 ? " where it is most" : "", free.c_str(), most.report.c_str());
}

// Bytes that may still be written to a folder, which need not exist yet. Errors: std::system_error
// where nothing can be written.
int64_t free_bytes_of(const std::string& folder) {
  std::filesystem::path there = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(there) && there.has_relative_path()) there = there.parent_path();
  const bool is_folder = std::filesystem::is_directory(there);
  if (!is_folder || access(there.c_str(), W_OK | X_OK) != 0)
    throw std::system_error(is_folder ? errno : ENOTDIR, std::generic_category(), there);
  return static_cast<int64_t>(std::filesystem::space(there).available);
}

// Prints what all ranks together write to disk, and hold in host memory meanwhile. What the disk
// has is only said: the run may be meant for another machine.
void print_checkpoint(const TrainConfig& config, const ModelSpec& spec,
                      const EngineOptions& options, const Cluster& cluster) {
  if (config.save.empty() || config.skip_train) return;
  const int64_t bytes = checkpoint_bytes(spec, options, !config.no_save_optim);
  std::string room;
  try {
    const int64_t free = free_bytes_of(config.save);
    room = cli::concat(bytes <= free ? "" : "does not fit: ",
                       cli::readable_bytes(static_cast<double>(free)), " free");
  } catch (const std::system_error& error) {
    room = cli::one_line(cli::describe(error));
  }
  cli::print_format("checkpoint  %s on disk (%s), and as much host memory, over all ranks\n",
                    cli::readable_bytes(static_cast<double>(bytes)).c_str(), room.c_str());
  if (config.in_memory_checkpoint)
    cli::print_format(
        "in memory   %s\n",
        in_memory_note(config, spec, options, cluster.world_size / cluster.local_size).c_str());
}

// A card with only two rates.
Card measured_here(ops::Ops& ops, const ModelSpec& spec, const EngineOptions& options,
                   int64_t ranks_on_host) {
  const Rates rates = measure(ops, spec, options);
  Card card = processor_card(ranks_on_host);
  card.product = ops.describe();
  card.source = cli::concat("a product at ", rates.flops / 1e12, " TFLOP/s and a copy at ",
                            rates.bytes / 1e12, " TB/s, measured now");
  card.measured = true;
  card.peak_tflops = rates.flops / 1e12;
  card.memory_tb_per_s = rates.bytes / 1e12;
  card.attention = {{64, 1024, 64, card.peak_tflops, card.peak_tflops}};
  card.passes = {{"any", 1, card.memory_tb_per_s}};
  return card;
}

// Prints from which checkpoint the run begins or goes on.
void print_start(const Start& start) {
  if (!start.checkpoint) return;
  cli::print_format("start       %s, step %lld%s\n",
                    cli::one_line(start.checkpoint->path()).c_str(),
                    static_cast<long long>(start.checkpoint->meta().state.iteration),
                    start.weights_only ? ": its weights alone" : "");
}

// The slowest stage's, since the others wait for it.
void print_time(const PlannedRun& run, const Start& start, const Cluster& cluster, const Card& card,
                const std::vector<EnginePlan>& plans) {
  CardTimes times(card, run.options.cpu_offload);
  const StepEstimate estimate = estimate_step(run, cluster, card, times);
  const StepReport report = report_of(estimate, run, cluster, card);
  const EnginePlan& busiest = plans[static_cast<size_t>(estimate.busiest)];
  const auto share = [&](double part) { return 100 * part / report.seconds; };
  cli::print_format(
      "step        about %.3g s: compute %.1f%%, bubble %.1f%%, exposed communication %.1f%%; %.4g "
      "flop and %.4g bytes%s\n",
      report.seconds, share(report.compute), share(report.bubble), share(report.exposed),
      busiest.step_flops, busiest.step_bytes_moved,
      plans.size() > 1 ? " of the slowest stage" : "");
  cli::print_format("rates       %s\n", basis_of(card).c_str());
  cli::print_format("tokens/s    about %.4g\n", report.tokens_per_second);
  if (run.config.skip_train) return;
  const RunState done = start.state();
  const double seconds =
      run_seconds(run, report.seconds, cluster, card, done.iteration, done.consumed_train_samples);
  const int64_t steps = run.config.derived.train_iters;
  const int64_t ahead = std::max<int64_t>(steps - done.iteration, 0);
  const std::string of = ahead == steps ? "" : cli::concat(cli::with_commas(ahead), " of ");
  cli::print_format("run         %s%lld steps, about %s\n", of.c_str(),
                    static_cast<long long>(steps), format_duration(seconds).c_str());
}

}  // namespace

int dry_run(const PlannedRun& run, const Start& start, const Vocabulary& vocabulary, ops::Ops* ops,
            const Card* card, cli::Console& console) {
  const Cluster& cluster = run.cluster;
  const TrainConfig& config = run.config;
  const ModelSpec& spec = run.spec;
  const EngineOptions& options = run.options;
  const std::vector<EnginePlan> plans = plan_stages(config, spec, options, ops);
  const EnginePlan& most = *std::max_element(
      plans.begin(), plans.end(), [](auto& a, auto& b) { return a.total_bytes < b.total_bytes; });
  Room room;
  if (card != nullptr && ops == nullptr)
    room = {.bytes = room_of(*card),
            .beside_bytes = bytes_beside_plan(*card, spec, options, run.topology, cluster)};
  if (ops != nullptr) room.bytes = ops->free_bytes();
  // On this machine's device, the context already exists and the libraries' part is planned.
  if (card != nullptr && ops != nullptr)
    room.beside_bytes = group_bytes(*card, spec, options, run.topology, cluster);
  room.copies = card != nullptr && copies_data(*card, options, run.topology, cluster);
  cli::print_format("device      %s\n", describe(ops, card).c_str());
  const ops::Gpu* gpu = card == nullptr ? nullptr : ops::find_gpu(card->name);
  if (ops == nullptr && gpu != nullptr && !gpu->peer_access && config.derived.world_size > 1)
    cli::print_format("links       %s\n", ops::kNoPeerAccess);
  cli::print_format("parameters  %s (%s with padding of the vocabulary to %lld rows)\n",
                    cli::with_commas(count_parameters(spec)).c_str(),
                    spec.family.empty() ? "no family" : spec.family.c_str(),
                    static_cast<long long>(spec.padded_vocab_size));
  print_start(start);
  const bool readable = print_data(config, start, vocabulary, console);
  print_layout(config, options, plans);
  if (!config.schedule_svg.empty())
    draw_schedule(config.schedule_svg, options, static_cast<int>(plans.size()));
  print_memory(plans, most, room);
  print_checkpoint(config, spec, options, cluster);
  cli::finish_stdout();
  const bool fits = !room.bytes || most.total_bytes + room.beside_bytes <= *room.bytes;
  if (!fits)
    cli::print_format(
        "does not fit: smaller --micro-batch-size, or --recompute-activations, or "
        "--recompute-granularity full; plan-training finds a layout that fits\n");
  if (card != nullptr) {
    print_time(run, start, cluster, *card, plans);
  } else if (ops != nullptr && fits) {
    print_time(run, start, cluster, measured_here(*ops, spec, options, cluster.local_size), plans);
  } else if (ops == nullptr) {
    const EnginePlan& busiest = *std::max_element(
        plans.begin(), plans.end(), [](auto& a, auto& b) { return a.step_flops < b.step_flops; });
    cli::print_format(
        "step        %.4g flop, %.4g bytes moved; no time without a card: --gpu names one\n",
        busiest.step_flops, busiest.step_bytes_moved);
  }
  return readable && fits ? 0 : 1;
}

}  // namespace trainer
