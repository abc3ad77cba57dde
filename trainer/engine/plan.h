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
  int64_t pool_bytes = 0;       ///< Of total_bytes: what comes and goes in a step.
  int64_t workspace_bytes = 0;  ///< Of total_bytes: scratch memory of operations.
  std::string report;           ///< Table of purposes and MiB.
  double step_flops = 0;        ///< Of one step with max_microbatches, recompute included.
  double step_bytes_moved = 0;  ///< Each operand of each operation once.
};

/// The plan of one rank. `target` is the backend that would run (its workspace counts); may be
/// null. `calls`, where not null: those of steps of one and two micro-batches.
EnginePlan plan_engine(const Setup& setup, ops::Ops* target,
                       std::vector<ops::AnyArgs>* calls = nullptr);
/// The bytes of that plan's largest step alone: what plan_engine() can only exceed, for a search.
int64_t plan_largest_step(const Setup& setup);
/// The bytes of that plan without any step: parameters, gradients, the optimizer's state.
int64_t plan_states(const Setup& setup);
/// What one rank queues in a step of max_microbatches, gradients and update, each operation as long
/// as `times` says. Only `computed` micro-batches are computed, at least the first, one between and
/// the last; the others repeat the one between, in the schedule's order.
ops::Timeline plan_timeline(const Setup& setup, ops::OperationTimes& times, int64_t computed = 3);

}  // namespace trainer
