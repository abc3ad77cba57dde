// Planning: a step over PlanOps, for sizes, costs and the list of calls.
//
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "trainer/engine/parts.h"
#include "trainer/ops/plan.h"

namespace trainer {

namespace {

/// Numbers of micro-batches to plan for. Without a pipeline two show all there is, the rest repeat
/// the second; a pipeline's stages hold ever more until as many are under way as its parts, and the
/// order of what is taken and given back depends on the number. Gradients that leave with each
/// micro-batch (ZeRO 2 and 3) are still on their way when the next begins, so what it finds free
/// differs from one to the next.
std::vector<int64_t> step_sizes(const EngineOptions& options, const Topology& topology) {
  const int64_t all = options.max_microbatches;
  const bool leaving = options.zero_stage >= 2 && topology.data_size > 1;
  int64_t parts = topology.pipeline_size == 1 ? 1 : topology.pipeline_size * options.chunks;
  if (leaving) parts = std::max<int64_t>(parts, 4);
  std::vector<int64_t> sizes;
  for (int64_t m = 1; m <= std::min(2 * parts, all); ++m) sizes.push_back(m);
  if (parts > 1 && all > sizes.back()) sizes.push_back(all);
  return sizes;
}

}  // namespace

Tape::Key Tape::key_of(const Action& a, int64_t microbatches) {
  const int which = a.microbatch == 0 ? 0 : a.microbatch + 1 == microbatches ? 2 : 1;
  return {a.kind, a.chunk, which};
}

void Tape::end(const Action& action) {
  const std::span<const ops::Timeline::Entry> all = timeline_.entries().subspan(begin_);
  kept_[key_of(action, kRecorded)].assign(all.begin(), all.end());
  timeline_.cut();
}

void Tape::repeat(const Action& action) {
  timeline_.append(kept_.at(key_of(action, microbatches_)));
}

int64_t Planner::largest(const ModelSpec& spec, const EngineOptions& options,
                         const Topology& topology) {
  const std::vector<int64_t> sizes = step_sizes(options, topology);
  // As many micro-batches as can be under way; more only repeat.
  const int64_t parts = std::max<int64_t>(topology.pipeline_size, 2) * options.chunks;
  const int64_t microbatches = std::min(2 * parts, sizes.back());
  ops::PlanOps ops;
  Engine::Parts planned(spec, options, plan_groups(topology), ops, {});
  planned.make_gradients(microbatches);
  planned.apply_gradients();
  return planned.arena.used_bytes() + ops::align_up(planned.pool.peak_bytes());
}

ops::Timeline Planner::timeline(const ModelSpec& spec, const EngineOptions& options,
                                const Topology& topology, ops::OperationTimes& times) {
  const int64_t all = options.max_microbatches, some = std::min(all, Tape::kRecorded);
  ops::Timeline recorded, step;
  ops::PlanOps ops(recorded, times);
  Engine::Parts parts(spec, options, plan_groups(topology, &recorded), ops, {});
  // ZeRO 3 learns the order of the layers in its first step, and fetches ahead from then on.
  if (options.zero_stage == 3 && topology.data_size > 1) parts.make_gradients(some);
  const size_t begin = recorded.entries().size();
  Tape tape(recorded);
  parts.tape = &tape;
  parts.make_gradients(some);
  parts.apply_gradients();
  const size_t end = recorded.entries().size(), walk_begin = tape.walk_begin,
               walk_end = tape.walk_end;
  if (some < all) {
    tape.repeat_for(all);
    parts.walk(options.schedule, all);
  }
  const std::span<const ops::Timeline::Entry> entries = recorded.entries();
  step.append(entries.subspan(begin, walk_begin - begin));
  step.append(entries.subspan(tape.walk_begin, tape.walk_end - tape.walk_begin));
  step.append(entries.subspan(walk_end, end - walk_end));
  return step;
}

Planned Planner::run(const ModelSpec& spec, const EngineOptions& options, const Topology& topology,
                     ops::Ops* target) {
  Planned result;
  std::array<ops::Cost, 2> costs;
  for (const int64_t microbatches : step_sizes(options, topology)) {
    ops::PlanOps ops(target);
    ops.keep_calls(microbatches <= 2);
    Engine::Parts parts(spec, options, plan_groups(topology), ops, {});
    parts.make_gradients(microbatches);
    parts.apply_gradients();
    if (microbatches <= 2) costs[static_cast<size_t>(microbatches - 1)] = ops.total();
    parts.evaluate_all(microbatches);
    if (microbatches <= 2) result.calls = ops.calls();
    if (parts.pool.peak_bytes() < result.pool_bytes) continue;
    result.pool_bytes = std::max(parts.pool.peak_bytes(), ops::kAlignment);
    result.workspace_bytes = ops.most_workspace_bytes();
    result.plan.total_bytes =
        parts.arena.used_bytes() + ops::align_up(result.pool_bytes) +
        (result.workspace_bytes > 0 ? ops::align_up(result.workspace_bytes) : 0);
    result.plan.host_bytes = parts.host_arena.used_bytes();
    parts.cut_pool(result.pool_bytes);
    if (result.workspace_bytes > 0)
      parts.arena.cut("workspace", DType::u8, {result.workspace_bytes});
    result.plan.report =
        parts.arena.report() + "  of which, where activations are most:\n" + parts.pool.report();
    if (result.plan.host_bytes > 0)
      result.plan.report += "  in host memory:\n" + parts.host_arena.report();
  }
  const double more = static_cast<double>(options.max_microbatches - 1);
  result.plan.step_flops =
      costs[0].flops + (more > 0 ? more * (costs[1].flops - costs[0].flops) : 0);
  result.plan.step_bytes_moved =
      costs[0].bytes + (more > 0 ? more * (costs[1].bytes - costs[0].bytes) : 0);
  return result;
}

}  // namespace trainer
