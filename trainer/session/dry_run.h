// --dry-run: what a run would take, without doing it: parameters, the memory plan, and the time,
// estimated from how fast this device multiplies and copies right now. Of a run on many devices the
// plan of each pipeline stage; only this process is there.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/config/train_config.h"
#include "trainer/engine/engine.h"
#include "trainer/ops/gpus.h"

namespace trainer {

/// Prints the report on stdout; returns the exit status: 0, or 1 when memory does not suffice or
/// the data cannot be opened. Without `ops` the run's device is not there, and no time is
/// estimated: where `gpu` names it, the workspace of its libraries is estimated and the sum held
/// beside its memory; else the plan lacks that workspace.
int dry_run(const TrainConfig& config, const ModelSpec& spec, const EngineOptions& options,
            ops::Ops* ops, const ops::Gpu* gpu);

}  // namespace trainer
