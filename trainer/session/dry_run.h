// --dry-run: reports what a run would take, without running it: where it begins, its data,
// parameters, the memory plan, and the time, by plan-training's model of time. For a run on many
// devices, with the plan of each pipeline stage; only this process runs.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/ops.h"
#include "trainer/planning/card.h"
#include "trainer/session/layout_cost.h"
#include "trainer/session/start.h"

namespace trainer {

/// Prints the report on stdout; returns the exit status: 0, or 1 if memory does not suffice, or the
/// data cannot be read or is too short. `start`: where the run begins, settled in `run`. `ops`: the
/// run's device, or null if it is elsewhere. `card`: the table to use; without one this machine's
/// device is measured briefly, and for one that is elsewhere no time is estimated.
int dry_run(const PlannedRun& run, const Start& start, const Vocabulary& vocabulary, ops::Ops* ops,
            const Card* card, cli::Console& console);

}  // namespace trainer
