// Lower bounds on the time of layouts, in seconds per sample, by which a search leaves most of them
// out. Layouts that differ only in how data-parallel ranks share form one core, and have one bound.
// Not here: the search (layout_search.h), the cost of a layout (layout_cost.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "trainer/session/layout_search.h"

namespace trainer {

/// What a search looks up again and again. One thread at a time.
struct Caches {
  explicit Caches(const Card& card) : device(card, false), host(card, true) {}
  CardTimes device, host;
  KeptBytes kept;
  CardTimes& times(const PlannedRun& run) { return run.options.cpu_offload ? host : device; }
};

/// Both bounds of a core's time are from the real step, and for a layout that keeps all
/// activations: recomputation and offload only add to it.
class LayoutBounds {
  using Recompute = Layout::Recompute;

 public:
  /// `task` and `fixed` must outlive it.
  LayoutBounds(const SearchTask& task, const Fixed& fixed);

  /// From models of one and of two layers, whose difference is the cost of a layer, with the serial
  /// part of a pipeline. `run`: the plan of `layout`.
  double quick(const Layout& layout, const PlannedRun& run, CardTimes& times);
  /// From the core's own step, with communication of data-parallel ranks taking no time.
  double own(std::span<const Layout> core, Caches& caches) const;

  /// What recomputing the share `share` of each stage's layers adds at least, for such a layout as
  /// quick() has seen.
  double recompute(const Layout& layout, Recompute kind, double share) const;
  /// What offload adds at least.
  double offload(const Layout& layout) const;

  /// So many layers computed again take so many bytes.
  struct Point {
    int64_t layers = 0, bytes = 0;
  };
  /// The most layers to compute again for which even the lower bound of bytes is too large; {0,
  /// those of none} if there is no such number. Bounds fall nearly in a line from `none` to `all`,
  /// which is not too large.
  Point most_too_large(Layout layout, Point none, Point all, KeptBytes& kept) const;
  /// The least share of the layers that is computed again then, for recompute().
  static double least_share(const Point& too_large, const Point& all) noexcept;
  /// The lower bound of a layout's bytes.
  int64_t least_bytes(const Layout& layout, KeptBytes& kept) const;
  /// Those of each layout of a core, up to the first that may fit.
  std::vector<LeastBytes> least_bytes(std::span<const Layout> core, KeptBytes& kept) const;
  /// What the recomputation and the offload add at least without which no layout of `core` fits;
  /// infinite if none fits with them. `least` are the core's bytes.
  double to_fit(std::span<const Layout> core, std::span<const LeastBytes> least,
                KeptBytes& kept) const;

 private:
  /// What the recomputation adds at least without which the layout of `core` that takes the fewest
  /// bytes does not fit: it needs the least.
  double to_fit_recomputed(std::span<const Layout> core, std::span<const LeastBytes> least,
                           KeptBytes& kept) const;
  double layer_seconds(const PlannedRun& run, int64_t layers, int64_t microbatches,
                       Recompute recompute, const Card& card, CardTimes& times) const;

  const SearchTask& task_;
  const Fixed& fixed_;
  const Card full_clock_;  ///< The card without a power limit.
  const int64_t room_;
  struct Units {
    double layer = 0, ends = 0;      ///< Seconds of a micro-batch in the middle: of a layer; of
                                     ///< embedding and output layer.
    double selective = 0, full = 0;  ///< Additional, for a recomputed layer.
    double slowed = 1;               ///< Seconds at the power limit, relative to full clock.
  };
  std::map<std::tuple<int64_t, bool, int64_t>, Units> units_;
};

/// The most layers that a part of a stage has.
int64_t most_layers_of_part(const Layout& layout, int64_t num_layers) noexcept;

/// The key of a core: everything except how data-parallel ranks share.
Layout core_of(Layout layout);

}  // namespace trainer
