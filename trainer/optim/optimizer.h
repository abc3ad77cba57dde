// Optimizer: gradient norm, the check of a step's loss and gradients, and the update of this rank's
// part of the flat memories. Not here: the learning rate (lr_schedule.h), the formulas
// (ops/optimizer.h), Muon's step of a matrix (muon.h), the reduction of gradients
// (parallel/grads.h). May include: ops/, comm/comm.h, parallel/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <vector>

#include "trainer/ops/arena.h"
#include "trainer/ops/ops.h"
#include "trainer/optim/muon_options.h"
#include "trainer/parallel/flat_memory.h"
#include "trainer/parallel/groups.h"

namespace trainer {

/// Dynamic or constant loss scale; constant 1 for fp32 and bf16. Source: Megatron-LM
/// grad_scaler.py.
struct LossScaler {
  bool dynamic = false;
  float initial = 1;
  float min = 1;
  int32_t window = 1000;
  int32_t hysteresis = 2;
};

/// A number that the optimizer keeps for each element of a parameter. Memory, shares of
/// data-parallel ranks, offload, checkpoints and the plan know these states only through this list.
struct StateSpec {
  const char* name;                                        ///< Group in checkpoints.
  const char* purpose;                                     ///< Name in the memory report.
  FlatMemory::Buckets buckets = FlatMemory::Buckets::all;  ///< Which parameters have it.
  bool always_fp32 = false;                                ///< Otherwise it has the moments' dtype.
};
/// AdamW's: exp_avg and exp_avg_sq, as torch.optim names them. Muon has momentum_buffer for
/// matrices, and AdamW's two for the rest.
std::span<const StateSpec> optimizer_states(OptimizerKind kind) noexcept;
/// Whether `state` is kept for `param`, for Muon and AdamW alike.
bool keeps(const StateSpec& state, const ParamSpec& param) noexcept;
/// How matrices must be arranged for this optimizer. `zero_stage` is 0 if nothing is divided into
/// shares.
Matrices matrices_for(OptimizerKind kind, int zero_stage) noexcept;

/// The flat memories of a rank.
struct Flats {
  FlatMemory model;  ///< Model dtype.
  FlatMemory main;   ///< fp32; the same memory as model when that is fp32 and on the device.
  FlatMemory grad;   ///< Grad dtype.
  std::vector<FlatMemory> states;  ///< One per StateSpec.
};

/// The options of an update.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  MuonOptions muon;
  float clip_grad = 1;
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  LossScaler scaler;
  uint32_t seed = 0;
  bool in_shares = false;  ///< Each data-parallel rank updates its share (ZeRO 1 and up).
};

/// Parts of the gradient memory whose squares this rank adds to the norm, so that all ranks
/// together count each parameter of the model once: its data-parallel share, without the copies of
/// parameters that every tensor-parallel rank has, and without the last stage's copy of tied
/// embeddings.
std::vector<Tensor> counted_parts(const FlatLayout& layout, const FlatMemory& grad,
                                  const Topology& topology);

/// Queues the check of one step: clip, skip or stop. sums (2) fp32 is scratch: the squares of
/// `counted`, and this rank's term of the loss (state.loss on tensor-parallel rank 0 of the last
/// stage, as a part of the mean over data-parallel ranks), both summed over all ranks. Afterwards
/// state.loss is the loss of the whole batch, and state is the same on every rank.
void judge(ops::Ops& ops, const Groups& groups, const std::vector<Tensor>& counted,
           const OptimizerOptions& options, const Tensor& state, const Tensor& sums);

/// Queues only the sum of the loss over ranks, as in judge().
void share_loss(ops::Ops& ops, const Groups& groups, const Tensor& state, const Tensor& sums);

/// Everything that an update needs.
struct Update {
  ops::Ops& ops;
  ops::Pool& pool;     ///< Scratch memory for matrices.
  comm::Comm& tensor;  ///< The tensor-parallel ranks, among which a matrix may be divided.
  const FlatLayout& layout;
  const Share& share;
  const Flats& flats;
  const OptimizerOptions& options;
  Tensor state;

  /// The part of a bucket that this rank updates: all of it, or its share.
  Tensor part(const FlatMemory& flat, int bucket) const {
    return options.in_shares ? flat.share(bucket) : flat.bucket(bucket);
  }
  /// Whether model parameters and main parameters are different memory.
  bool model_apart() const { return flats.model.tensor().data != flats.main.tensor().data; }
};

/// Queues AdamW over every bucket; with Muon, muon.h's update over the buckets of matrices.
void update(const Update& u);

}  // namespace trainer
