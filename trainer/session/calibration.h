// Calibration: measures the rates of one device through the interface that a step uses. Each
// operation is measured in bursts at full clock; the card's power limit by a load like a layer's
// (the carrier), which is repeated without a rest. Not here: processes, collectives, files
// (calibrate.cc). May include: ops/, planning/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "trainer/ops/ops.h"
#include "trainer/planning/card.h"

namespace trainer {

/// What is measured, and for how long.
struct CalibrationPlan {
  double seconds = 15;       ///< Of all operations, not counting the choice of algorithms,
  double limit_seconds = 6;  ///< and of the load that shows the power limit.
  ops::DType dtype = ops::DType::bf16;
  int64_t carrier_rows = 16384, carrier_width = 2048;
  int64_t most_rows = 65536;              ///< Shapes with more rows are left out,
  int64_t most_width = 6144;              ///< and so are wider ones.
  int64_t most_bytes = int64_t{8} << 30;  ///< Of one operation's operands.
  bool beyond_caches = true;  ///< Small operands have copies, so that they come from memory.
  std::function<void(double)> progress;  ///< Called with the fraction done; may be empty.
};

/// Fills products, attention, passes and power_limit of `card`. Results of products are checked on
/// operands whose answer is known. Errors: DeviceError, also for a wrong result, naming operation
/// and shape.
void calibrate(ops::Ops& ops, const CalibrationPlan& plan, Card& card);

/// Runs every `shares`-th product of the plan once, from number `share` on, so that the device
/// chooses its algorithm and keeps the choice for calibrate(): with several GPUs each has a share.
void choose_algorithms(ops::Ops& ops, const CalibrationPlan& plan, int share, int shares);

}  // namespace trainer
