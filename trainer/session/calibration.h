// Calibration: the rates of one device, measured over the interface that a step uses. Each
// operation is measured inside a load like a step's (the carrier: one layer, forward and backward):
// what it adds to the carrier's time is what it adds to a step, at the clock that a step has at the
// card's power limit. Not here: processes, collectives, files (calibrate.cc). May include: ops/,
// planning/.
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
  double seconds = 40;  ///< Of all loads; algorithms are chosen beside it.
  ops::DType dtype = ops::DType::bf16;
  int64_t carrier_rows = 16384, carrier_width = 2048;
  int64_t most_rows = 65536;              ///< Shapes with more are left out,
  int64_t most_width = 6144;              ///< and so are wider ones.
  int64_t most_bytes = int64_t{8} << 30;  ///< Of one operation's operands.
  bool beyond_caches = true;  ///< Small operands are many, so that they come from memory.
  std::function<void(double)> progress;  ///< Share done; may be empty.
};

/// Fills products, attention and passes of `card`. Results of products and attention are checked on
/// operands whose answer is known. Errors: DeviceError, also for a wrong result, naming operation
/// and shape.
void calibrate(ops::Ops& ops, const CalibrationPlan& plan, Card& card);

}  // namespace trainer
