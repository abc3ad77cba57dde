// The clock at a card's power limit: when it falls, how far, and what a measured load says about
// the limit; steps that wait, and stages each with its own clock.
//
// SPDX-License-Identifier: MIT
#include "trainer/planning/clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "trainer/planning/simulation.h"

namespace trainer {
namespace {

using ops::CallTime;

CallTime products(double seconds) { return {seconds, seconds, power::kProduct * seconds}; }
CallTime passes(double seconds) { return {seconds, 0, power::kPass * seconds}; }

// Products alone: E c^1.65 = L s / c, so c = L^(1/2.65).
TEST(ClockTest, ProductsAloneTakeThePowerThatIsPermitted) {
  const double clock = clock_of(0.7, products(3), 0);
  EXPECT_NEAR(clock, std::pow(0.7, 1 / (1 + power::kClockExponent)), 1e-9);
  EXPECT_NEAR(seconds_at(clock, products(3)), 3 / clock, 1e-9);
}

TEST(ClockTest, ItIsFullWithoutALimitOrBelowIt) {
  EXPECT_EQ(clock_of(0, products(1), 0), 1);
  EXPECT_EQ(clock_of(1, products(1), 0), 1);
  EXPECT_EQ(clock_of(0.6, passes(1), 0), 1);
  EXPECT_EQ(clock_of(0.7, products(1), 2), 1);  // (1 + 0.4 * 2) / 3 = 0.6.
}

TEST(ClockTest, PassesAndWaitingLeaveProductsMorePower) {
  const double alone = clock_of(0.7, products(1), 0);
  const double beside = clock_of(0.7, products(1) + passes(0.5), 0);
  EXPECT_GT(beside, alone);
  EXPECT_LT(beside, 1);
  EXPECT_GT(clock_of(0.7, products(1), 0.5), alone);
  EXPECT_NEAR(seconds_at(0.5, products(1) + passes(0.5)), 2.5, 1e-12);
}

TEST(ClockTest, TheLimitIsThatUnderWhichALoadTakesItsTime) {
  const CallTime load = products(1) + passes(0.1);
  for (const double limit : {0.5, 0.66, 0.8}) {
    const double seconds = seconds_at(clock_of(limit, load, 0), load);
    EXPECT_NEAR(power_limit_of(load, seconds), limit, 1e-6);
  }
  EXPECT_EQ(power_limit_of(load, 1.1), 0);
  EXPECT_EQ(power_limit_of(load, 1.0), 0);
  EXPECT_EQ(power_limit_of(passes(1), 2), 0);
}

TEST(ClockTest, WaitingMakesUpForWhatTheLimitCosts) {
  EXPECT_NEAR(slowdown(0.7, 1.12, 1), 1.12, 1e-6);
  EXPECT_LT(slowdown(0.7, 1.12, 0.8), 1.12);
  EXPECT_GT(slowdown(0.7, 1.12, 0.8), 1);
  EXPECT_EQ(slowdown(0.7, 1.12, 0.3), 1);
  EXPECT_EQ(slowdown(0, 1, 0.5), 1);
}

// Two stages, one with twice the other's products: the second waits half its time, at full clock.
TEST(ClockTest, EachStageHasItsOwn) {
  Card card;
  card.power_limit = 0.72;
  card.link_gb_per_s = card.network_gb_per_s = 1;
  std::vector<ops::Timeline> stages(2);
  const auto queue = ops::Queue::pipeline;
  stages[0].compute(products(2), 1);
  stages[0].follow(queue, stages[0].mark(ops::Queue::compute));
  stages[0].transfer(queue, ops::Transfer::send, 8, 1);
  stages[1].transfer(queue, ops::Transfer::receive, 8, 0);
  stages[1].follow(ops::Queue::compute, stages[1].mark(queue));
  stages[1].compute(products(1), 1);
  const StepEstimate step = simulate(stages, make_topology(0, 2, 1, 2), {2, 2}, card);
  EXPECT_EQ(step.stages[1].compute, 1);
  // The first waits for the second's end at the end of the step.
  const double first = step.stages[0].compute;
  EXPECT_NEAR(first, seconds_at(clock_of(0.72, products(2), 1), products(2)), 2e-3);
  EXPECT_GT(first, 2.001);
  EXPECT_LT(first, seconds_at(clock_of(0.72, products(2), 0), products(2)) - 1e-3);
  EXPECT_NEAR(step.seconds, first + 1, 1e-6);
}

}  // namespace
}  // namespace trainer
