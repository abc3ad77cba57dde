// Beacon: a Status under a lock.
//
// SPDX-License-Identifier: MIT
#include "trainer/comm/beacon.h"

#include <array>
#include <utility>

namespace comm {

const char* name(Phase phase) noexcept {
  constexpr std::array<const char*, 7> kNames{"start",      "loading", "data", "step",
                                              "evaluation", "save",    "end"};
  const size_t index = static_cast<size_t>(phase);
  return index < kNames.size() ? kNames[index] : "?";
}

void Beacon::enter(Phase phase, int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.phase = phase;
  status_.step = step;
  ++status_.progress;
}

void Beacon::progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++status_.progress;
}

void Beacon::begin_call(std::string call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.call = std::move(call);
  status_.waiting = true;
}

void Beacon::end_call() {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.waiting = false;
  ++status_.progress;
}

void Beacon::queued(std::string call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.call = std::move(call);
  ++status_.progress;
}

void Beacon::set_resumable(bool resumable) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.resumable = resumable;
}

Status Beacon::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

}  // namespace comm
