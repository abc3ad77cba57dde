// See layout_cost.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/layout_cost.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tools/cli/flags.h"
#include "trainer/comm/comm.h"
#include "trainer/session/assembly.h"

namespace trainer {
namespace {

constexpr double kGib = int64_t{1} << 30;

Topology stage_of(const PlannedRun& run, int stage) {
  Topology topology = run.topology;
  topology.pipeline_rank = stage;
  return topology;
}

/// The scratch memory of products and sums over columns, or of attention's deterministic backward:
/// two bytes per score, in equal parts of whole samples of at most 2 GiB (ops/cuda).
int64_t library_workspace(const ModelSpec& spec, const EngineOptions& options, int tensor_size) {
  constexpr int64_t kMib = 1 << 20, kMostScores = 2048 * kMib, kSumSlices = 528;
  const int64_t widest = std::max(spec.fc1_size(), 3 * spec.hidden_size) / tensor_size;
  const int64_t products = 64 * kMib + kSumSlices * 4 * widest;
  if (options.model_dtype == DType::f32) return products;
  const int64_t heads = spec.num_attention_heads / tensor_size;
  const int64_t sample = 2 * heads * options.seq_length * options.seq_length;
  const int64_t most = options.micro_batch_size;
  int64_t samples = std::clamp<int64_t>(kMostScores / sample, 1, most);
  while (most % samples != 0) --samples;
  return std::max(products, samples * sample + 2 * kMib);
}

/// The pipeline's stages, those that compute the same together: stages between the first and the
/// last with equally many layers in each chunk. Not where some layers differ from others (first and
/// last in bf16, of an FP8 model), nor with ZeRO 3, which prefetches in a stage's own order.
std::vector<std::vector<int>> stages_alike(const PlannedRun& run) {
  std::vector<std::vector<int>> out;
  std::map<std::vector<int64_t>, size_t> found;
  for (int stage = 0; stage < run.topology.pipeline_size; ++stage) {
    std::vector<int64_t> key;
    for (const Place& place : Setup(run.spec, run.options, stage_of(run, stage)).places)
      key.push_back(place.num_layers);
    const bool end = stage == 0 || stage + 1 == run.topology.pipeline_size;
    if (end || run.options.fp8.on() || run.options.zero_stage == 3) key.push_back(stage);
    const auto [at, is_new] = found.try_emplace(key, out.size());
    if (is_new) out.emplace_back();
    out[at->second].push_back(stage);
  }
  return out;
}

}  // namespace

static_assert(kMostCopying == comm::kMostSharing);

bool copies_data(const Card& card, const EngineOptions& options, const Topology& t,
                 const Cluster& cluster) {
  return options.shares_memory() && can_copy(card, place_on_hosts(cluster, t, ops::Queue::data));
}

int64_t group_bytes(const Card& card, const ModelSpec& spec, const EngineOptions& options,
                    const Topology& t, const Cluster& cluster) {
  const bool embedding = t.pipeline_size > 1 && spec.tied_embeddings;
  const int groups =
      (t.world_size() > 1) + (t.tensor_size > 1) + (t.data_size > 1) + (embedding ? 1 : 0);
  // Of groups of which some lie on two hosts, the others share their memory.
  const bool copies = options.shares_memory() && card.peer_gib > 0 && t.data_size > 1 &&
                      t.data_size <= kMostCopying &&
                      int64_t{t.data_size} * t.tensor_size <= cluster.local_size;
  const double gib = groups * card.group_gib + (t.pipeline_size > 1 ? card.message_gib : 0) +
                     (t.tensor_size - 1) * card.tensor_gib +
                     (copies ? (t.data_size - 1) * card.peer_gib : 0);
  return static_cast<int64_t>(gib * kGib) + (copies ? comm::kSumBytes : 0);
}

int64_t bytes_beside_plan(const Card& card, const ModelSpec& spec, const EngineOptions& options,
                          const Topology& t, const Cluster& cluster) {
  return library_workspace(spec, options, t.tensor_size) +
         group_bytes(card, spec, options, t, cluster) +
         static_cast<int64_t>(card.context_gib * kGib);
}

PlannedRun plan_run(const TrainConfig& config, Given given, const Cluster& cluster,
                    int64_t vocab_size) {
  PlannedRun run{.config = config, .cluster = cluster};
  run.notes = derive_and_check(run.config, given, cluster.world_size);
  run.spec = model_spec(run.config, vocab_size);
  run.options = engine_options(run.config);
  run.topology = make_topology(0, static_cast<int>(cluster.world_size),
                               static_cast<int>(run.config.tensor_model_parallel_size),
                               static_cast<int>(run.config.pipeline_model_parallel_size));
  const std::string refusal = layout_refusal(run.spec, run.options, run.topology);
  if (!refusal.empty()) throw cli::UsageError(refusal);
  return run;
}

int64_t bytes_of_stage(const PlannedRun& run, const Card& card, int stage) {
  return plan_engine({run.spec, run.options, stage_of(run, stage)}, nullptr).total_bytes +
         bytes_beside_plan(card, run.spec, run.options, run.topology, run.cluster);
}

int64_t bytes_taken(const PlannedRun& run, const Card& card, bool exact) {
  int64_t most = 0;
  const auto take = [&](int stage) {
    const Setup setup{run.spec, run.options, stage_of(run, stage)};
    most =
        std::max(most, exact ? plan_engine(setup, nullptr).total_bytes : plan_largest_step(setup));
  };
  // Of stages that compute the same, the first keeps the most micro-batches. In a zero-bubble
  // pipeline a later one may keep more, for its weight gradients.
  const bool zero_bubble = run.options.schedule == ScheduleKind::zero_bubble;
  for (const std::vector<int>& alike : stages_alike(run)) {
    take(alike.front());
    for (size_t i = 1; zero_bubble && i < alike.size(); ++i)
      if (exact || i + 1 == alike.size()) take(alike[i]);
  }
  return most + bytes_beside_plan(card, run.spec, run.options, run.topology, run.cluster);
}

const std::vector<int64_t>& KeptBytes::of(const PlannedRun& run) {
  const EngineOptions& o = run.options;
  const Setup setup(run.spec, o, stage_of(run, 0));
  std::vector<int64_t> key = {run.topology.tensor_size,
                              o.sequence_parallel,
                              o.micro_batch_size,
                              static_cast<int64_t>(o.recompute.granularity),
                              static_cast<int64_t>(o.recompute.method),
                              o.recompute.num_layers};
  for (const Place& place : setup.places)
    key.insert(key.end(),
               {place.first_layer, place.num_layers, place.has_embedding, place.has_head});
  const auto [at, is_new] = known_.try_emplace(std::move(key));
  if (is_new) at->second = plan_kept(setup);
  return at->second;
}

LeastBytes bytes_at_least(const PlannedRun& run, const Card& card, KeptBytes& kept) {
  const Setup setup(run.spec, run.options, stage_of(run, 0));
  const int64_t states = plan_states(setup) +
                         bytes_beside_plan(card, run.spec, run.options, run.topology, run.cluster);
  return {.states = states, .all = states + most_kept(setup, kept.of(run))};
}

StepEstimate estimate_step(const PlannedRun& run, const Cluster& cluster, const Card& card,
                           CardTimes& times, bool data_is_free) {
  const int64_t all = run.options.max_microbatches;
  return std::move(estimate_steps(run, {&all, 1}, cluster, card, times, data_is_free).front());
}

std::vector<StepEstimate> estimate_steps(const PlannedRun& run,
                                         std::span<const int64_t> microbatches,
                                         const Cluster& cluster, const Card& card, CardTimes& times,
                                         bool data_is_free) {
  std::vector<std::vector<ops::Timeline>> steps(microbatches.size());
  for (std::vector<ops::Timeline>& stages : steps)
    stages.resize(static_cast<size_t>(run.topology.pipeline_size));
  for (const std::vector<int>& alike : stages_alike(run)) {
    const Setup setup(run.spec, run.options, stage_of(run, alike.front()));
    std::vector<ops::Timeline> planned = plan_timelines(setup, microbatches, alike, times);
    for (size_t i = 0; i < planned.size(); ++i)
      steps[i / alike.size()][static_cast<size_t>(alike[i % alike.size()])] = std::move(planned[i]);
  }
  std::vector<StepEstimate> out;
  for (const std::vector<ops::Timeline>& stages : steps)
    out.push_back(simulate(stages, run.topology, cluster, card, data_is_free));
  return out;
}

double run_seconds(const PlannedRun& run, double step_seconds, const Cluster& cluster,
                   const Card& card, int64_t done, int64_t consumed_samples) {
  const auto counts =
      BatchSchedule(run.config)
          .steps_by_microbatches(std::max<int64_t>(run.config.derived.train_iters - done, 0),
                                 consumed_samples);
  // Of many numbers of micro-batches, the smallest six (small steps lie on no line), then every
  // so many and the last.
  constexpr size_t kSmallest = 6, kOthers = 6;
  const size_t stride = (counts.size() + kOthers - 1) / kOthers;
  CardTimes times(card, run.options.cpu_offload);
  std::map<int64_t, double> known;
  size_t place = 0;
  for (const auto& [microbatches, steps] : counts) {
    const size_t left = counts.size() - ++place;
    if (microbatches == run.options.max_microbatches)
      known[microbatches] = step_seconds;
    else if (place <= kSmallest || left % stride == 0)
      known[microbatches] =
          estimate_steps(run, {&microbatches, 1}, cluster, card, times).front().seconds;
  }
  double seconds = 0;
  for (const auto& [microbatches, steps] : counts) {
    const auto more = known.lower_bound(microbatches);
    double step = more->second;
    if (more->first > microbatches) {
      const auto fewer = std::prev(more);
      step = fewer->second + (more->second - fewer->second) *
                                 static_cast<double>(microbatches - fewer->first) /
                                 static_cast<double>(more->first - fewer->first);
    }
    seconds += static_cast<double>(steps) * step;
  }
  return seconds;
}

StepReport report_of(const StepEstimate& estimate, const PlannedRun& run, const Cluster& cluster,
                     const Card& card) {
  const StageTime& busiest = estimate.stages[static_cast<size_t>(estimate.busiest)];
  StepReport report{.seconds = estimate.seconds,
                    .compute = busiest.compute,
                    .exposed = busiest.exposed,
                    .bubble = busiest.bubble};
  const double samples = static_cast<double>(run.config.derived.global_batch_size);
  const double gpus = static_cast<double>(cluster.world_size);
  const double tokens = samples * static_cast<double>(run.options.seq_length);
  report.tokens_per_second = tokens / estimate.seconds;
  // docs/glossary.md: 6 N + 6 L H S floating point operations a token.
  const double layers = static_cast<double>(run.spec.num_layers * run.spec.hidden_size);
  const double flops = 6.0 * static_cast<double>(count_parameters(run.spec)) +
                       6.0 * layers * static_cast<double>(run.options.seq_length);
  report.mfu = tokens * flops / (estimate.seconds * gpus * card.peak_tflops * 1e12);
  double joules = 0;
  for (const StageTime& stage : estimate.stages)
    joules += card.watts * stage.compute + card.watts_waiting * (stage.exposed + stage.bubble);
  report.joules_per_token = joules / static_cast<double>(estimate.stages.size()) * gpus / tokens;
  return report;
}

}  // namespace trainer
