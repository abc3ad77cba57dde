// What stands beside the result of a search: the same layout in FP8, and, where no layout fits, the
// one that takes the least memory. Not here: the search (layout_search.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <span>

#include "trainer/session/layout_search.h"

namespace trainer {

/// What a layout would cost with its linears in FP8 (--fp8-format hybrid): the numbers that are
/// trained differ, so nobody is given it unasked. Absent where the command says fp16, fp32 or FP8
/// itself, where the card has no FP8, and where it is refused or does not fit.
std::optional<Choice> in_fp8(const SearchTask& task, const Choice& choice);

/// A layout that does not fit without recomputation, with lower bounds of its bytes.
struct Misfit {
  Layout layout;
  int64_t states = 0;  ///< Without what a step keeps for backward: for any recomputation.
  int64_t bytes = 0;
};

/// Of `misfits`, of which there is at least one, the first of those that take the least memory of a
/// GPU: with recomputation, if the command leaves it open, and with state on the host; or, without
/// `changed`, with neither that the command has not. Bytes are by the plan of the largest step.
LeastMemory least_memory(const SearchTask& task, std::span<const Misfit> misfits, bool changed);

}  // namespace trainer
