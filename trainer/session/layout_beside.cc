// Beside a search. The least memory is found by branch and bound: first by the bytes without what a
// step keeps for backward, which every recomputation takes; then by the bound of the whole; then by
// the plan of the largest step.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/layout_beside.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "tools/cli/flags.h"

namespace trainer {
namespace {

using Recompute = Layout::Recompute;

/// The ways to recompute that can take the least: `layout` as it is, and more and more of it.
std::vector<Layout> recomputed(const Layout& layout, int64_t num_layers) {
  std::vector<Layout> out = {layout};
  const auto add = [&](Recompute kind, int64_t layers) {
    out.push_back(layout);
    out.back().recompute = kind;
    out.back().recompute_layers = layers;
  };
  add(Recompute::selective, 1);
  for (int64_t together = 1; together <= std::min<int64_t>(num_layers, 8); together *= 2)
    add(Recompute::full, together);
  return out;
}

}  // namespace

std::optional<Choice> in_fp8(const SearchTask& task, const Choice& choice) {
  const ops::Gpu* gpu = find_product(task.card.product);
  if (!task.config.fp8_format.empty() || gpu == nullptr ||
      !ops::fp8_refusal(gpu->capability, ops::Fp8Scales::tensors).empty())
    return std::nullopt;
  SearchTask with = task;
  with.config.fp8_format = "hybrid";
  with.given.insert("fp8-format");
  try {
    const PlannedRun run = planned_run(with, choice.layout);
    if (run.options.model_dtype != DType::bf16) return std::nullopt;
    Choice out = choice;
    out.bytes = bytes_taken(run, task.card, true);
    if (out.bytes > room_of(task.card)) return std::nullopt;
    CardTimes times(task.card, run.options.cpu_offload);
    out.report =
        report_of(estimate_step(run, task.cluster, task.card, times), run, task.cluster, task.card);
    return out;
  } catch (const std::exception&) {  // the trainer refuses FP8 here; the choice stands without it.
    return std::nullopt;
  }
}

LeastMemory least_memory(const SearchTask& task, std::span<const Misfit> misfits, bool changed) {
  const Fixed fixed = fixed_of(task);
  const bool recompute = changed && !fixed.recompute;
  const auto bound = [&](const Misfit& m) { return recompute ? m.states : m.bytes; };
  std::vector<const Misfit*> order;
  for (const Misfit& m : misfits)
    if (changed || fixed.offload || !m.layout.cpu_offload) order.push_back(&m);
  std::ranges::stable_sort(order, {}, [&](const Misfit* m) { return bound(*m); });
  LeastMemory least{.layout = misfits.front().layout, .bytes = INT64_MAX};
  KeptBytes kept;
  for (const Misfit* m : order) {
    if (bound(*m) >= least.bytes) break;
    for (const Layout& layout : recompute
                                    ? recomputed(m->layout, task.config.num_layers.value_or(1))
                                    : std::vector<Layout>{m->layout}) {
      const PlannedRun run = planned_run(task, layout);
      if (bytes_at_least(run, task.card, kept).all >= least.bytes) continue;
      const int64_t bytes = bytes_taken(run, task.card, false);
      if (bytes < least.bytes) least = {layout, bytes};
    }
  }
  return least;
}

}  // namespace trainer
