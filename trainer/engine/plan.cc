// Plan: a step over PlanOps, for sizes, costs, the list of calls, and a timeline.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>

#include "trainer/engine/step.h"

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

/// What the actions of a planned step queue, kept to be repeated by a longer one.
class RecordedActions {
 public:
  explicit RecordedActions(ops::Timeline& timeline) : timeline_(timeline) {}

  /// What is queued from here on goes into entries of its own.
  size_t position() noexcept {
    timeline_.cut();
    return timeline_.entries().size();
  }
  /// What was queued from `begin` on is what `action` of a step of `microbatches` queues.
  void keep(const Action& action, int64_t microbatches, size_t begin) {
    const std::span<const ops::Timeline::Entry> all = timeline_.entries().subspan(begin);
    kept_[key_of(action, microbatches)].assign(all.begin(), all.end());
    timeline_.cut();
  }
  /// Queues what was kept of that action: of the first micro-batch, the last, or one between.
  void repeat(const Action& action, int64_t microbatches) {
    timeline_.append(kept_.at(key_of(action, microbatches)));
  }

 private:
  using Key = std::tuple<Action::Kind, int, int>;
  static Key key_of(const Action& a, int64_t microbatches) {
    const int which = a.microbatch == 0 ? 0 : a.microbatch + 1 == microbatches ? 2 : 1;
    return {a.kind, a.chunk, which};
  }

  ops::Timeline& timeline_;
  std::map<Key, std::vector<ops::Timeline::Entry>> kept_;
};

/// Whether a chunk's result goes to another stage.
bool travels_on(const Action& a, const Setup& setup) {
  const Topology& t = setup.topology;
  if (t.pipeline_size == 1 || a.kind == Action::Kind::backward_weight) return false;
  if (a.kind != Action::Kind::forward) return !t.first_stage() || a.chunk > 0;
  return !t.last_stage() || a.chunk + 1 < static_cast<int>(setup.places.size());
}

}  // namespace

EnginePlan plan_engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops* target,
                       const Topology& topology) {
  return plan_memory(Setup(spec, options, topology), target).plan;
}

int64_t plan_largest_step(const ModelSpec& spec, const EngineOptions& options,
                          const Topology& topology) {
  const Setup setup(spec, options, topology);
  // As many micro-batches as can be under way; more only repeat.
  const int64_t parts = std::max<int64_t>(topology.pipeline_size, 2) * options.chunks;
  const int64_t microbatches = std::min(2 * parts, step_sizes(options, topology).back());
  ops::PlanOps ops;
  Step step(setup, plan_groups(topology), ops);
  step.make_gradients(microbatches);
  step.apply_gradients();
  return step.memory().device.used_bytes() + ops::align_up(step.pool().peak_bytes());
}

int64_t plan_states(const ModelSpec& spec, const EngineOptions& options, const Topology& topology) {
  ops::PlanOps ops;
  return Step(Setup(spec, options, topology), plan_groups(topology), ops)
      .memory()
      .device.used_bytes();
}

ops::Timeline plan_timeline(const ModelSpec& spec, const EngineOptions& options,
                            const Topology& topology, ops::OperationTimes& times,
                            int64_t computed) {
  const Setup setup(spec, options, topology);
  const int64_t all = options.max_microbatches, some = std::min(all, computed);
  ops::Timeline timeline;
  ops::PlanOps ops(timeline, times);
  Step step(setup, plan_groups(topology, &timeline), ops);
  // ZeRO 3 learns the order of the layers in its first step, and fetches ahead from then on.
  if (options.zero_stage == 3 && topology.data_size > 1) step.make_gradients(some);
  RecordedActions recorded(timeline);
  const size_t begin = timeline.entries().size();
  step.begin_gradients(some);
  size_t schedule_begin = recorded.position();
  const size_t before_schedule = schedule_begin - begin;
  step.run_schedule(some, [&](const Action& action, PoolTensor input) {
    const size_t at = recorded.position();
    PoolTensor out = step.compute(action, std::move(input), some);
    recorded.keep(action, some, at);
    return out;
  });
  size_t schedule_end = recorded.position();
  const size_t finish_begin = schedule_end;
  step.finish_gradients();
  step.apply_gradients();
  const size_t finish_end = timeline.entries().size();
  if (some < all) {
    schedule_begin = recorded.position();
    step.run_schedule(all, [&](const Action& action, PoolTensor input) {
      input.reset();
      recorded.repeat(action, all);
      return travels_on(action, setup) ? step.take_stream() : PoolTensor();
    });
    schedule_end = recorded.position();
  }
  const std::span<const ops::Timeline::Entry> entries = timeline.entries();
  ops::Timeline whole;
  whole.append(entries.subspan(begin, before_schedule));
  whole.append(entries.subspan(schedule_begin, schedule_end - schedule_begin));
  whole.append(entries.subspan(finish_begin, finish_end - finish_begin));
  return whole;
}

PlannedMemory plan_memory(const Setup& setup, ops::Ops* target) {
  PlannedMemory result;
  EnginePlan& plan = result.plan;
  std::string most;  // What was out of the pool when it was fullest.
  std::array<ops::Cost, 2> costs;
  for (const int64_t microbatches : step_sizes(setup.options, setup.topology)) {
    ops::PlanOps ops(target);
    const bool few = microbatches <= 2;
    ops.keep_calls(few);
    Step step(setup, plan_groups(setup.topology), ops);
    step.make_gradients(microbatches);
    step.apply_gradients();
    if (few) costs[static_cast<size_t>(microbatches - 1)] = ops.total();
    step.evaluate(microbatches);
    if (few) result.calls = ops.calls();
    if (step.pool().peak_bytes() < result.pool_bytes) continue;
    result.pool_bytes = std::max(step.pool().peak_bytes(), ops::kAlignment);
    result.workspace_bytes = ops.most_workspace_bytes();
    most = step.pool().report();
  }
  ops::PlanOps ops;
  const Step sized(setup, plan_groups(setup.topology), ops,
                   {.pool_bytes = result.pool_bytes, .workspace_bytes = result.workspace_bytes});
  const StepMemory& memory = sized.memory();
  plan.total_bytes = memory.device.used_bytes();
  plan.host_bytes = memory.host.used_bytes();
  plan.report = memory.device.report() + "  of which, where activations are most:\n" + most;
  if (plan.host_bytes > 0) plan.report += "  in host memory:\n" + memory.host.report();
  const double more = static_cast<double>(setup.options.max_microbatches - 1);
  plan.step_flops = costs[0].flops + (more > 0 ? more * (costs[1].flops - costs[0].flops) : 0);
  plan.step_bytes_moved =
      costs[0].bytes + (more > 0 ? more * (costs[1].bytes - costs[0].bytes) : 0);
  return result;
}

}  // namespace trainer
