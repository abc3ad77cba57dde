// Step: one rank's model in memory, and the operations and collectives that the two halves of a
// training step, and an evaluation, queue. Built twice: over PlanOps with memory in plan mode, to
// learn the sizes (plan.h), and over the real device. Both allocate the same tensors in the same
// order, so the plan is exact. Not here: the host's side (batches.h, engine.h). May include: what
// engine.h may.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/engine/batches.h"
#include "trainer/engine/exchange.h"
#include "trainer/engine/parameters.h"
#include "trainer/engine/pipeline.h"
#include "trainer/model/stage.h"
#include "trainer/parallel/groups.h"

namespace trainer {

/// The blocks that a rank's memory is allocated from; the default value is in plan mode.
struct StepMemory {
  ops::Arena device, host;
  int64_t pool_bytes = 0, workspace_bytes = 0;
};

/// See the room card. One thread at a time.
class Step {
 public:
  /// `setup` must outlive it. Every rank of `groups` makes the same calls in the same order.
  /// Errors: DeviceError.
  Step(const Setup& setup, Groups groups, ops::Ops& ops, StepMemory memory = {});
  ~Step();
  Step(const Step&) = delete;

  /// Resets all memory to its state before the first step, with weights 0. Waits.
  void clear();
  /// Queued: sets initial weights and states.
  void initialise();
  /// Queued: recomputes model parameters from main parameters, those of other ranks too.
  void refresh_model_parameters();
  /// Queued: gathers the shares of weights that other ranks have updated.
  void gather_weights();

  /// Queued: forward and backward of the batch's first `num_microbatches`, and the check of loss
  /// and gradients. Changes no weights and no optimizer states.
  void make_gradients(int64_t num_microbatches);
  /// Queued: the update with the gradients that make_gradients() left.
  void apply_gradients();
  /// Queued: the mean loss over the first `num_microbatches`, without dropout, into eval_state().
  void evaluate(int64_t num_microbatches);

  /// make_gradients() in its three parts, for a plan that records what happens between them.
  /// `compute` is called for each action of that pipeline stage in turn.
  void begin_gradients(int64_t num_microbatches);
  void run_schedule(ScheduleKind kind, int stage, int64_t num_microbatches,
                    const ComputeAction& compute);
  void finish_gradients();
  /// One action of a training step, or of an evaluation.
  PoolTensor compute(const Action& action, PoolTensor input, int64_t num_microbatches,
                     bool training = true);
  /// Memory for a tensor that is sent between stages; model dtype, (S, B, H) or (S/tp, B, H).
  PoolTensor take_stream();

  const Groups& groups() const noexcept { return groups_; }
  const Parameters& parameters() const noexcept { return parameters_; }
  const DeviceBatch& batch() const noexcept { return batch_; }
  const Tensor& state() const noexcept { return state_; }
  const Tensor& eval_state() const noexcept { return eval_state_; }
  const Exchange& exchange() const noexcept { return exchange_; }
  Fp8& fp8() noexcept { return fp8_; }
  const Fp8& fp8() const noexcept { return fp8_; }
  const ops::Pool& pool() const noexcept { return pool_; }
  const StepMemory& memory() const noexcept { return memory_; }

 private:
  Tensor cut_rest();
  void cut_fp8();
  void cut_fp8_parts();
  Run make_run();
  void sum_tied_gradients();
  void sum_gradients_of_rows();

  const Setup& setup_;
  ops::Ops& ops_;
  StepMemory memory_;  ///< Outlives groups_, whose ranks may access each other's.
  const Groups groups_;
  // Allocated from memory_ in this order.
  const Parameters parameters_;
  const Tensor state_, eval_state_, sums_;
  const Exchange exchange_;
  const DeviceBatch batch_;
  Fp8 fp8_;
  Tensor cosine_, sine_;  ///< Rotary tables.
  Weights weights_;
  ops::Pool pool_;
  Grads grads_;
  const std::vector<Tensor> counted_;  ///< Tensors that count in the gradient norm.
  const Run run_;
  std::vector<Stage> stages_;  ///< One per chunk.
};

}  // namespace trainer
