// The search for the layout with the least time per token: every layout is enumerated and checked
// by the trainer's own rules, ordered by a lower bound on its time, and costed in that order until
// no other can be faster. The same command gives the same result for any number of threads. Not
// here: costing (layout_cost.h), printing (layout_report.h).
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

/// The result of the search.
struct SearchResult {
  std::vector<Choice> best;  ///< At most `top`, the fastest first.
  int64_t enumerated = 0, costed = 0;
  int64_t slower_by_bound = 0;  ///< Not costed: too slow with any recomputation.
  int64_t no_room = 0;          ///< Costed, but do not fit, or only with recomputation that is of
                                ///< no use.
  std::map<std::string, int64_t> refusals;  ///< The trainer's messages, with counts.
  /// The layout that would be fastest if it fitted.
  struct Miss {
    Layout layout;
    int64_t bytes = 0;
    double tokens_per_second = 0;
    std::optional<Choice> fitting;  ///< The same with recomputation, if that fits.
  };
  std::optional<Miss> nearest_miss;
  double seconds = 0;  ///< Duration of the search.
};

/// Bytes that a run can use on the task's card.
int64_t room_of(const Card& card) noexcept;

/// See the room card. Errors: cli::UsageError if nothing is enumerated, or the trainer refuses all,
/// with its message.
SearchResult search_layouts(const SearchTask& task);

/// The same by costing everything: for tests.
SearchResult search_all(const SearchTask& task);

/// What a layout would cost with its linears in FP8 (--fp8-format hybrid): the numbers that are
/// trained differ, so nobody is given it unasked. Absent where the command says fp16, fp32 or FP8
/// itself, where the card has no FP8, and where it is refused or does not fit.
std::optional<Choice> in_fp8(const SearchTask& task, const Choice& choice);

/// The command of `task` with a layout. Errors: as plan_run in layout_cost.h.
PlannedRun planned_run(const SearchTask& task, const Layout& layout);

}  // namespace trainer
