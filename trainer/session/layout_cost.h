// The cost of a layout: whether the trainer accepts it, its memory, and its simulated step time on
// a card. Used by the search, by --dry-run, and for a single layout. Not here: choosing
// (layout_search.h). May include: config/, engine/, planning/, session/assembly.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/config/flags.h"
#include "trainer/engine/engine.h"
#include "trainer/planning/card.h"
#include "trainer/planning/simulation.h"
#include "trainer/planning/times.h"
#include "trainer/session/layout.h"

namespace trainer {

/// Device memory that a rank takes besides its plan: workspaces of cuBLASLt and cuDNN, CUDA's
/// context, and NCCL's buffers for each group of several ranks.
int64_t bytes_beside_plan(const Card& card, const ModelSpec& spec, const EngineOptions& options,
                          const Topology& topology, const Cluster& cluster);

/// Whether copy engines make transfers of data-parallel ranks, as far as the card is known.
bool copies_data(const Card& card, const EngineOptions& options, const Topology& topology,
                 const Cluster& cluster);

/// The part of it for NCCL's buffers, and for the copies between GPUs of a host.
int64_t group_bytes(const Card& card, const ModelSpec& spec, const EngineOptions& options,
                    const Topology& topology, const Cluster& cluster);

/// A configuration in parts, for `cluster`.
struct PlannedRun {
  TrainConfig config;  ///< Derived.
  ModelSpec spec;
  EngineOptions options;
  Topology topology;  ///< Of rank 0.
  Cluster cluster;
  std::vector<std::string> notes;
};

/// Derives and checks a configuration and makes its parts. Errors: the trainer's own
/// cli::UsageError and ShapeError for what cannot run.
PlannedRun plan_run(const TrainConfig& config, Given given, const Cluster& cluster,
                    int64_t vocab_size);

/// The most bytes that any stage takes on a GPU: by its exact plan, or only by that of its largest
/// step. Of stages that compute the same, those are planned that can take most.
int64_t bytes_taken(const PlannedRun& run, const Card& card, bool exact);

/// What one micro-batch keeps for backward in each chunk of the first stage: many layouts of one
/// task keep the same. One thread at a time.
class KeptBytes {
 public:
  const std::vector<int64_t>& of(const PlannedRun& run);

 private:
  std::map<std::vector<int64_t>, std::vector<int64_t>> known_;
};

/// A lower bound of that, by the first stage: much faster to find. `states`: without what a step
/// keeps for backward.
struct LeastBytes {
  int64_t states = 0, all = 0;
};
LeastBytes bytes_at_least(const PlannedRun& run, const Card& card, KeptBytes& kept);

/// The bytes of one stage on a GPU, by its exact plan.
int64_t bytes_of_stage(const PlannedRun& run, const Card& card, int stage);

/// The step, simulated. `times` are those of `card`; `data_is_free` as in simulate().
StepEstimate estimate_step(const PlannedRun& run, const Cluster& cluster, const Card& card,
                           CardTimes& times, bool data_is_free = false);
/// The same for steps of each of `microbatches`: at most those of `run`; of several, at least 3.
std::vector<StepEstimate> estimate_steps(const PlannedRun& run,
                                         std::span<const int64_t> microbatches,
                                         const Cluster& cluster, const Card& card, CardTimes& times,
                                         bool data_is_free = false);

/// Seconds of a run whose full step takes `step_seconds`, from where `done` steps have consumed
/// `consumed_samples` to its end. Of a ramp-up's steps up to twelve sizes are simulated; the time
/// of others lies between those of their neighbours.
double run_seconds(const PlannedRun& run, double step_seconds, const Cluster& cluster,
                   const Card& card, int64_t done = 0, int64_t consumed_samples = 0);

/// What a step costs in tokens, floating point operations and joules.
struct StepReport {
  double seconds = 0, compute = 0, exposed = 0, bubble = 0;  ///< Of the busiest stage.
  double tokens_per_second = 0;                              ///< Of all GPUs.
  double mfu = 0;                                            ///< As in docs/glossary.md.
  double joules_per_token = 0;                               ///< Of the GPUs only.
};
StepReport report_of(const StepEstimate& estimate, const PlannedRun& run, const Cluster& cluster,
                     const Card& card);

}  // namespace trainer
