// Between an engine and a checkpoint: copies the engine's tensors to pieces in host memory, and
// back. The only code that uses both device memory and checkpoint files.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/engine/engine.h"

namespace trainer {

/// A copy in host memory of the engine's tensors that this rank saves, taken between two steps.
/// State: owns one host block, used by every take().
class Snapshot {
 public:
  /// Copies parameters and, if `optimizer`, the optimizer's state. With `ahead` a GPU's block is
  /// allocated during the first steps, since pinning it takes seconds; else at the first take().
  Snapshot(Engine& engine, bool optimizer, bool ahead);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  /// Queues the copies, which run during the next step's forward and backward; its update waits.
  /// Done: the bytes of shards() are valid when wait() has returned; steps queued later do not
  /// change them. Errors: DeviceError.
  void take();

  /// Blocks until the copies are done; any thread may call it.
  void wait() const;

  /// The pieces for a checkpoint. Valid until the next take().
  const std::vector<ShardSource>& shards() const noexcept { return shards_; }

 private:
  void add(const std::string& group, const ParamView& view, const Tensor& tensor, int64_t begin);
  void add_shared(const StateView& state);
  int64_t needed_bytes() const;

  Engine& engine_;
  bool optimizer_;
  std::vector<ops::HostCopy> copies_;
  std::shared_future<void*> block_;
  int64_t used_bytes_ = 0;
  ops::Mark done_;
  std::vector<ShardSource> shards_;
};

/// Elements `range` of a local parameter, in the order of local memory, as pieces of the whole.
std::vector<Piece> local_pieces(const LocalParam& param, const Range& range);

/// Loads this rank's part of an engine's parameters (main parameters, from whichever precision the
/// checkpoint has) and, if `optimizer`, the optimizer's moments; model parameters follow. Reads
/// only what is needed, from any layout, and verifies every block that it reads. Every rank calls
/// it. Errors: indexed::FormatError naming file, tensor and why; then the engine's weights are
/// undefined.
void load_tensors(Engine& engine, Checkpoint& checkpoint, bool optimizer);

/// Fills one tensor of any float dtype with a parameter's weights: the stored ones if they have
/// that dtype, else the main ones, rounded. Waits. Errors: as load_tensors.
void load_weight(ops::Ops& ops, Checkpoint& checkpoint, const LocalParam& param,
                 const Tensor& target);

/// The scaler's and optimizer's numbers.
void store_state(const ops::StepState& from, RunState& to) noexcept;
ops::StepState restore_state(const RunState& from) noexcept;

}  // namespace trainer
