// Plan: what a step needs and how long it takes, found by running it over PlanOps. Not here: the
// clock that a timeline is given (planning/). May include: engine/step.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/engine/options.h"
#include "trainer/ops/plan.h"

namespace trainer {

/// What a run will need, found without doing it.
struct EnginePlan {
  int64_t total_bytes = 0;      ///< Of device memory.
  int64_t host_bytes = 0;       ///< Of page-locked host memory beside it (cpu_offload).
  std::string report;           ///< Table of purposes and MiB.
  double step_flops = 0;        ///< Of one step with max_microbatches, recompute included.
  double step_bytes_moved = 0;  ///< Each operand of each operation once.
};

/// The plan of one rank. `target` is the backend that would run (its workspace counts); may be
/// null. Errors of these four: ShapeError for options that do not fit.
EnginePlan plan_engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops* target,
                       const Topology& topology = {});
/// The bytes of that plan's largest step alone: what plan_engine() can only exceed, for a search.
int64_t plan_largest_step(const ModelSpec& spec, const EngineOptions& options,
                          const Topology& topology);
/// The bytes of that plan without any step: parameters, gradients, the optimizer's state.
int64_t plan_states(const ModelSpec& spec, const EngineOptions& options, const Topology& topology);
/// What one rank queues in a step of max_microbatches, gradients and update, each operation as long
/// as `times` says. Only `computed` micro-batches are computed, at least the first, one between and
/// the last; the others repeat the one between, in the schedule's order.
ops::Timeline plan_timeline(const ModelSpec& spec, const EngineOptions& options,
                            const Topology& topology, ops::OperationTimes& times,
                            int64_t computed = 3);

/// A plan, and what an engine is made by.
struct PlannedMemory {
  EnginePlan plan;
  int64_t pool_bytes = 0, workspace_bytes = 0;
  std::vector<ops::AnyArgs> calls;  ///< Of steps of one and two micro-batches.
};
PlannedMemory plan_memory(const Setup& setup, ops::Ops* target);

}  // namespace trainer
