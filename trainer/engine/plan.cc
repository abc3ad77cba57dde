// Plan: a step over PlanOps, for sizes, costs, the list of calls, and a timeline.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "trainer/engine/step.h"

namespace trainer {
namespace {

/// Numbers of micro-batches to plan for. Without a pipeline two are enough: the rest repeat the
/// second. A pipeline's stages hold more and more micro-batches until there are as many in flight
/// as the pipeline has parts, and the order of allocations and frees depends on the number.
/// Gradients that are reduced with each micro-batch (ZeRO 2 and 3) are still in flight when the
/// next one begins, so the free memory differs from one to the next.
std::vector<int64_t> step_sizes(const Setup& setup) {
  const EngineOptions& options = setup.options;
  const Topology& topology = setup.topology;
  const int64_t all = options.max_microbatches;
  const bool leaving = options.zero_stage >= 2 && topology.data_size > 1;
  int64_t parts = topology.pipeline_size == 1 ? 1 : topology.pipeline_size * options.chunks;
  if (leaving) parts = std::max<int64_t>(parts, 4);
  std::vector<int64_t> sizes;
  for (int64_t m = 1; m <= std::min(2 * parts, all); ++m) sizes.push_back(m);
  if (parts > 1 && all > sizes.back()) sizes.push_back(all);
  return sizes;
}

/// What the actions of a planned step queue, kept so that a longer step can repeat it.
class RecordedActions {
 public:
  explicit RecordedActions(ops::Timeline& timeline) : timeline_(timeline) {}

  /// What is queued from here on goes into separate entries.
  size_t position() noexcept {
    timeline_.cut();
    return timeline_.entries().size();
  }
  /// Records that what was queued from `begin` on belongs to `action` of a step of `microbatches`.
  /// `sent`: its result goes to another stage.
  void keep(const Action& action, int64_t microbatches, size_t begin, bool sent) {
    const std::span<const ops::Timeline::Entry> all = timeline_.entries().subspan(begin);
    kept_[key_of(action, microbatches)] = {{all.begin(), all.end()}, sent};
    timeline_.cut();
  }
  /// Queues again what was kept for that action, of the first micro-batch, the last, or the middle
  /// one. Returns the `sent` that keep() was given.
  bool repeat(const Action& action, int64_t microbatches) {
    const Kept& kept = kept_.at(key_of(action, microbatches));
    timeline_.append(kept.entries);
    return kept.sent;
  }

 private:
  using Key = std::tuple<Action::Kind, int, int>;
  struct Kept {
    std::vector<ops::Timeline::Entry> entries;
    bool sent = false;
  };
  static Key key_of(const Action& a, int64_t microbatches) {
    const int which = a.microbatch == 0 ? 0 : a.microbatch + 1 == microbatches ? 2 : 1;
    return {a.kind, a.chunk, which};
  }

  ops::Timeline& timeline_;
  std::map<Key, Kept> kept_;
};

}  // namespace

int64_t plan_largest_step(const Setup& setup) {
  const EngineOptions& options = setup.options;
  // As many micro-batches as can be in flight; more would only repeat.
  const int64_t parts = std::max<int64_t>(setup.topology.pipeline_size, 2) * options.chunks;
  const int64_t microbatches = std::min(2 * parts, step_sizes(setup).back());
  ops::PlanOps ops;
  Step step(setup, plan_groups(setup.topology), ops);
  step.make_gradients(microbatches);
  step.apply_gradients();
  return step.memory().device.used_bytes() + ops::align_up(step.pool().peak_bytes());
}

int64_t plan_states(const Setup& setup) {
  ops::PlanOps ops;
  const Step step(setup, plan_groups(setup.topology), ops);
  return step.memory().device.used_bytes();
}

std::vector<int64_t> plan_kept(const Setup& setup) {
  ops::PlanOps ops;
  Step step(setup, plan_groups(setup.topology), ops);
  step.begin_gradients(1);
  std::vector<int64_t> kept;
  for (int chunk = 0; chunk < setup.options.chunks; ++chunk) {
    const bool first = setup.topology.pipeline_rank == 0 && chunk == 0;
    const int64_t before = step.pool().used_bytes();
    PoolTensor input = first ? PoolTensor() : step.take_stream();
    const PoolTensor out =
        step.compute({.kind = Action::Kind::forward, .chunk = chunk}, std::move(input), 1);
    kept.push_back(step.pool().used_bytes() - before - ops::align_up(out ? out->bytes() : 0));
  }
  return kept;
}

int64_t most_kept(const Setup& setup, std::span<const int64_t> kept) {
  const EngineOptions& options = setup.options;
  const int64_t in_flight = 2 * setup.topology.pipeline_size;
  int64_t now = 0, most = 0;
  for (const Action& action :
       make_schedule(options.schedule, setup.topology.pipeline_rank, setup.topology.pipeline_size,
                     std::min(in_flight, options.max_microbatches), options.chunks)) {
    const int64_t bytes = kept[static_cast<size_t>(action.chunk)];
    if (action.kind == Action::Kind::forward) most = std::max(most, now += bytes);
    if (action.kind == Action::Kind::backward || action.kind == Action::Kind::backward_input)
      now -= bytes;
  }
  return most;
}

ops::Timeline plan_timeline(const Setup& setup, ops::OperationTimes& times, int64_t computed) {
  const int64_t all = setup.options.max_microbatches;
  const int stage = setup.topology.pipeline_rank;
  return std::move(plan_timelines(setup, {&all, 1}, {&stage, 1}, times, computed).front());
}

std::vector<ops::Timeline> plan_timelines(const Setup& setup, std::span<const int64_t> microbatches,
                                          std::span<const int> stages, ops::OperationTimes& times,
                                          int64_t computed) {
  const int64_t some = std::min(std::ranges::max(microbatches), computed);
  ops::Timeline timeline;
  ops::PlanOps ops(timeline, times);
  Step step(setup, plan_groups(setup.topology, &timeline), ops);
  // ZeRO 3 learns the order of the layers in its first step, and prefetches from then on; delayed
  // scales are computed from the values themselves in the first step only.
  const Fp8Options& fp8 = setup.options.fp8;
  if ((setup.options.zero_stage == 3 && setup.share.size > 1) ||
      (fp8.on() && fp8.recipe == Fp8Options::Recipe::delayed))
    step.make_gradients(some);
  const ScheduleKind schedule = setup.options.schedule;
  const int here = setup.topology.pipeline_rank;
  RecordedActions recorded(timeline);
  const size_t begin = timeline.entries().size();
  step.begin_gradients(some);
  const size_t computed_begin = recorded.position();
  step.run_schedule(schedule, here, some, [&](const Action& action, PoolTensor input) {
    const size_t at = recorded.position();
    PoolTensor out = step.compute(action, std::move(input), some);
    recorded.keep(action, some, at, bool(out));
    return out;
  });
  const size_t computed_end = recorded.position();
  step.finish_gradients();
  step.apply_gradients();
  const size_t end = timeline.entries().size();
  std::vector<ops::Timeline> out;
  for (const int64_t all : microbatches) {
    for (const int stage : stages) {
      size_t schedule_begin = computed_begin, schedule_end = computed_end;
      if (all != some || stage != here) {
        schedule_begin = recorded.position();
        step.run_schedule(schedule, stage, all, [&](const Action& action, PoolTensor input) {
          input.reset();
          return recorded.repeat(action, all) ? step.take_stream() : PoolTensor();
        });
        schedule_end = recorded.position();
      }
      const std::span<const ops::Timeline::Entry> entries = timeline.entries();
      ops::Timeline& whole = out.emplace_back();
      whole.append(entries.subspan(begin, computed_begin - begin));
      whole.append(entries.subspan(schedule_begin, schedule_end - schedule_begin));
      whole.append(entries.subspan(computed_end, end - computed_end));
    }
  }
  return out;
}

EnginePlan plan_engine(const Setup& setup, ops::Ops* target, std::vector<ops::AnyArgs>* calls) {
  EnginePlan plan;
  std::string most;  // What was allocated from the pool at its peak.
  std::array<ops::Cost, 2> costs;
  for (const int64_t microbatches : step_sizes(setup)) {
    ops::PlanOps ops(target);
    const bool few = microbatches <= 2;
    ops.keep_calls(few && calls != nullptr);
    Step step(setup, plan_groups(setup.topology), ops);
    step.make_gradients(microbatches);
    step.apply_gradients();
    if (few) costs[static_cast<size_t>(microbatches - 1)] = ops.total();
    step.evaluate(microbatches);
    if (few && calls != nullptr) *calls = ops.calls();
    if (step.pool().peak_bytes() < plan.pool_bytes) continue;
    plan.pool_bytes = std::max(step.pool().peak_bytes(), ops::kAlignment);
    plan.workspace_bytes = ops.most_workspace_bytes();
    most = step.pool().report();
  }
  ops::PlanOps ops;
  const Step sized(setup, plan_groups(setup.topology), ops,
                   {.pool_bytes = plan.pool_bytes, .workspace_bytes = plan.workspace_bytes});
  const StepMemory& memory = sized.memory();
  plan.total_bytes = memory.device.used_bytes();
  plan.host_bytes = memory.host.used_bytes();
  plan.report = memory.device.report() + "  of which, where activations are most:\n" + most;
  if (plan.host_bytes > 0) plan.report += "  in host memory:\n" + memory.host.report();
  const double more = static_cast<double>(setup.options.max_microbatches - 1);
  plan.step_flops = costs[0].flops + (more > 0 ? more * (costs[1].flops - costs[0].flops) : 0);
  plan.step_bytes_moved =
      costs[0].bytes + (more > 0 ? more * (costs[1].bytes - costs[0].bytes) : 0);
  return plan;
}

}  // namespace trainer
