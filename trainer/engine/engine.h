// Engine: one rank's model, optimizer and memory, and the training step; the interface that the
// spine (trainer.cc) uses. Not here: files, flags, data, printing; what a step queues (step.h),
// what it needs (plan.h). May include: model/, optim/, parallel/, comm/, ops/. Memory is planned by
// running one step over PlanOps, and is allocated only once.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/engine/batches.h"
#include "trainer/engine/plan.h"
#include "trainer/engine/recording.h"
#include "trainer/engine/step.h"

namespace trainer {

/// See the room card. One thread at a time.
class Engine {
 public:
  /// Plans, allocates all memory, prepares the operations. Weights are undefined until initialise()
  /// or a load. Errors: ShapeError for options that do not fit; DeviceError when there is not
  /// enough memory.
  /// Every rank of `groups` makes the same calls in the same order.
  Engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops& ops,
         Groups groups = solo_groups());

  /// Draws the initial weights and clears moments and state.
  void initialise();
  /// Recomputes model parameters from main parameters, after a load. Every rank calls it.
  void refresh_model_parameters();

  /// Host arrays to fill for the next step() or evaluate(); waits until the device has read them.
  HostBatch host_batch() { return batches_.next(); }

  /// Queues one training step over the first `num_microbatches` of the last host_batch(): forward,
  /// backward, the check of loss and gradients, update. iteration counts from 1. The host does not
  /// wait.
  void step(int64_t iteration, int64_t num_microbatches, float lr, float weight_decay);
  /// State after the last step() (steps_ago = 0), or the one before it (1), with loss, grad_norm,
  /// skip and scale; waits for it. Asking for 1 after queueing the next step keeps a GPU busy while
  /// the host prints.
  ops::StepState result(int64_t steps_ago = 0) { return results_.get(steps_ago); }
  /// Mean loss over the first num_microbatches of the last host_batch(), without dropout. Waits.
  float evaluate(int64_t num_microbatches);

  /// All parameters held here, in table order.
  const std::vector<ParamView>& parameters() const noexcept { return step_.parameters().views(); }
  /// Names of parameters of the whole model whose gradient contains a NaN or Inf, in table order,
  /// the same on every rank; every rank calls it. Slow; for use after a bad step. Waits.
  std::vector<std::string> nonfinite_gradients();
  /// values[i] = sum or maximum over all ranks. Every rank calls it with the same number of values,
  /// at most kExchanged. Waits.
  static constexpr int64_t kExchanged = Exchange::kNumbers;
  void over_ranks(std::span<float> values, comm::Reduce reduce);
  /// State of the whole model that is the same on every rank: FP8's scales and largest values
  /// ("scale", "history"), fp32. Empty without FP8 state. For checkpoints.
  std::vector<StateView> shared_state() const;
  /// To be called after shared_state() was loaded: its tensors contain the state after a step,
  /// perhaps of a run with other options. Waits.
  void shared_state_loaded() { step_.fp8().resume(ops_); }
  /// Loss scaler, updates and counters, for checkpoints. Both wait.
  ops::StepState state() { return results_.now(step_.state()); }
  void set_state(const ops::StepState& state);

  /// The next queued work that changes weights or moments waits for `mark`, the end of a copy that
  /// runs beside the steps.
  void before_next_update(const ops::Mark& mark) { before_update_ = mark; }

  const Topology& topology() const noexcept { return setup_.topology; }
  /// How data-parallel ranks communicate: Comm::describe() of their group.
  std::string describe_data_group() const { return step_.groups().data->describe(); }
  const EnginePlan& memory_plan() const noexcept { return plan_; }
  /// The most device memory in use so far. It equals memory_plan().total_bytes once steps and
  /// evaluations have been as large as planned.
  int64_t peak_bytes() const noexcept;
  ops::Ops& ops() noexcept { return ops_; }

 private:
  ops::Ops& ops_;
  const Setup setup_;
  const EnginePlan plan_;
  Step step_;
  Batches batches_;
  Results results_;
  Recording gradients_, update_;
  ops::Mark before_update_;     ///< End of a copy that the next update must not overtake.
  bool weights_stale_ = false;  ///< Other ranks' updated shares have not arrived yet.
};

}  // namespace trainer
