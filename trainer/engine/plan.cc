// Planning: a step over PlanOps, for sizes, costs and the list of calls.
//
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "trainer/engine/parts.h"
#include "trainer/ops/plan.h"

namespace trainer {

Planned Planner::run(const ModelSpec& spec, const EngineOptions& options, const Topology& topology,
                     ops::Ops* target) {
  Planned result;
  // Two micro-batches show all there is; the rest repeat the second.
  std::array<ops::Cost, 2> costs;
  for (int64_t microbatches : {1, 2}) {
    if (microbatches > options.max_microbatches) break;
    ops::PlanOps ops(target);
    ops.keep_calls(true);
    Engine::Parts parts(spec, options, plan_groups(topology), ops, ops::Arena(), 0, 0);
    parts.body(microbatches);
    costs[static_cast<size_t>(microbatches - 1)] = ops.total();
    parts.evaluate_all(1);
    result.pool_bytes = std::max(parts.pool.peak_bytes(), ops::kAlignment);
    result.workspace_bytes = ops.workspace_bytes();
    result.calls = ops.calls();
    result.plan.total_bytes =
        parts.arena.used_bytes() + ops::align_up(result.pool_bytes) +
        (result.workspace_bytes > 0 ? ops::align_up(result.workspace_bytes) : 0);
    parts.cut_pool(result.pool_bytes);
    if (result.workspace_bytes > 0)
      parts.arena.cut("workspace", DType::u8, {result.workspace_bytes});
    result.plan.report =
        parts.arena.report() + "  of which, where activations are most:\n" + parts.pool.report();
  }
  const double more = static_cast<double>(options.max_microbatches - 1);
  result.plan.step_flops =
      costs[0].flops + (more > 0 ? more * (costs[1].flops - costs[0].flops) : 0);
  result.plan.step_bytes_moved =
      costs[0].bytes + (more > 0 ? more * (costs[1].bytes - costs[0].bytes) : 0);
  return result;
}

}  // namespace trainer
