// --dry-run: what a run would take, without doing it: parameters, the memory plan, and the time, by
// the model that plan-training chooses with. Of a run on many devices the plan of each pipeline
// stage; only this process is there.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/ops.h"
#include "trainer/planning/card.h"
#include "trainer/session/layout_cost.h"

namespace trainer {

/// Prints the report on stdout; returns the exit status: 0, or 1 when memory does not suffice or
/// the data cannot be opened. `ops`: the run's device, or null where it is elsewhere. `card`: the
/// table to reckon with; without one a device that is here is measured for a moment, and for one
/// that is elsewhere no time is estimated.
int dry_run(const PlannedRun& run, const Cluster& cluster, ops::Ops* ops, const Card* card);

}  // namespace trainer
