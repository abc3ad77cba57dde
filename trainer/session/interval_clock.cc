// IntervalClock: sums, and the comparison of ranks.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/interval_clock.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace trainer {

std::string RankTimes::text() const {
  char out[160];
  std::snprintf(out, sizeof out, "%.9g %.9g %.9g %lld %lld", step, data, communication.value_or(-1),
                static_cast<long long>(peak_bytes), static_cast<long long>(planned_bytes));
  return out;
}

RankTimes RankTimes::from_text(const std::string& text) {
  RankTimes out;
  double communication = -1;
  long long peak = 0, planned = 0;
  if (std::sscanf(text.c_str(), "%lf %lf %lf %lld %lld", &out.step, &out.data, &communication,
                  &peak, &planned) != 5)
    throw std::runtime_error("a rank's times are \"" + text + "\": five numbers are expected");
  if (communication >= 0) out.communication = communication;
  out.peak_bytes = peak;
  out.planned_bytes = planned;
  return out;
}

void IntervalClock::add(double step, double data, std::optional<double> communication,
                        double tokens) {
  ++steps_;
  step_ += step;
  data_ += data;
  communication_ += communication.value_or(0);
  knows_communication_ = knows_communication_ && communication.has_value();
  tokens_ += tokens;
}

RankTimes IntervalClock::times(int64_t peak_bytes, int64_t planned_bytes) const {
  RankTimes out{.step = seconds_per_step(),
                .data = data_ / counted(),
                .peak_bytes = peak_bytes,
                .planned_bytes = planned_bytes};
  if (knows_communication_) out.communication = communication_ / counted();
  return out;
}

void add_ranks(std::span<const RankTimes> ranks, IterationRecord& record) {
  double data = 0, sum = 0;
  const RankTimes* fullest = &ranks.front();
  bool known = ranks.size() > 1;
  for (const RankTimes& rank : ranks) {
    data = std::max(data, rank.data);
    if (rank.peak_bytes > fullest->peak_bytes) fullest = &rank;
    known = known && rank.communication.has_value();
  }
  record.data_wait_seconds = data;
  record.peak_memory_bytes = fullest->peak_bytes;
  record.planned_memory_bytes = fullest->planned_bytes;
  if (!known) return;
  const auto work = [](const RankTimes& rank) { return rank.step - *rank.communication; };
  size_t slowest = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    sum += work(ranks[i]);
    if (work(ranks[i]) > work(ranks[slowest])) slowest = i;
  }
  record.slowest = {.rank = static_cast<int64_t>(slowest),
                    .cost_seconds = work(ranks[slowest]) - sum / static_cast<double>(ranks.size()),
                    .communication_seconds = *ranks[slowest].communication};
}

}  // namespace trainer
