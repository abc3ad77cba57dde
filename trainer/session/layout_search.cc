// Branch and bound, the best first. Of all cores (layout_bounds.h) the one with the least bound is
// taken. A core that is taken again and again goes through these steps, each of which costs more
// than the one before: its quick bound; what must be added where none of its layouts fits as it is;
// the bound of its own step; its likely best layout; all others.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/layout_search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <queue>
#include <thread>

#include "tools/cli/flags.h"
#include "tools/cli/text.h"
#include "trainer/session/layout_beside.h"
#include "trainer/session/layout_bounds.h"

namespace trainer {
namespace {

using Recompute = Layout::Recompute;

/// Cores taken between two checks of the best layout so far.
constexpr size_t kBatch = 16;

/// Layouts that the trainer accepts and that share one bound.
struct Core {
  std::vector<Layout> layouts;    ///< The likely best one first.
  std::vector<LeastBytes> least;  ///< Of the first layouts as they are; of all, if none fits.
  /// Lower bounds in seconds per sample: of any of them, and of what must be added for one to fit.
  double bound = 0, to_fit = 0;
  bool by_own_step = false;  ///< `bound` is the core's own.
  size_t examined = 0;       ///< The first so many layouts.
  double of_fitting() const noexcept { return bound + to_fit; }
};

/// Steps of many small micro-batches are predicted too short, and smaller differences than this
/// mean nothing (bench/planning.md): one micro-batch counts as it is predicted, several as up to so
/// much longer.
constexpr double kIndistinct = 0.01;

/// By which layouts are ordered. Never below what is predicted, of which the bounds are.
double seconds_per_sample(const Choice& c) {
  const double more = 1 - 1 / static_cast<double>(c.layout.microbatches);
  return (1 + kIndistinct * more) * c.report.seconds /
         static_cast<double>(c.layout.global_batch_size());
}

/// Among equals the one that takes less memory, then the one that is enumerated first.
bool before(const Choice& a, const Choice& b) {
  return std::pair(seconds_per_sample(a), a.bytes) < std::pair(seconds_per_sample(b), b.bytes);
}

class Search {
 public:
  explicit Search(const SearchTask& task)
      : task_(task),
        fixed_(fixed_of(task)),
        bounds_(task, fixed_),
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
  Choice timed(const Layout& layout, const PlannedRun& run, int64_t bytes, Caches& caches) const;
  /// A layout's bytes, or a lower bound of them; it fits if there are costs.
  struct Costed {
    int64_t states = 0, bytes = 0;  ///< Before a step; with it.
    std::optional<Choice> choice;
  };
  Costed cost(const Layout& layout, double limit, Caches& caches) const;
  Costed cost(const Layout& layout, const LeastBytes& least, double limit, Caches& caches) const;
  bool too_slow(const Choice& choice, double limit) const {
    return seconds_per_sample(choice) > limit;
  }
  /// `limit`: seconds per sample above which a layout is of no use.
  Outcome consider(const Core& core, size_t which, double limit, Caches& caches) const;
  void add_recomputed(double bound, const Layout& layout, int64_t missed_bytes, double limit,
                      Caches& caches, Outcome& out) const;
  std::optional<Choice> least_layers(Layout layout, LayoutBounds::Point none,
                                     LayoutBounds::Point all, double limit, Caches& caches) const;
  LayoutSpace space_of() const;
  std::vector<Core> cores(SearchResult& result);
  /// Calls `work(i, caches)` for each i below `count`, on all threads.
  template <class Work>
  void on_threads(size_t count, Work work);
  void consider_all(std::span<const std::pair<Core*, size_t>> layouts, double limit,
                    SearchResult& result);
  void merge(Core& core, size_t which, Outcome& outcome, SearchResult& result);
  /// The next step but costing; false if there is none.
  bool bound_closer(Core& core, Caches& caches) const;
  void bound_by_own_step(Core& core, Caches& caches) const;
  void pass_over(Core& core, SearchResult& result);
  bool can_enter(double bound) const {
    return found_.size() < wanted_ || bound <= seconds_per_sample(found_.back());
  }
  void examine(std::vector<Core>& cores, bool all, SearchResult& result);
  void find_nearest_miss(SearchResult& result);
  void miss_of_all(SearchResult& result);
  bool verify_best(SearchResult& result);
  /// By the exact plan of every stage.
  int64_t exact_bytes(const Layout& layout);

  const SearchTask& task_;
  const Fixed fixed_;
  LayoutBounds bounds_;
  const int64_t room_;
  const size_t wanted_;   ///< Layouts to return.
  bool exactly_ = false;  ///< Memory by the exact plan of every stage, from the beginning.
  std::vector<std::unique_ptr<Caches>> workers_;
  std::vector<Choice> found_;
  std::vector<Misfit> misfits_;  ///< All layouts, as long as none fits.
  /// A layout that does not fit as it is.
  struct Missed {
    Core* core;
    size_t which;                   ///< Of the core's layouts.
    int64_t bytes;                  ///< At least.
    std::optional<Choice> fitting;  ///< With recomputation.
  };
  std::vector<Missed> missed_;
};

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
        out.push_back({.bound = bounds_.quick(layout, run, workers_.front()->device)});
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

Choice Search::timed(const Layout& layout, const PlannedRun& run, int64_t bytes,
                     Caches& caches) const {
  const StepEstimate estimate = estimate_step(run, task_.cluster, task_.card, caches.times(run));
  return {.layout = layout,
          .bytes = bytes,
          .report = report_of(estimate, run, task_.cluster, task_.card),
          .train_iters = run.config.derived.train_iters};
}

Search::Costed Search::cost(const Layout& layout, double limit, Caches& caches) const {
  return cost(layout, bytes_at_least(planned(layout), task_.card, caches.kept), limit, caches);
}

/// A layout that is slower than `limit` is of no use, so its bytes are not found exactly.
Search::Costed Search::cost(const Layout& layout, const LeastBytes& least, double limit,
                            Caches& caches) const {
  Costed out{.states = least.states, .bytes = least.all};
  if (out.bytes > room_) return out;
  const PlannedRun run = planned(layout);
  Choice choice = timed(layout, run, out.bytes, caches);
  if (!too_slow(choice, limit)) {
    choice.bytes = out.bytes = bytes_taken(run, task_.card, exactly_);
    if (out.bytes > room_) return out;
  }
  out.choice = std::move(choice);
  return out;
}

/// Adds the lightest recomputation of each kind that fits: it recomputes least, so no other of its
/// kind is faster. `missed_bytes`: of the layout without any.
void Search::add_recomputed(double bound, const Layout& layout, int64_t missed_bytes, double limit,
                            Caches& caches, Outcome& out) const {
  if (fixed_.recompute) return;
  const auto useful = [&](Recompute kind, double share) {
    return bound + bounds_.recompute(layout, kind, share) <= limit;
  };
  const auto add = [&](const Layout& next) {
    std::optional<Choice> choice = cost(next, limit, caches).choice;
    if (choice) out.fits.push_back(std::move(*choice));
    return choice.has_value();
  };
  const int64_t most = most_layers_of_part(layout, task_.config.num_layers.value_or(1));
  Layout next = layout;
  next.recompute = Recompute::selective;
  if (useful(next.recompute, 1)) add(next);
  next.recompute = Recompute::full;
  next.recompute_layers = 1;
  const LayoutBounds::Point all{most, bounds_.least_bytes(next, caches.kept)};
  if (all.bytes <= room_) {
    next.recompute = Recompute::block;
    const LayoutBounds::Point too_large =
        bounds_.most_too_large(next, {0, missed_bytes}, all, caches.kept);
    if (!useful(Recompute::full, LayoutBounds::least_share(too_large, all))) return;
    if (std::optional<Choice> choice = least_layers(next, too_large, all, limit, caches)) {
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

/// The smallest number of layers to compute again that fits, below that of `all`, or a smaller one
/// that is of no use; bytes fall nearly in a line from `none`, which does not fit.
std::optional<Choice> Search::least_layers(Layout layout, LayoutBounds::Point none,
                                           LayoutBounds::Point all, double limit,
                                           Caches& caches) const {
  std::optional<Choice> least;
  while (all.layers - none.layers > 1) {
    const double share = static_cast<double>(none.bytes - room_) /
                         static_cast<double>(std::max<int64_t>(none.bytes - all.bytes, 1));
    layout.recompute_layers = std::clamp<int64_t>(
        none.layers +
            static_cast<int64_t>(std::ceil(std::clamp(share, 0.0, 1.0) *
                                           static_cast<double>(all.layers - none.layers))),
        none.layers + 1, all.layers - 1);
    Costed costed = cost(layout, limit, caches);
    (costed.choice ? all : none) = {layout.recompute_layers, costed.bytes};
    if (costed.choice) least = std::move(costed.choice);
  }
  return least;
}

Search::Outcome Search::consider(const Core& core, size_t which, double limit,
                                 Caches& caches) const {
  Outcome out;
  const Layout& layout = core.layouts[which];
  Costed costed = which < core.least.size() ? cost(layout, core.least[which], limit, caches)
                                            : cost(layout, limit, caches);
  if (costed.choice) {
    out.fits.push_back(std::move(*costed.choice));
    return out;
  }
  out.misfits.push_back({layout, costed.states, costed.bytes});
  out.missed_bytes = costed.bytes;
  if (costed.states <= room_) add_recomputed(core.bound, layout, costed.bytes, limit, caches, out);
  for (const Choice& fits : out.fits) limit = std::min(limit, seconds_per_sample(fits));
  const double bound = core.bound + bounds_.offload(layout);
  if (!fixed_.offload && bound <= limit) {
    Layout next = layout;
    next.cpu_offload = true;
    costed = cost(next, limit, caches);
    out.misfits.push_back({next, costed.states, costed.bytes});
    if (costed.choice)
      out.fits.push_back(std::move(*costed.choice));
    else if (costed.states <= room_)
      add_recomputed(bound, next, costed.bytes, limit, caches, out);
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

void Search::consider_all(std::span<const std::pair<Core*, size_t>> layouts, double limit,
                          SearchResult& result) {
  std::vector<Outcome> outcomes(layouts.size());
  on_threads(layouts.size(), [&](size_t i, Caches& caches) {
    const auto& [core, which] = layouts[i];
    outcomes[i] = consider(*core, which, limit, caches);
  });
  for (size_t i = 0; i < layouts.size(); ++i) {
    const auto& [core, which] = layouts[i];
    merge(*core, which, outcomes[i], result);
  }
}

void Search::merge(Core& core, size_t which, Outcome& outcome, SearchResult& result) {
  ++result.costed;
  if (outcome.fits.empty()) ++result.no_room;
  if (outcome.fits.empty() && found_.empty())
    misfits_.insert(misfits_.end(), outcome.misfits.begin(), outcome.misfits.end());
  if (outcome.missed_bytes) missed_.push_back({&core, which, *outcome.missed_bytes, std::nullopt});
  if (outcome.fits.empty()) return;
  if (outcome.missed_bytes) missed_.back().fitting = outcome.fits.front();
  const Choice& choice = outcome.fits.front();
  found_.insert(std::upper_bound(found_.begin(), found_.end(), choice, before), choice);
  if (found_.size() > wanted_) found_.pop_back();
}

bool Search::bound_closer(Core& core, Caches& caches) const {
  if (!core.least.empty()) {
    if (core.by_own_step) return false;
    bound_by_own_step(core, caches);
    return true;
  }
  core.least = bounds_.least_bytes(core.layouts, caches.kept);
  if (core.least.size() == core.layouts.size())
    core.to_fit = bounds_.to_fit(core.layouts, core.least, caches.kept);
  return true;
}

void Search::bound_by_own_step(Core& core, Caches& caches) const {
  if (core.by_own_step) return;
  core.bound = std::max(core.bound, bounds_.own(core.layouts, caches));
  core.by_own_step = true;
}

/// The layouts that are not examined because what makes them fit is too slow.
void Search::pass_over(Core& core, SearchResult& result) {
  if (core.to_fit == 0) return;
  for (size_t i = core.examined; i < core.layouts.size(); ++i) {
    ++result.costed;
    ++result.no_room;
    missed_.push_back({&core, i, core.least[i].all, std::nullopt});
  }
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
  on_threads(bytes.size(), [&](size_t stage, Caches&) {
    bytes[stage] = bytes_of_stage(run, task_.card, static_cast<int>(stage));
  });
  return *std::max_element(bytes.begin(), bytes.end());
}

SearchResult Search::run(bool all) {
  const auto begin = std::chrono::steady_clock::now();
  SearchResult result;
  for (int i = 0; i < std::max(task_.threads, 1); ++i)
    workers_.push_back(std::make_unique<Caches>(task_.card));
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
    missed_.clear();
    for (Core& core : order) core.examined = 0;
    result = fresh;
    result.began_again = true;
    examine(order, all, result);
    verify_best(result);
  }
  result.slower_by_bound = taken - result.costed;
  result.best.empty() ? miss_of_all(result) : find_nearest_miss(result);
  if (result.nearest_miss) {
    SearchResult::Miss& miss = *result.nearest_miss;
    miss.bytes = exact_bytes(miss.layout);
    if (miss.fitting && (miss.fitting->bytes = exact_bytes(miss.fitting->layout)) > room_)
      miss.fitting.reset();
    miss.tokens_per_second = timed(miss.layout, planned(miss.layout), miss.bytes, *workers_.front())
                                 .report.tokens_per_second;
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

/// Of those that would be faster than the best: what takes least.
void Search::find_nearest_miss(SearchResult& result) {
  const double best = seconds_per_sample(result.best.front());
  std::ranges::stable_sort(missed_, {}, &Missed::bytes);
  for (const Missed& missed : missed_) {
    const int64_t nearest = result.nearest_miss ? result.nearest_miss->bytes : INT64_MAX;
    if (missed.bytes >= nearest) break;
    if (missed.core->bound >= best) continue;
    bound_by_own_step(*missed.core, *workers_.front());
    if (missed.core->bound >= best) continue;
    const Layout& layout = missed.core->layouts[missed.which];
    const PlannedRun run = planned(layout);
    const int64_t bytes = bytes_taken(run, task_.card, false);
    if (bytes >= nearest) continue;
    if (seconds_per_sample(timed(layout, run, bytes, *workers_.front())) >= best) continue;
    result.nearest_miss = {.layout = layout, .bytes = bytes, .fitting = missed.fitting};
  }
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

void Search::examine(std::vector<Core>& cores, bool all, SearchResult& result) {
  const auto later = [](const Core* a, const Core* b) {
    return std::pair(a->of_fitting(), a) > std::pair(b->of_fitting(), b);
  };
  std::priority_queue<Core*, std::vector<Core*>, decltype(later)> order(later);
  for (Core& core : cores) order.push(&core);
  while (true) {
    std::vector<Core*> batch;
    while (batch.size() < kBatch && !order.empty() &&
           (all || can_enter(order.top()->of_fitting()))) {
      batch.push_back(order.top());
      order.pop();
    }
    if (batch.empty()) break;
    std::vector<char> bounded(batch.size());
    on_threads(batch.size(),
               [&](size_t i, Caches& caches) { bounded[i] = bound_closer(*batch[i], caches); });
    std::vector<std::pair<Core*, size_t>> layouts;
    for (size_t i = 0; i < batch.size(); ++i) {
      Core& core = *batch[i];
      const size_t end = bounded[i] != 0 ? 0 : core.examined == 0 ? 1 : core.layouts.size();
      for (; core.examined < end; ++core.examined) layouts.emplace_back(&core, core.examined);
      if (core.examined < core.layouts.size()) order.push(&core);
    }
    const bool open = all || found_.size() < wanted_;
    consider_all(layouts, open ? INFINITY : seconds_per_sample(found_.back()), result);
  }
  for (Core& core : cores) pass_over(core, result);
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
