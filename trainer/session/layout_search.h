// The search for the layout whose step costs least time for a token: every layout is enumerated and
// checked in the trainer's words, ordered by a time that it cannot beat, and costed in that order
// until no other can be faster. Same command, same result, for any number of threads. Not here:
// costing (layout_cost.h), printing (layout_report.h).
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

/// What is searched: a command without a layout.
struct SearchTask {
  TrainConfig config;
  Given given;
  Cluster cluster;
  Card card;
  int64_t vocab_size = 0;
  int64_t most_samples = 1;  ///< Of a step.
  bool exactly = false;      ///< Each step has as many.
  bool bf16 = false;         ///< Where the command names no precision.
  bool as_given = false;     ///< Nothing is chosen: what the command says is costed.
  int64_t top = 1;           ///< How many of the best are wanted.
  int threads = 2;
};

/// A layout with its costs.
struct Choice {
  Layout layout;
  int64_t bytes = 0;  ///< Of the GPU that takes most.
  StepReport report;
  int64_t train_iters = 0;
};

/// What of the layout is the command's.
Fixed fixed_of(const SearchTask& task);

/// What the search has found.
struct SearchResult {
  std::vector<Choice> best;  ///< At most `top`, the fastest first.
  int64_t enumerated = 0, costed = 0;
  int64_t slower_by_bound = 0;  ///< Not costed: no other recomputation makes them fast enough.
  int64_t no_room = 0;          ///< Of those costed: and what makes them fit is of no use.
  std::map<std::string, int64_t> refusals;  ///< The trainer's words, and how often.
  /// The layout that would be fastest if it fitted.
  struct Miss {
    Layout layout;
    int64_t bytes = 0;
    double tokens_per_second = 0;
    std::optional<Choice> fitting;  ///< The same with recomputation, where that fits.
  };
  std::optional<Miss> nearest_miss;
  double seconds = 0;  ///< That the search took.
};

/// Bytes that a run can have of the task's card.
int64_t room_of(const Card& card) noexcept;

/// See the room card. Errors: cli::UsageError when nothing is enumerated, or the trainer refuses
/// all, in its words.
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
