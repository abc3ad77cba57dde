// Between an engine and a checkpoint: the engine's tensors as pieces in host memory, and back. The
// one place where device memory and checkpoint files meet; neither knows the other.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/engine.h"

namespace trainer {

/// A copy of an engine's tensors in host memory, taken between two steps.
/// State: owns one host block, made at the first take() and used again.
class Snapshot {
 public:
  explicit Snapshot(Engine& engine) : engine_(engine) {}
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  /// Queues copies of all parameters and, if asked, of what the optimizer keeps for them.
  /// Done: the bytes of shards() are there when wait() has returned; steps queued later do not
  /// change them. Errors: DeviceError.
  void take(bool optimizer);

  /// Blocks until the copies are there; any thread may call it.
  void wait() const;

  /// The pieces, as a checkpoint takes them. Valid until the next take().
  const std::vector<ShardSource>& shards() const noexcept { return shards_; }

 private:
  void add(const std::string& group, const LocalParam& param, const Tensor& tensor);

  Engine& engine_;
  std::byte* block_ = nullptr;
  int64_t capacity_bytes_ = 0;
  int64_t used_bytes_ = 0;
  ops::Mark done_;
  std::vector<ShardSource> shards_;
};

/// What this rank holds of a parameter, as boxes of the whole in the order of local memory.
std::vector<Piece> local_pieces(const LocalParam& param);

/// Fills an engine's parameters (main parameters, from whichever precision the checkpoint has) and,
/// if asked, the optimizer's moments; model parameters follow. Every element is checked.
/// Errors: indexed::FormatError naming file, tensor and why; then the engine's weights are
/// undefined.
void load_tensors(Engine& engine, Checkpoint& checkpoint, bool optimizer);

/// Fills one tensor of any float dtype with a parameter's weights: the stored ones where they have
/// that dtype, else the main ones, rounded. Waits. Errors: as load_tensors.
void load_weight(ops::Ops& ops, Checkpoint& checkpoint, const LocalParam& param,
                 const Tensor& target);

/// The scaler's and optimizer's numbers.
void store_state(const ops::StepState& from, RunState& to) noexcept;
ops::StepState restore_state(const RunState& from) noexcept;

}  // namespace trainer
