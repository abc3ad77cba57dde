// Clock: how fast a GPU's clock is during a step, at the limit of the card's power. Products and
// attention slow down with the clock, passes over memory do not; a step that waits, or reads much
// memory, leaves its products more power. Not here: what an operation takes (times.h), measuring
// the limit (session/calibration.h). Units: seconds at full clock; energy as CallTime has it.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/ops/timeline.h"

namespace trainer {

/// An operation's power beyond that of an idle GPU, at full clock, relative to a 16-bit product.
/// Attention and passes: fitted to one-GPU steps of an H100; FP8: to those of an H200; rounded.
/// Waiting: chosen.
/// Source: bench/planning.md.
namespace power {
inline constexpr double kProduct = 1, kFp8Product = 1.1, kFp8BlockProduct = 1.35;
inline constexpr double kAttentionForward = 0.8, kAttentionBackward = 0.5;
inline constexpr double kPass = 0.55;
inline constexpr double kWaiting = 0.4;  ///< For other ranks, or for a transfer.
/// Energy of the same work is as this power of the clock. Measured with idle gaps between loads,
/// each of which gives a clock: bench/planning.md.
inline constexpr double kClockExponent = 1.65;
}  // namespace power

/// The clock, relative to full clock, at which `work` and `waiting` seconds take as much power as
/// permitted; 1 where they take less at full clock, or where `limit`, Card::power_limit, is 0.
double clock_of(double limit, const ops::CallTime& work, double waiting);

/// Seconds of `work` at this clock.
inline double seconds_at(double clock, const ops::CallTime& work) {
  return work.seconds + work.clocked * (1 / clock - 1);
}

/// How much longer than at full clock a step takes whose GPU computes during the share `busy` of
/// it, if it takes `slowed` times as long where it does not wait; all work counts as products.
double slowdown(double limit, double slowed, double busy);

/// The limit of a card on which a load of `work` without waiting takes `seconds`, steadily; 0 if
/// the load is not slowed down.
double power_limit_of(const ops::CallTime& work, double seconds);

}  // namespace trainer
