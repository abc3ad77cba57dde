// RankStatus: a Status under a lock.
//
// SPDX-License-Identifier: MIT
#include "trainer/rendezvous/rank_status.h"

#include <array>
#include <utility>

namespace rendezvous {

const char* name(Phase phase) noexcept {
  constexpr std::array<const char*, 7> kNames{"start",      "loading", "data", "step",
                                              "evaluation", "save",    "end"};
  const size_t index = static_cast<size_t>(phase);
  return index < kNames.size() ? kNames[index] : "?";
}

void RankStatus::enter(Phase phase, int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  evaluated_ = evaluated_ || (status_.phase == Phase::evaluate && phase != Phase::evaluate);
  status_.first_evaluation = phase == Phase::evaluate && !evaluated_;
  status_.phase = phase;
  status_.step = step;
  ++status_.progress;
}

void RankStatus::progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++status_.progress;
}

void RankStatus::begin_call(std::string call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.call = std::move(call);
  status_.waiting = true;
}

void RankStatus::end_call() {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.waiting = false;
  ++status_.progress;
}

void RankStatus::queued(std::string call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.call = std::move(call);
  ++status_.progress;
}

void RankStatus::set_resumable(bool resumable) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.resumable = resumable;
}

Status RankStatus::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

}  // namespace rendezvous
