// Batches: the token ids of a step on their way from the host to the device, and its results on
// their way back. Not here: where samples come from (data/). May include: engine/options.h,
// engine/host_array.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "trainer/engine/host_array.h"
#include "trainer/engine/options.h"
#include "trainer/ops/arena.h"

namespace trainer {

/// Batches and results that the host may hold at once.
inline constexpr int64_t kHostSlots = 2;

/// Page-locked host arrays of one step's batch; element (m, s, b) is at (m * S + s) * B + b.
struct HostBatch {
  std::span<int32_t> tokens, labels, positions;
  std::span<float> loss_mask;
  /// First key that a query sees; empty unless reset_attention_mask is set or a sliding window is
  /// shorter than a sample.
  std::span<int32_t> first_key;
};

/// One step's batch on the device, each (max_microbatches, S, B).
struct DeviceBatch {
  DeviceBatch(const Setup& setup, ops::Arena& device);
  MicroBatch micro_batch(int64_t index) const;

  Tensor tokens, labels, positions, loss_mask, first_key;

 private:
  Share share_;
};

/// Batches of the next steps on the host.
class Batches {
 public:
  Batches(ops::Ops& ops, const DeviceBatch& device);

  /// Arrays to fill; waits until the device has read what they held.
  HostBatch next();
  /// Queued: the first `num_microbatches` of the last next(), to the device. Errors: ShapeError.
  void upload(int64_t num_microbatches);

 private:
  HostBatch slot(int64_t at) const;

  ops::Ops& ops_;
  const DeviceBatch& device_;
  HostArray<int32_t> host_;
  std::array<ops::Mark, kHostSlots> read_;
  int64_t given_ = 0;
};

/// StepStates of the last steps on the host.
class Results {
 public:
  explicit Results(ops::Ops& ops) : ops_(ops), host_(ops, kHostSlots + 1) {}

  /// Queued: the state of the step just queued.
  void download(const Tensor& state);
  /// The state after the step `steps_ago`; waits for it. Errors: ShapeError when it is no longer
  /// kept.
  const ops::StepState& get(int64_t steps_ago);
  /// `state` after all queued work. Waits.
  const ops::StepState& now(const Tensor& state);

 private:
  ops::Ops& ops_;
  HostArray<ops::StepState> host_;  ///< The last element is now()'s.
  std::array<ops::Mark, kHostSlots> written_;
  int64_t steps_ = 0;
};

}  // namespace trainer
