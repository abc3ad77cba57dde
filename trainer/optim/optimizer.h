// Optimizer: gradient norm, judgement and AdamW over what this rank updates of the flat memories.
// Not here: the rate (lr_schedule.h), the formulas (ops/optimizer.h), bringing gradients together
// (parallel/grads.h). May include: ops/, comm/comm.h, parallel/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <vector>

#include "trainer/ops/ops.h"
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
  const char* name;  ///< Its group in checkpoints.
};
/// AdamW's: exp_avg and exp_avg_sq, as torch.optim names them.
std::span<const StateSpec> optimizer_states() noexcept;

/// The flat memories of a rank.
struct Flats {
  FlatMemory model;  ///< Model dtype.
  FlatMemory main;   ///< fp32; the same memory as model when that is fp32 and on the device.
  FlatMemory grad;   ///< Grad dtype.
  std::vector<FlatMemory> states;  ///< One a StateSpec; fp32 or bf16.
};

/// What an update is asked for.
struct OptimizerOptions {
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

/// Queues AdamW over every bucket or, in shares, over this rank's share of each.
void update(ops::Ops& ops, const FlatLayout& layout, const Share& share, const Flats& flats,
            const OptimizerOptions& options, const Tensor& state);

}  // namespace trainer
