// Schedules as lists.
//
// SPDX-License-Identifier: MIT
#include "trainer/schedule/action.h"

#include <algorithm>
#include <stdexcept>

namespace trainer {

std::vector<Action> make_schedule(ScheduleKind kind, int stage, int stages,
                                  int64_t num_microbatches, int chunks) {
  if (stages < 1 || stage < 0 || stage >= stages || num_microbatches < 1)
    throw std::invalid_argument("schedule: stage " + std::to_string(stage) + " of " +
                                std::to_string(stages) + ", " + std::to_string(num_microbatches) +
                                " micro-batches: out of range");
  if (chunks != 1 || (kind == ScheduleKind::sequential && stages != 1))
    throw std::invalid_argument(
        "schedule: this kind has one chunk a rank, and sequential one stage");
  std::vector<Action> actions;
  const auto forward = [&](int64_t m) {
    if (stage > 0) actions.push_back({Action::Kind::receive_forward, m, 0});
    actions.push_back({Action::Kind::forward, m, 0});
    if (stage + 1 < stages) actions.push_back({Action::Kind::send_forward, m, 0});
  };
  const auto backward = [&](int64_t m) {
    if (stage + 1 < stages) actions.push_back({Action::Kind::receive_backward, m, 0});
    actions.push_back({Action::Kind::backward, m, 0});
    if (stage > 0) actions.push_back({Action::Kind::send_backward, m, 0});
  };
  // Warm-up: as many forwards as there are stages after this one; then one forward, one backward;
  // then the rest.
  const int64_t warmup = std::min<int64_t>(stages - 1 - stage, num_microbatches);
  for (int64_t m = 0; m < warmup; ++m) forward(m);
  for (int64_t m = warmup; m < num_microbatches; ++m) {
    forward(m);
    backward(m - warmup);
  }
  for (int64_t m = num_microbatches - warmup; m < num_microbatches; ++m) backward(m);
  return actions;
}

std::string describe(const std::vector<Action>& actions) {
  static constexpr const char* kWords[] = {"r", "F", "s", "rb", "B", "sb"};
  std::string text;
  for (const Action& action : actions)
    text += (text.empty() ? "" : " ") + std::string(kWords[static_cast<size_t>(action.kind)]) +
            std::to_string(action.microbatch);
  return text;
}

int64_t most_in_flight(const std::vector<Action>& actions) {
  int64_t now = 0, most = 0;
  for (const Action& action : actions) {
    if (action.kind == Action::Kind::forward) most = std::max(most, ++now);
    if (action.kind == Action::Kind::backward) --now;
  }
  return most;
}

}  // namespace trainer
