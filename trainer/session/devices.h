// Chooses the device of a run from the flags and the machine. The only file above ops/ that knows
// the backends.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "trainer/config/train_config.h"
#include "trainer/ops/gpus.h"
#include "trainer/ops/ops.h"

namespace trainer {

/// For which GPUs and with which CUDA this program has code; a line for --version.
std::string gpu_support();

/// The card that --gpu names; null without --gpu.
/// Errors: cli::UsageError for an unknown name, a card that is too old, --gpu without planning, or
/// with --device cpu.
const ops::Gpu* planned_gpu(const TrainConfig& config);

/// A note on how the GPUs of this host reach each other's memory; may be empty.
std::string link_note(const TrainConfig& config);

/// GPUs that this process sees and --device allows.
int visible_gpus(const TrainConfig& config);

/// CUDA's name of the first visible and allowed GPU; empty if there is none.
std::string gpu_product(const TrainConfig& config);

/// A rank's share of its host.
struct DeviceShare {
  int gpu = 0;            ///< Index of its GPU among the visible ones.
  int ranks_on_host = 1;  ///< The host's CPU threads are divided among them.
};

/// Opens the device of --device; auto is a GPU if there is one. Errors: cli::UsageError for a
/// device that this build or machine does not have, or a precision that the device does not
/// support; DeviceError, also for a GPU that cannot be used because it or its driver is too old.
std::unique_ptr<ops::Ops> open_device(const TrainConfig& config, const DeviceShare& share = {});

}  // namespace trainer
