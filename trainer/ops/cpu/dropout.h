// Dropout of one row, with the mask that ops/dropout.h defines.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/cpu/rows.h"
#include "trainer/ops/dropout.h"
#include "trainer/ops/philox.h"
#include "trainer/ops/step_state.h"

namespace ops::cpu {

/// The drop pattern of one operation call: row(s, b) is applied to C contiguous elements.
class DropoutMask {
 public:
  explicit DropoutMask(const Dropout& dropout)
      : dropout_(dropout),
        threshold_(dropout_threshold(dropout.p)),
        scale_(dropout_scale(dropout.p)) {
    if (dropout.p > 0)
      iteration_ =
          static_cast<uint32_t>(static_cast<const StepState*>(dropout.state.data)->iteration);
  }

  bool on() const noexcept { return dropout_.p > 0; }

  /// values[i] *= mask(s, b, first + i) / keep for i in 0 .. count-1. `head` is local, for
  /// attention; `first` is a multiple of 8.
  void apply(float* values, int64_t count, int64_t s, int64_t b, int64_t head = -1,
             int64_t first = 0) const noexcept {
    if (!on()) return;
    row_dropout(values, first, count,
                {.position = static_cast<uint32_t>(dropout_.first_position + s),
                 .sample = static_cast<uint32_t>(dropout_.first_sample + b),
                 .iteration = iteration_,
                 .seed = dropout_.seed,
                 .site = dropout_.site +
                         (head < 0 ? 0u : static_cast<uint32_t>(dropout_.first_head + head)),
                 .threshold = threshold_,
                 .scale = scale_});
  }

 private:
  const Dropout& dropout_;
  uint32_t threshold_;
  float scale_;
  uint32_t iteration_ = 0;
};

}  // namespace ops::cpu
