// --calibrate: measures the table of this machine's card. Not here: the measurements
// (calibration.cc), looking up rates (planning/times.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "tools/cli/console.h"
#include "trainer/config/train_config.h"

namespace trainer {

/// Measures the GPUs that this process sees, operations for about `seconds`, and writes the table
/// to `path`, or standard output for "-". Returns the exit status. Errors: cli::UsageError if there
/// is no GPU; DeviceError if one fails, or computes wrongly; std::system_error for the file.
int calibrate_here(const TrainConfig& config, const std::string& path, double seconds,
                   cli::Console& console);

}  // namespace trainer
