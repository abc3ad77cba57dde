// Clock: the balance of energy and time.
//
// SPDX-License-Identifier: MIT
#include "trainer/planning/clock.h"

#include <algorithm>
#include <cmath>

namespace trainer {
namespace {

constexpr double kLeastClock = 0.2;  // drivers do not go below.

}  // namespace

double clock_of(double limit, const ops::CallTime& work, double waiting) {
  if (limit <= 0 || work.clocked <= 0) return 1;
  const auto exceeds = [&](double clock) {
    const double energy =
        work.energy * std::pow(clock, power::kClockExponent) + power::kWaiting * waiting;
    return energy > limit * (seconds_at(clock, work) + waiting);
  };
  if (!exceeds(1)) return 1;
  double low = kLeastClock, high = 1;  // energy falls with the clock, and time grows.
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (exceeds(middle) ? high : low) = middle;
  }
  return low;
}

double slowdown(double limit, double slowed, double busy) {
  if (limit <= 0) return 1;
  const double energy = limit * std::pow(slowed, 1 + power::kClockExponent);
  return 1 / clock_of(limit, {busy, busy, energy * busy}, 1 - busy);
}

double power_limit_of(const ops::CallTime& work, double seconds) {
  constexpr double kNoise = 1.01;
  if (work.clocked <= 0 || seconds < kNoise * work.seconds) return 0;
  const double clock =
      std::max(kLeastClock, work.clocked / (work.clocked + std::max(0.0, seconds - work.seconds)));
  return work.energy * std::pow(clock, power::kClockExponent) / seconds;
}

}  // namespace trainer
