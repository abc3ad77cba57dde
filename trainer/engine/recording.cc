// Recording: what is recorded, by the number of micro-batches.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/recording.h"

namespace trainer {

Recording::~Recording() {
  ops_.synchronize();
  // NCCL's groups wait at their end for the recordings that hold their calls.
  for (const auto& [num_microbatches, recorded] : recorded_) ops_.forget(recorded);
}

void Recording::run(int64_t num_microbatches, const std::function<void()>& part) {
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

}  // namespace trainer
