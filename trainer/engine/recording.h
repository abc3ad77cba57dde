// Recording: a part of a step that the device can replay. Not here: how a device records
// (ops/ops.h). May include: ops/ops.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>

#include "trainer/ops/ops.h"

namespace trainer {

/// The part is queued call by call the first time, so that a backend can build all it needs; it is
/// recorded the second time, if the device can record, and replayed from then on.
class Recording {
 public:
  /// `capture`: false to always queue call by call.
  Recording(ops::Ops& ops, bool capture) : ops_(ops), capture_(capture) {}
  ~Recording() {
    // When they are destroyed, NCCL's groups wait for the recordings that contain their calls.
    for (const auto& [num_microbatches, recorded] : recorded_) ops_.forget(recorded);
  }
  Recording(const Recording&) = delete;

  /// Queues `part` for a step of `num_microbatches`.
  template <class Part>
  void run(int64_t num_microbatches, const Part& part) {
    const auto [known, is_first] = recorded_.try_emplace(num_microbatches, -1);
    int64_t& recorded = known->second;
    if (recorded < 0 && !is_first && capture_ && ops_.begin_capture()) {
      part();
      recorded = ops_.end_capture();
    }
    if (recorded >= 0)
      ops_.replay(recorded);
    else
      part();
  }

 private:
  ops::Ops& ops_;
  const bool capture_;
  std::map<int64_t, int64_t> recorded_;  ///< By number of micro-batches; -1: has run once.
};

}  // namespace trainer
