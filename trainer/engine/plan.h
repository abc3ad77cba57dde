// Plan: the memory and time that a step needs, found by running it over PlanOps. Not here: the
// times of operations (planning/). May include: engine/step.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/engine/options.h"
#include "trainer/ops/plan.h"

namespace trainer {

/// What a run will need, found without running it.
struct EnginePlan {
  int64_t total_bytes = 0;      ///< Device memory.
  int64_t host_bytes = 0;       ///< Page-locked host memory in addition (cpu_offload).
  int64_t pool_bytes = 0;       ///< Of total_bytes: tensors of a running step.
  int64_t workspace_bytes = 0;  ///< Of total_bytes: scratch memory of operations.
  std::string report;           ///< Table of purposes and MiB.
  double step_flops = 0;        ///< One step with max_microbatches, recompute included.
  double step_bytes_moved = 0;  ///< Each operand of each operation counted once.
};

/// The plan of one rank. `target` is the backend that would run (its workspace counts); may be
/// null. `calls`, if not null, receives the calls of steps with one and two micro-batches.
EnginePlan plan_engine(const Setup& setup, ops::Ops* target,
                       std::vector<ops::AnyArgs>* calls = nullptr);
/// The bytes of only that plan's largest step: a lower bound of plan_engine()'s, for a search.
int64_t plan_largest_step(const Setup& setup);
/// A lower bound of that in two parts: gaps between tensors do not count, nor does what lives only
/// within an action. First, the bytes of parameters, gradients and the optimizer's state.
int64_t plan_states(const Setup& setup);
/// Second, the most bytes that are kept for backward at one time. `kept`: by one micro-batch in
/// each chunk, which plan_kept() finds by its forward; the same for any sharing of data-parallel
/// ranks, any number of micro-batches, and any offload.
int64_t most_kept(const Setup& setup, std::span<const int64_t> kept);
std::vector<int64_t> plan_kept(const Setup& setup);
/// What one rank queues in a step of max_microbatches, gradients and update, with the durations
/// that `times` gives. Only `computed` micro-batches are really run: at least the first, a middle
/// one and the last. The others repeat the middle one, in the schedule's order.
ops::Timeline plan_timeline(const Setup& setup, ops::OperationTimes& times, int64_t computed = 3);
/// The same for steps of each of `microbatches`, at most max_microbatches and, of several, at least
/// `computed`; and in each of them for the pipeline stages `stages`, all of which compute what
/// setup's does; not for ZeRO 3, whose prefetches follow the order of a stage.
std::vector<ops::Timeline> plan_timelines(const Setup& setup, std::span<const int64_t> microbatches,
                                          std::span<const int> stages, ops::OperationTimes& times,
                                          int64_t computed = 3);

}  // namespace trainer
