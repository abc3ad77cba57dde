// The search for the layout with the least time per token: every layout is enumerated and checked
// by the trainer's own rules, ordered by a lower bound on its time, and costed in that order until
// no other can be faster. The same command gives the same result for any number of threads. Not
// here: costing (layout_cost.h), what is found for the chosen layouts and where none fits
// (layout_beside.h), printing (layout_report.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/session/layout_cost.h"

namespace trainer {

/// The task: a command without a layout.
struct SearchTask {
  TrainConfig config;
  Given given;
  Cluster cluster;
  Card card;
  int64_t vocab_size = 0;
  int64_t most_samples = 1;  ///< Of a step.
  bool exactly = false;      ///< Each step has exactly that many.
  bool bf16 = false;         ///< If the command names no precision.
  bool as_given = false;     ///< Choose nothing: cost the command's own layout.
  int64_t top = 1;           ///< How many of the best layouts to return.
  int threads = 2;
};

/// A layout with its costs.
struct Choice {
  Layout layout;
  int64_t bytes = 0;  ///< Of the GPU that uses most.
  StepReport report;
  int64_t train_iters = 0;
};

/// The parts of the layout that the command fixes.
Fixed fixed_of(const SearchTask& task);

/// A layout and the bytes of the GPU that uses most.
struct LeastMemory {
  Layout layout;
  int64_t bytes = 0;
};

/// The result of the search.
struct SearchResult {
  /// At most `top`, the fastest first, where n micro-batches count as (1 - 1/n)% longer.
  std::vector<Choice> best;
  int64_t enumerated = 0, costed = 0;
  int64_t slower_by_bound = 0;  ///< Not costed: too slow with any recomputation.
  int64_t no_room = 0;          ///< Costed, but do not fit, or only with recomputation that is of
                                ///< no use.
  std::map<std::string, int64_t> refusals;  ///< The trainer's messages, with counts.
  /// The layout that would be fastest if it fitted; if none fits, the one that takes least.
  struct Miss {
    Layout layout;
    int64_t bytes = 0;
    double tokens_per_second = 0;
    std::optional<Choice> fitting;  ///< The same with recomputation, if that fits.
  };
  std::optional<Miss> nearest_miss;
  /// If none fits and the nearest miss recomputes or offloads: the one that takes least without.
  std::optional<LeastMemory> least_plain;
  bool began_again = false;  ///< A layout that was found did not fit by its exact plan.
  double seconds = 0;        ///< Duration of the search.

  /// How many the trainer refuses.
  int64_t refused() const noexcept {
    int64_t all = 0;
    for (const auto& [words, count] : refusals) all += count;
    return all;
  }
  /// How many fit and come after `best`.
  int64_t fit_after() const noexcept {
    return costed - no_room - static_cast<int64_t>(best.size());
  }
};

/// Bytes that a run can use on the task's card.
int64_t room_of(const Card& card) noexcept;

/// See the room card. Errors: cli::UsageError if nothing is enumerated, or the trainer refuses all,
/// with its message.
SearchResult search_layouts(const SearchTask& task);

/// The same by costing everything: for tests.
SearchResult search_all(const SearchTask& task);

/// The command of `task` with a layout. Errors: as plan_run in layout_cost.h.
PlannedRun planned_run(const SearchTask& task, const Layout& layout);

}  // namespace trainer
