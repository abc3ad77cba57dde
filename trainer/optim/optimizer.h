// Optimizer: gradient norm, judgement and the update of what this rank has of the flat memories.
// Not here: the rate (lr_schedule.h), the formulas (ops/optimizer.h), Muon's way with a matrix
// (muon.h), bringing gradients together (parallel/grads.h). May include: ops/, comm/comm.h,
// parallel/.
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
/// data-parallel ranks, offload, checkpoints and the plan walk this list and know nothing else.
struct StateSpec {
  const char* name;                                        ///< Its group in checkpoints.
  const char* purpose;                                     ///< In the report of memory.
  FlatMemory::Buckets buckets = FlatMemory::Buckets::all;  ///< For which parameters.
  bool always_fp32 = false;                                ///< Else of the dtype that moments have.
};
/// AdamW's: exp_avg and exp_avg_sq, as torch.optim names them. Muon has momentum_buffer for
/// matrices, and AdamW's two for the rest.
std::span<const StateSpec> optimizer_states(OptimizerKind kind) noexcept;
/// Whether it is kept for `param`, in lists of Muon and AdamW alike.
bool keeps(const StateSpec& state, const ParamSpec& param) noexcept;
/// Where the matrices must lie for it. `zero_stage` is 0 where nothing is shared.
Matrices matrices_for(OptimizerKind kind, int zero_stage) noexcept;

/// The flat memories of a rank.
struct Flats {
  FlatMemory model;  ///< Model dtype.
  FlatMemory main;   ///< fp32; the same memory as model when that is fp32 and on the device.
  FlatMemory grad;   ///< Grad dtype.
  std::vector<FlatMemory> states;  ///< One a StateSpec.
};

/// What an update is asked for.
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
/// together count each parameter of the model once: of its data-parallel share, without copies of
/// parameters that every tensor-parallel rank holds, and of tied embeddings on the last stage.
std::vector<Tensor> counted_parts(const FlatLayout& layout, const FlatMemory& grad,
                                  const Topology& topology);

/// Queues the judgement of one step. sums (2) fp32 is scratch: the squares of `counted`, and this
/// rank's share of the loss (state.loss on tensor rank 0 of the last stage, as a part of the mean
/// over data-parallel ranks), summed over all ranks. Then state.loss is the loss of the whole
/// batch, and state is the same on every rank.
void judge(ops::Ops& ops, const Groups& groups, const std::vector<Tensor>& counted,
           const OptimizerOptions& options, const Tensor& state, const Tensor& sums);

/// Queues only the loss' sum over ranks, as judge().
void share_loss(ops::Ops& ops, const Groups& groups, const Tensor& state, const Tensor& sums);

/// An update, and all that it needs.
struct Update {
  ops::Ops& ops;
  ops::Pool& pool;     ///< Scratch memory for matrices.
  comm::Comm& tensor;  ///< Tensor-parallel ranks, which may share a matrix.
  const FlatLayout& layout;
  const Share& share;
  const Flats& flats;
  const OptimizerOptions& options;
  Tensor state;

  /// What this rank updates of a bucket: all or, in shares, its share.
  Tensor part(const FlatMemory& flat, int bucket) const {
    return options.in_shares ? flat.share(bucket) : flat.bucket(bucket);
  }
  /// Model parameters are not main parameters.
  bool model_apart() const { return flats.model.tensor().data != flats.main.tensor().data; }
};

/// Queues AdamW over every bucket and, of Muon's, what muon.h says over those of matrices.
void update(const Update& u);

}  // namespace trainer
