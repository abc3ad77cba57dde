// Dropout of one row by the law of ops/layer_args.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/layer_args.h"
#include "trainer/ops/philox.h"
#include "trainer/ops/step_args.h"

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
    const uint32_t position = static_cast<uint32_t>(dropout_.first_position + s);
    const uint32_t sample = static_cast<uint32_t>(dropout_.first_sample + b);
    const uint32_t site =
        dropout_.site + (head < 0 ? 0u : static_cast<uint32_t>(dropout_.first_head + head));
    for (int64_t i = 0; i < count; i += 8) {
      const Philox4 words =
          philox({static_cast<uint32_t>((first + i) / 8), position, sample, iteration_},
                 dropout_.seed, site);
      const int lanes = count - i < 8 ? static_cast<int>(count - i) : 8;
      for (int lane = 0; lane < lanes; ++lane)
        values[i + lane] = lane16(words, lane) < threshold_ ? 0.0f : values[i + lane] * scale_;
    }
  }

 private:
  const Dropout& dropout_;
  uint32_t threshold_;
  float scale_;
  uint32_t iteration_ = 0;
};

}  // namespace ops::cpu
