// Branch and bound. Layouts that differ only in how data-parallel ranks share form one core. A core
// has two lower bounds, both from the real step: a quick one from models of one and of two layers,
// whose difference is the cost of a layer, with the serial part of a pipeline; and its own step,
// with communication of data-parallel ranks taking no time. A bound is for a layout that keeps all
// activations: recomputation and offload only add to it.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/layout_search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>
#include <tuple>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/planning/clock.h"
#include "trainer/session/layout_beside.h"

namespace trainer {
namespace {

using Recompute = Layout::Recompute;

/// Layouts costed between two checks of the best one so far.
constexpr size_t kBatch = 24;
/// Factor on a bound, because layers of a small model and of a large one differ.
constexpr double kBoundSlack = 0.985;
/// Factor on how much slower a small model is at the power limit: its clock differs, since more of
/// its work is outside layers.
constexpr double kOtherWork = 0.98;

/// Layouts that the trainer accepts and that share one bound: the fewest seconds per sample that
/// any of them can take.
struct Core {
  std::vector<Layout> layouts;  ///< The likely best one first.
  double bound = 0;
};

/// A worker's tables, which cache look-ups.
struct Worker {
  explicit Worker(const Card& card) : device(card, false), host(card, true) {}
  CardTimes device, host;
  CardTimes& times(const PlannedRun& run) { return run.options.cpu_offload ? host : device; }
};

double seconds_per_sample(const Choice& c) {
  return c.report.seconds / static_cast<double>(c.layout.global_batch_size());
}

/// Among equals the one that takes less memory, then the one that is enumerated first.
bool before(const Choice& a, const Choice& b) {
  return std::pair(seconds_per_sample(a), a.bytes) < std::pair(seconds_per_sample(b), b.bytes);
}

Card without_limit(Card card) {
  card.power_limit = 0;
  return card;
}

class Search {
 public:
  explicit Search(const SearchTask& task)
      : task_(task),
        fixed_(fixed_of(task)),
        full_clock_(without_limit(task.card)),
        room_(room_of(task.card)),
        wanted_(static_cast<size_t>(task.top)) {}

  SearchResult run(bool all);

 private:
  /// The result for a candidate.
  struct Outcome {
    std::vector<Choice> fits;  ///< With recomputation; the first is the fastest.
    /// Of the unchanged layout, if it does not fit; or a lower bound.
    std::optional<int64_t> missed_bytes;
    std::vector<Misfit> misfits;
  };

  PlannedRun planned(const Layout& layout) const { return planned_run(task_, layout); }
  Choice timed(const Layout& layout, const PlannedRun& run, int64_t bytes, Worker& worker) const;
  int64_t least_bytes(const Layout& layout) const {
    return bytes_at_least(planned(layout), task_.card).all;
  }
  /// A layout's bytes, or a lower bound of them; it fits if there are costs.
  struct Costed {
    int64_t states = 0, bytes = 0;  ///< Before a step; with it.
    std::optional<Choice> choice;
  };
  Costed cost(const Layout& layout, double limit, Worker& worker) const;
  bool too_slow(const Choice& choice, double limit) const {
    return seconds_per_sample(choice) > limit;
  }
  /// `limit`: seconds per sample above which a layout is of no use.
  Outcome consider(const Core& core, const Layout& layout, double limit, Worker& worker) const;
  void add_recomputed(const Core& core, const Layout& layout, int64_t missed_bytes, double limit,
                      Worker& worker, Outcome& out) const;
  /// The fewest seconds per sample that recomputing `layers` of a stage, or all in part, adds.
  double recompute_bound(const Layout& layout, Recompute kind, double share) const;
  double offload_bound(const Layout& layout) const;
  /// So many layers computed again take so many bytes.
  struct Point {
    int64_t layers = 0, bytes = 0;
  };
  Point most_too_large(Layout layout, Point none, Point all) const;
  std::optional<Choice> least_layers(Layout layout, Point none, Point all, double limit,
                                     Worker& worker) const;
  LayoutSpace space_of() const;
  std::vector<Core> cores(SearchResult& result);
  double bound_of(const Layout& layout, const PlannedRun& run);
  double own_bound(const Core& core, Worker& worker) const;
  /// Calls `work(i, worker)` for each i below `count`, on all threads.
  template <class Work>
  void on_threads(size_t count, Work work);
  void consider_all(std::span<const std::pair<const Core*, size_t>> layouts, double limit,
                    SearchResult& result);
  void merge(const Core& core, const Layout& layout, Outcome& outcome, SearchResult& result);
  bool can_enter(double bound) const {
    return found_.size() < wanted_ || bound <= seconds_per_sample(found_.back());
  }
  void examine(std::vector<Core>& order, bool all, SearchResult& result);
  void miss_of_all(SearchResult& result);
  bool verify_best(SearchResult& result);
  /// By the exact plan of every stage.
  int64_t exact_bytes(const Layout& layout);
  double layer_seconds(const PlannedRun& run, int64_t layers, int64_t microbatches,
                       Recompute recompute, const Card& card);

  const SearchTask& task_;
  const Fixed fixed_;
  const Card full_clock_;  ///< The card without a power limit.
  const int64_t room_;
  const size_t wanted_;   ///< Layouts to return.
  bool exactly_ = false;  ///< Memory by the exact plan of every stage, from the beginning.
  std::vector<std::unique_ptr<Worker>> workers_;
  struct Units {
    double layer = 0, ends = 0;      ///< Seconds of a micro-batch in the middle: of a layer; of
                                     ///< embedding and output layer.
    double selective = 0, full = 0;  ///< Additional, for a recomputed layer.
    double slowed = 1;               ///< Seconds at the power limit, relative to full clock.
  };
  std::map<std::tuple<int64_t, bool, int64_t>, Units> units_;
  std::vector<Choice> found_;
  std::vector<Misfit> misfits_;  ///< All layouts, as long as none fits.
};

double Search::layer_seconds(const PlannedRun& run, int64_t layers, int64_t microbatches,
                             Recompute recompute, const Card& card) {
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
  return estimate_step(small, task_.cluster, card, workers_.front()->device).seconds;
}

/// Lower bound on the seconds per sample of such layouts: the computing of the busiest stage, and
/// that of the stages before it for one micro-batch.
double Search::bound_of(const Layout& layout, const PlannedRun& run) {
  const auto [at, is_new] = units_.try_emplace(
      {layout.tensor, run.options.sequence_parallel, run.options.micro_batch_size});
  Units& unit = at->second;
  if (is_new) {
    const auto middle = [&](int64_t layers, Recompute recompute) {
      return layer_seconds(run, layers, 3, recompute, full_clock_) -
             layer_seconds(run, layers, 2, recompute, full_clock_);
    };
    const double one = middle(1, Recompute::none);
    unit.layer = middle(2, Recompute::none) - one;
    unit.ends = std::max(0.0, one - unit.layer);
    unit.selective = middle(2, Recompute::selective) - middle(1, Recompute::selective) - unit.layer;
    unit.full = middle(2, Recompute::full) - middle(1, Recompute::full) - unit.layer;
    const double limited = layer_seconds(run, 2, 3, Recompute::none, task_.card),
                 full = layer_seconds(run, 2, 3, Recompute::none, full_clock_);
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

/// The key of a core: everything except how data-parallel ranks share.
Layout core_of(Layout layout) {
  layout.zero_stage = 0;
  layout.overlap = false;
  layout.fp8_param_gather = false;
  return layout;
}

LayoutSpace Search::space_of() const {
  return {.world_size = task_.cluster.world_size,
          .local_size = task_.cluster.local_size,
          .num_layers = task_.config.num_layers.value_or(1),
          .most_samples = task_.most_samples,
          .exactly = task_.exactly,
          .bf16 = task_.bf16 && !fixed_.precision};
}

std::vector<Core> Search::cores(SearchResult& result) {
  std::vector<Core> out;
  std::optional<Layout> last;
  for (const Layout& layout : enumerate_layouts(space_of(), task_.config, fixed_)) {
    ++result.enumerated;
    try {
      const PlannedRun run = planned(layout);
      if (last != core_of(layout)) {
        last = core_of(layout);
        out.push_back({{}, bound_of(layout, run)});
      }
      // Shared optimizer state with overlapped communication comes first.
      std::vector<Layout>& layouts = out.back().layouts;
      const bool likely = layout.zero_stage == 1 && layout.overlap;
      layouts.insert(likely ? layouts.begin() : layouts.end(), layout);
    } catch (const cli::UsageError& error) {
      ++result.refusals[error.what()];
    } catch (const ShapeError& error) {
      ++result.refusals[error.what()];
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Core& a, const Core& b) { return a.bound < b.bound; });
  return out;
}

double Search::own_bound(const Core& core, Worker& worker) const {
  Layout layout = core.layouts.front();
  if (layout.data > 1 && !fixed_.zero) layout.zero_stage = 1;  // has the smallest update.
  for (const Layout& of_core : core.layouts) layout.fp8_param_gather |= of_core.fp8_param_gather;
  PlannedRun run = planned(layout);
  const auto seconds_of = [&](int64_t microbatches) {
    run.options.max_microbatches = microbatches;
    return estimate_step(run, task_.cluster, task_.card, worker.times(run), true).seconds;
  };
  // A full pipeline takes equally long for each further round of as many micro-batches as stages.
  const int64_t all = run.options.max_microbatches, round = layout.pipeline;
  const int64_t few = std::max<int64_t>(round, 2) + all % round, more = few + round;
  double seconds = 0;
  if (all <= 3 * more) {  // not worth two shorter ones.
    seconds = seconds_of(all);
  } else {
    const double filled = seconds_of(few), longer = seconds_of(more);
    const double rounds = static_cast<double>((all - more) / round);
    seconds = longer + kBoundSlack * rounds * (longer - filled);
  }
  return seconds / static_cast<double>(layout.global_batch_size());
}

Choice Search::timed(const Layout& layout, const PlannedRun& run, int64_t bytes,
                     Worker& worker) const {
  const StepEstimate estimate = estimate_step(run, task_.cluster, task_.card, worker.times(run));
  return {.layout = layout,
          .bytes = bytes,
          .report = report_of(estimate, run, task_.cluster, task_.card),
          .train_iters = run.config.derived.train_iters};
}

double Search::recompute_bound(const Layout& layout, Recompute kind, double share) const {
  const bool sequence = layout.sequence_parallel && layout.tensor > 1;
  const auto at = units_.find({layout.tensor, sequence, layout.micro_batch_size});
  if (at == units_.end()) return 0;
  const double more = kind == Recompute::selective ? at->second.selective : at->second.full;
  const double layers = static_cast<double>(task_.config.num_layers.value_or(1));
  return 0.95 * share * layers * std::max(more, 0.0) / static_cast<double>(layout.pipeline) /
         static_cast<double>(layout.micro_batch_size * layout.data);
}

/// The smallest possible share of the optimizer's state is copied in both directions once per step.
double Search::offload_bound(const Layout& layout) const {
  constexpr double kBytes = 2 * 8;  // of fp32 main parameters and 16-bit moments, at least.
  const double parameters =
      static_cast<double>(count_parameters(planned(layout).spec) / task_.cluster.world_size);
  return kBytes * parameters / (task_.card.host_gb_per_s * 1e9) /
         static_cast<double>(layout.global_batch_size());
}

/// A layout that is slower than `limit` is of no use, so its bytes are not found exactly.
Search::Costed Search::cost(const Layout& layout, double limit, Worker& worker) const {
  const PlannedRun run = planned(layout);
  const LeastBytes least = bytes_at_least(run, task_.card);
  Costed out{.states = least.states, .bytes = least.all};
  if (out.bytes > room_) return out;
  Choice choice = timed(layout, run, out.bytes, worker);
  if (!too_slow(choice, limit)) {
    choice.bytes = out.bytes = bytes_taken(run, task_.card, exactly_);
    if (out.bytes > room_) return out;
  }
  out.choice = std::move(choice);
  return out;
}

/// Adds the lightest recomputation of each kind that fits: it recomputes least, so no other of its
/// kind is faster. `missed_bytes`: of the layout without any.
void Search::add_recomputed(const Core& core, const Layout& layout, int64_t missed_bytes,
                            double limit, Worker& worker, Outcome& out) const {
  if (fixed_.recompute) return;
  const auto useful = [&](Recompute kind, double share) {
    return core.bound + recompute_bound(layout, kind, share) <= limit;
  };
  const auto add = [&](const Layout& next) {
    std::optional<Choice> choice = cost(next, limit, worker).choice;
    if (choice) out.fits.push_back(std::move(*choice));
    return choice.has_value();
  };
  const int64_t layers = task_.config.num_layers.value_or(1);
  const int64_t parts = layout.pipeline * layout.chunks;
  const int64_t most = std::min(layers, (layers + 2 + parts - 1) / parts);
  Layout next = layout;
  next.recompute = Recompute::selective;
  if (useful(next.recompute, 1)) add(next);
  next.recompute = Recompute::full;
  next.recompute_layers = 1;
  const Point all{most, least_bytes(next)};
  if (all.bytes <= room_) {
    next.recompute = Recompute::block;
    const Point too_large = most_too_large(next, {0, missed_bytes}, all);
    const double least = static_cast<double>(too_large.layers + 1) / static_cast<double>(most);
    if (!useful(Recompute::full, 0.9 * least)) return;
    if (std::optional<Choice> choice = least_layers(next, too_large, all, limit, worker)) {
      out.fits.push_back(std::move(*choice));
      return;
    }
    next.recompute = Recompute::full;
    if (add(next)) return;
  }
  for (const int64_t together : {2, 4, 8}) {
    next.recompute_layers = together;
    if (together < most && useful(Recompute::full, 1) && add(next)) return;
  }
}

/// The most layers to compute again for which even the lower bound of bytes is too large; {0, those
/// of none} if there is no such number. Bounds fall nearly in a line from `none` to `all`, which is
/// not too large.
Search::Point Search::most_too_large(Layout layout, Point none, Point all) const {
  const auto at = [&](int64_t count) {
    layout.recompute_layers = count;
    return Point{count, least_bytes(layout)};
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

/// The smallest number of layers to compute again that fits, below that of `all`, or a smaller one
/// that is of no use; bytes fall nearly in a line from `none`, which does not fit.
std::optional<Choice> Search::least_layers(Layout layout, Point none, Point all, double limit,
                                           Worker& worker) const {
  std::optional<Choice> least;
  while (all.layers - none.layers > 1) {
    const double share = static_cast<double>(none.bytes - room_) /
                         static_cast<double>(std::max<int64_t>(none.bytes - all.bytes, 1));
    layout.recompute_layers = std::clamp<int64_t>(
        none.layers +
            static_cast<int64_t>(std::ceil(std::clamp(share, 0.0, 1.0) *
                                           static_cast<double>(all.layers - none.layers))),
        none.layers + 1, all.layers - 1);
    Costed costed = cost(layout, limit, worker);
    (costed.choice ? all : none) = {layout.recompute_layers, costed.bytes};
    if (costed.choice) least = std::move(costed.choice);
  }
  return least;
}

Search::Outcome Search::consider(const Core& core, const Layout& layout, double limit,
                                 Worker& worker) const {
  Outcome out;
  Costed costed = cost(layout, limit, worker);
  if (costed.choice) {
    out.fits.push_back(std::move(*costed.choice));
    return out;
  }
  out.misfits.push_back({layout, costed.states, costed.bytes});
  if (costed.states <= room_) {
    out.missed_bytes = costed.bytes;
    add_recomputed(core, layout, costed.bytes, limit, worker, out);
  }
  if (out.fits.empty() && !fixed_.offload && core.bound + offload_bound(layout) <= limit) {
    Layout next = layout;
    next.cpu_offload = true;
    costed = cost(next, limit, worker);
    out.misfits.push_back({next, costed.states, costed.bytes});
    if (costed.choice)
      out.fits.push_back(std::move(*costed.choice));
    else if (costed.states <= room_)
      add_recomputed(core, next, costed.bytes, limit, worker, out);
  }
  std::stable_sort(out.fits.begin(), out.fits.end(), before);
  return out;
}

template <class Work>
void Search::on_threads(size_t count, Work work) {
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> errors(workers_.size());
  const auto run = [&](size_t worker) {
    try {
      for (size_t i = next++; i < count; i = next++) work(i, *workers_[worker]);
    } catch (...) {
      errors[worker] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (size_t w = 1; w < workers_.size(); ++w) threads.emplace_back(run, w);
  run(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void Search::consider_all(std::span<const std::pair<const Core*, size_t>> layouts, double limit,
                          SearchResult& result) {
  std::vector<Outcome> outcomes(layouts.size());
  on_threads(layouts.size(), [&](size_t i, Worker& worker) {
    const auto& [core, which] = layouts[i];
    outcomes[i] = consider(*core, core->layouts[which], limit, worker);
  });
  for (size_t i = 0; i < layouts.size(); ++i) {
    const auto& [core, which] = layouts[i];
    merge(*core, core->layouts[which], outcomes[i], result);
  }
}

void Search::merge(const Core& core, const Layout& layout, Outcome& outcome, SearchResult& result) {
  ++result.costed;
  if (outcome.fits.empty()) ++result.no_room;
  if (outcome.fits.empty() && found_.empty())
    misfits_.insert(misfits_.end(), outcome.misfits.begin(), outcome.misfits.end());
  if (outcome.missed_bytes) {
    // The smallest excess of memory among those that could still be the fastest.
    const bool faster = found_.empty() || core.bound < seconds_per_sample(found_.front());
    const int64_t nearest = result.nearest_miss ? result.nearest_miss->bytes : INT64_MAX;
    int64_t bytes = *outcome.missed_bytes;
    if (faster && bytes < nearest) bytes = bytes_taken(planned(layout), task_.card, false);
    if (faster && bytes < nearest) {
      result.nearest_miss = {.layout = layout, .bytes = bytes};
      if (!outcome.fits.empty()) result.nearest_miss->fitting = outcome.fits.front();
    }
  }
  if (outcome.fits.empty()) return;
  const Choice& choice = outcome.fits.front();
  found_.insert(std::upper_bound(found_.begin(), found_.end(), choice, before), choice);
  if (found_.size() > wanted_) found_.pop_back();
}

/// Checks the best by the exact plan of every stage; false if one of them does not fit.
bool Search::verify_best(SearchResult& result) {
  for (Choice& choice : found_) {
    if (static_cast<int64_t>(result.best.size()) == task_.top) break;
    choice.bytes = exact_bytes(choice.layout);
    if (choice.bytes > room_) return false;
    result.best.push_back(choice);
  }
  return true;
}

int64_t Search::exact_bytes(const Layout& layout) {
  const PlannedRun run = planned(layout);
  std::vector<int64_t> bytes(static_cast<size_t>(run.topology.pipeline_size));
  on_threads(bytes.size(), [&](size_t stage, Worker&) {
    bytes[stage] = bytes_of_stage(run, task_.card, static_cast<int>(stage));
  });
  return *std::max_element(bytes.begin(), bytes.end());
}

SearchResult Search::run(bool all) {
  const auto begin = std::chrono::steady_clock::now();
  SearchResult result;
  for (int i = 0; i < std::max(task_.threads, 1); ++i)
    workers_.push_back(std::make_unique<Worker>(task_.card));
  std::vector<Core> order = cores(result);
  int64_t taken = 0;
  for (const Core& core : order) taken += static_cast<int64_t>(core.layouts.size());
  if (order.empty()) {
    std::string why = no_layout(space_of(), task_.config, fixed_);
    int64_t most = 0;
    for (const auto& [words, count] : result.refusals)
      if (count > most) why = words, most = count;
    if (result.refusals.size() > 1)
      why += cli::concat(" (the most frequent of ", result.refusals.size(), " reasons)");
    throw cli::UsageError(why);
  }
  const SearchResult fresh = result;
  examine(order, all, result);
  if (!verify_best(result)) {  // and has displaced others.
    exactly_ = true;
    found_.clear();
    misfits_.clear();
    result = fresh;
    examine(order, all, result);
    verify_best(result);
  }
  result.slower_by_bound = taken - result.costed;
  if (result.best.empty()) miss_of_all(result);
  if (result.nearest_miss) {
    SearchResult::Miss& miss = *result.nearest_miss;
    miss.bytes = exact_bytes(miss.layout);
    if (miss.fitting && (miss.fitting->bytes = exact_bytes(miss.fitting->layout)) > room_)
      miss.fitting.reset();
    miss.tokens_per_second = timed(miss.layout, planned(miss.layout), miss.bytes, *workers_.front())
                                 .report.tokens_per_second;
    if (!result.best.empty() &&
        miss.tokens_per_second <= result.best.front().report.tokens_per_second)
      result.nearest_miss.reset();
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

/// Where nothing fits: what takes least.
void Search::miss_of_all(SearchResult& result) {
  if (misfits_.empty()) return;
  const LeastMemory least = least_memory(task_, misfits_, true);
  result.nearest_miss = {.layout = least.layout, .bytes = least.bytes};
  const bool recomputes = !fixed_.recompute && least.layout.recompute != Recompute::none;
  if (recomputes || (!fixed_.offload && least.layout.cpu_offload))
    result.least_plain = least_memory(task_, misfits_, false);
  if (result.least_plain) result.least_plain->bytes = exact_bytes(result.least_plain->layout);
}

void Search::examine(std::vector<Core>& order, bool all, SearchResult& result) {
  for (size_t next = 0; next < order.size();) {
    if (!all && !can_enter(order[next].bound)) break;
    const size_t count = std::min(kBatch, order.size() - next);
    const std::span<Core> batch = std::span(order).subspan(next, count);
    on_threads(count, [&](size_t i, Worker& worker) {
      batch[i].bound = std::max(batch[i].bound, own_bound(batch[i], worker));
    });
    // The likely best of each core first: this makes most of the others unnecessary.
    for (const bool likely : {true, false}) {
      std::vector<std::pair<const Core*, size_t>> layouts;
      for (const Core& core : batch)
        for (size_t i = likely ? 0 : 1; i < (likely ? 1 : core.layouts.size()); ++i)
          if (all || can_enter(core.bound)) layouts.emplace_back(&core, i);
      const bool open = all || found_.size() < wanted_;
      consider_all(layouts, open ? INFINITY : seconds_per_sample(found_.back()), result);
    }
    next += count;
  }
}

}  // namespace

int64_t room_of(const Card& card) noexcept {
  return static_cast<int64_t>(card.memory_gib * (int64_t{1} << 30));
}

Fixed fixed_of(const SearchTask& task) {
  return task.as_given ? all_fixed() : fixed_by(task.given);
}

PlannedRun planned_run(const SearchTask& task, const Layout& layout) {
  TrainConfig config = task.config;
  Given given = task.given;
  apply(layout, fixed_of(task), config, given);
  return plan_run(config, std::move(given), task.cluster, task.vocab_size);
}

SearchResult search_layouts(const SearchTask& task) { return Search(task).run(false); }

SearchResult search_all(const SearchTask& task) { return Search(task).run(true); }

}  // namespace trainer
