// Bounds from the real step, of small models and of the layout itself.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/layout_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trainer/planning/clock.h"

namespace trainer {
namespace {

/// Factor on a bound, because layers of a small model and of a large one differ.
constexpr double kBoundSlack = 0.985;
/// Factor on how much slower a small model is at the power limit: its clock differs, since more of
/// its work is outside layers.
constexpr double kOtherWork = 0.98;

Card without_limit(Card card) {
  card.power_limit = 0;
  return card;
}

}  // namespace

LayoutBounds::LayoutBounds(const SearchTask& task, const Fixed& fixed)
    : task_(task),
      fixed_(fixed),
      full_clock_(without_limit(task.card)),
      room_(room_of(task.card)) {}

double LayoutBounds::layer_seconds(const PlannedRun& run, int64_t layers, int64_t microbatches,
                                   Recompute recompute, const Card& card, CardTimes& times) const {
  PlannedRun small = run;
  small.spec.num_layers = layers;
  EngineOptions& o = small.options;
  o.max_microbatches = microbatches;
  o.schedule = ScheduleKind::one_f_one_b;
  o.chunks = 1;
  o.layers_per_stage.clear();
  o.recompute = {};
  if (recompute == Recompute::selective)
    o.recompute.granularity = trainer::Recompute::Granularity::selective;
  if (recompute == Recompute::full) o.recompute.granularity = trainer::Recompute::Granularity::full;
  o.zero_stage = 0;
  o.grad_dtype = DType::f32;
  small.topology = make_topology(0, run.topology.tensor_size, run.topology.tensor_size, 1);
  return estimate_step(small, task_.cluster, card, times).seconds;
}

/// The computing of the busiest stage, and that of the stages before it for one micro-batch.
double LayoutBounds::quick(const Layout& layout, const PlannedRun& run, CardTimes& times) {
  const auto [at, is_new] = units_.try_emplace(
      {layout.tensor, run.options.sequence_parallel, run.options.micro_batch_size});
  Units& unit = at->second;
  if (is_new) {
    const auto middle = [&](int64_t layers, Recompute recompute) {
      return layer_seconds(run, layers, 3, recompute, full_clock_, times) -
             layer_seconds(run, layers, 2, recompute, full_clock_, times);
    };
    const double one = middle(1, Recompute::none);
    unit.layer = middle(2, Recompute::none) - one;
    unit.ends = std::max(0.0, one - unit.layer);
    unit.selective = middle(2, Recompute::selective) - middle(1, Recompute::selective) - unit.layer;
    unit.full = middle(2, Recompute::full) - middle(1, Recompute::full) - unit.layer;
    const double limited = layer_seconds(run, 2, 3, Recompute::none, task_.card, times),
                 full = layer_seconds(run, 2, 3, Recompute::none, full_clock_, times);
    unit.slowed = std::max(1.0, kOtherWork * limited / full);
  }
  const double stages = static_cast<double>(layout.pipeline);
  const double whole = static_cast<double>(run.spec.num_layers) * unit.layer + unit.ends;
  const double microbatches = static_cast<double>(run.options.max_microbatches);
  // Stages of lengths x: M x_s after the sum of those before s. Least where all these are alike:
  // x_s = x_0 (1 - f / M)^s, with f of a stage's length passing before the next begins.
  const double passing = run.options.schedule == ScheduleKind::zero_bubble
                             ? 0.6
                             : 1.0 / static_cast<double>(layout.chunks);
  const double share = 1 - std::pow(1 - passing / microbatches, stages);
  const double step = stages == 1 ? microbatches * whole : whole * passing / share;
  const double busy = std::min(1.0, microbatches * whole / stages / step);
  return kBoundSlack * step * slowdown(task_.card.power_limit, unit.slowed, busy) /
         static_cast<double>(layout.global_batch_size());
}

double LayoutBounds::own(std::span<const Layout> core, Caches& caches) const {
  Layout layout = core.front();
  if (layout.data > 1 && !fixed_.zero) layout.zero_stage = 1;  // has the smallest update.
  for (const Layout& of_core : core) layout.fp8_param_gather |= of_core.fp8_param_gather;
  const PlannedRun run = planned_run(task_, layout);
  const auto steps = [&](std::initializer_list<int64_t> microbatches) {
    return estimate_steps(run, microbatches, task_.cluster, task_.card, caches.times(run), true);
  };
  // A full pipeline takes equally long for each further round of as many micro-batches as stages.
  const int64_t all = run.options.max_microbatches, round = layout.pipeline;
  const int64_t few = (2 / round + 1) * round + all % round, more = few + round;
  double seconds = 0;
  if (all <= 3 * more) {  // not worth two shorter ones.
    seconds = steps({all}).front().seconds;
  } else {
    const std::vector<StepEstimate> two = steps({few, more});
    const double rounds = static_cast<double>((all - more) / round);
    seconds = two[1].seconds + kBoundSlack * rounds * (two[1].seconds - two[0].seconds);
  }
  return seconds / static_cast<double>(layout.global_batch_size());
}

double LayoutBounds::recompute(const Layout& layout, Recompute kind, double share) const {
  const bool sequence = layout.sequence_parallel && layout.tensor > 1;
  const auto at = units_.find({layout.tensor, sequence, layout.micro_batch_size});
  if (at == units_.end()) return 0;
  const double more = kind == Recompute::selective ? at->second.selective : at->second.full;
  const double layers = static_cast<double>(task_.config.num_layers.value_or(1));
  return 0.95 * share * layers * std::max(more, 0.0) / static_cast<double>(layout.pipeline) /
         static_cast<double>(layout.micro_batch_size * layout.data);
}

/// The smallest possible share of the optimizer's state is copied in both directions once per step.
double LayoutBounds::offload(const Layout& layout) const {
  constexpr double kBytes = 2 * 8;  // of fp32 main parameters and 16-bit moments, at least.
  const double parameters = static_cast<double>(count_parameters(planned_run(task_, layout).spec) /
                                                task_.cluster.world_size);
  return kBytes * parameters / (task_.card.host_gb_per_s * 1e9) /
         static_cast<double>(layout.global_batch_size());
}

int64_t LayoutBounds::least_bytes(const Layout& layout, KeptBytes& kept) const {
  return bytes_at_least(planned_run(task_, layout), task_.card, kept).all;
}

LayoutBounds::Point LayoutBounds::most_too_large(Layout layout, Point none, Point all,
                                                 KeptBytes& kept) const {
  const auto at = [&](int64_t count) {
    layout.recompute_layers = count;
    return Point{count, least_bytes(layout, kept)};
  };
  const double share = static_cast<double>(none.bytes - room_) /
                       static_cast<double>(std::max<int64_t>(none.bytes - all.bytes, 1));
  const int64_t guess =
      static_cast<int64_t>(std::ceil(share * static_cast<double>(all.layers))) - 1;
  if (guess < 1) return none;
  Point point = at(std::min(guess, all.layers - 1));
  if (point.layers == 0) return none;
  while (point.bytes <= room_) {
    if (point.layers == 1) return none;
    point = at(point.layers - 1);
  }
  while (point.layers + 1 < all.layers) {
    const Point next = at(point.layers + 1);
    if (next.bytes <= room_) break;
    point = next;
  }
  return point;
}

std::vector<LeastBytes> LayoutBounds::least_bytes(std::span<const Layout> core,
                                                  KeptBytes& kept) const {
  std::vector<LeastBytes> out;
  for (const Layout& layout : core) {
    out.push_back(bytes_at_least(planned_run(task_, layout), task_.card, kept));
    if (out.back().all <= room_) break;
  }
  return out;
}

double LayoutBounds::to_fit(std::span<const Layout> core, std::span<const LeastBytes> least,
                            KeptBytes& kept) const {
  const double added = to_fit_recomputed(core, least, kept);
  if (added == 0 || fixed_.offload || offload(core.front()) >= added) return added;
  std::vector<Layout> offloaded(core.begin(), core.end());
  for (Layout& layout : offloaded) layout.cpu_offload = true;
  return std::min(added, offload(core.front()) +
                             to_fit_recomputed(offloaded, least_bytes(offloaded, kept), kept));
}

double LayoutBounds::to_fit_recomputed(std::span<const Layout> core,
                                       std::span<const LeastBytes> least, KeptBytes& kept) const {
  const auto fewest = std::ranges::min_element(least, {}, &LeastBytes::all);
  if (fewest->all <= room_) return 0;
  double added = std::numeric_limits<double>::infinity();
  if (fixed_.recompute) return added;
  const Layout& layout = core[static_cast<size_t>(fewest - least.begin())];
  Layout next = layout;
  next.recompute = Recompute::selective;
  if (least_bytes(next, kept) <= room_) added = recompute(layout, Recompute::selective, 1);
  next.recompute = Recompute::full;
  next.recompute_layers = 1;
  const int64_t most = most_layers_of_part(layout, task_.config.num_layers.value_or(1));
  const Point all{most, least_bytes(next, kept)};
  if (all.bytes > room_) return std::min(added, recompute(layout, Recompute::full, 1));
  next.recompute = Recompute::block;
  const Point too_large = most_too_large(next, {0, fewest->all}, all, kept);
  return std::min(added, recompute(layout, Recompute::full, least_share(too_large, all)));
}

double LayoutBounds::least_share(const Point& too_large, const Point& all) noexcept {
  return 0.9 * static_cast<double>(too_large.layers + 1) / static_cast<double>(all.layers);
}

int64_t most_layers_of_part(const Layout& layout, int64_t num_layers) noexcept {
  const int64_t parts = layout.pipeline * layout.chunks;
  return std::min(num_layers, (num_layers + 2 + parts - 1) / parts);
}

Layout core_of(Layout layout) {
  layout.zero_stage = 0;
  layout.overlap = false;
  layout.fp8_param_gather = false;
  return layout;
}

}  // namespace trainer
