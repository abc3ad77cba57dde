// Recording: a part of a step that the device replays. Not here: how a device records (ops/ops.h).
// May include: ops/ops.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>

#include "trainer/ops/ops.h"

namespace trainer {

/// Queued call by call the first time, so that a backend has built all it needs; recorded the
/// second time, where the device can; replayed from then on.
class Recording {
 public:
  /// `capture`: false to queue call by call always.
  Recording(ops::Ops& ops, bool capture) : ops_(ops), capture_(capture) {}
  ~Recording() {
    // NCCL's groups wait at their end for the recordings that hold their calls.
    for (const auto& [num_microbatches, recorded] : recorded_) ops_.forget(recorded);
  }
  Recording(const Recording&) = delete;

  /// Queues `part` as it is for a step of `num_microbatches`.
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
  std::map<int64_t, int64_t> recorded_;  ///< By number of micro-batches; -1: ran once.
};

}  // namespace trainer
