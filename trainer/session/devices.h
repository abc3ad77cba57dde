// The device that a run computes on, from what the flags say and what the machine has. The only
// file above ops/ that knows which backends there are.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "trainer/config/train_config.h"
#include "trainer/ops/gpus.h"
#include "trainer/ops/ops.h"

namespace trainer {

/// Which GPUs this program has code for, of which CUDA; a line for --version.
std::string gpu_support();

/// The card that --gpu names; null without --gpu.
/// Errors: cli::UsageError for a name that is none, a card that is too old, --gpu where nothing is
/// planned, or with --device cpu.
const ops::Gpu* planned_gpu(const TrainConfig& config);

/// What is to be said of how the GPUs of this host reach each other; empty where nothing is.
std::string link_note(const TrainConfig& config);

/// GPUs that this process sees and --device allows.
int visible_gpus(const TrainConfig& config);

/// What CUDA calls the first GPU that is seen and allowed; empty where there is none.
std::string gpu_product(const TrainConfig& config);

/// A rank's share of its host.
struct DeviceShare {
  int gpu = 0;            ///< Index of its GPU, of those that it sees.
  int ranks_on_host = 1;  ///< The host's CPU threads are divided among them.
};

/// Opens the device of --device; auto is a GPU where there is one.
/// Errors: cli::UsageError for a device that this build or machine has not, or a precision that the
/// device does not compute in; DeviceError, also for a GPU that is there but cannot be used, for
/// its age or its driver's.
std::unique_ptr<ops::Ops> open_device(const TrainConfig& config, const DeviceShare& share = {});

}  // namespace trainer
