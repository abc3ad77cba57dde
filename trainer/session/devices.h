// The device that a run computes on, from what the flags say and what the machine has. The only
// file above ops/ that knows which backends there are.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "trainer/config/train_config.h"
#include "trainer/ops/ops.h"

namespace trainer {

/// GPUs that this process sees and --device allows.
int visible_gpus(const TrainConfig& config);

/// A rank's share of its host.
struct DeviceShare {
  int gpu = 0;            ///< Index of its GPU, of those that it sees.
  int ranks_on_host = 1;  ///< The host's CPU threads are divided among them.
};

/// Opens the device of --device; auto is a GPU where there is one.
/// Errors: cli::UsageError for a device that this build or machine has not, or a precision that the
/// device does not compute in; DeviceError.
std::unique_ptr<ops::Ops> open_device(const TrainConfig& config, const DeviceShare& share = {});

}  // namespace trainer
