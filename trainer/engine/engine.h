// Engine: one rank's model, optimizer and memory, and the step. The spine (trainer.cc) talks to
// this. Not here: files, flags, data, printing. May include: model/, optim/, parallel/, comm/,
// ops/. Memory is planned by running one step over PlanOps, allocated once, and never again.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/stage.h"
#include "trainer/ops/arena.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/plan.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/groups.h"
#include "trainer/schedule/action.h"
#include "trainer/spec/spec.h"

namespace trainer {

/// What a run of steps is asked for.
struct EngineOptions {
  int64_t seq_length = 0;
  int64_t micro_batch_size = 0;
  int64_t max_microbatches = 1;  ///< Largest number in a step (batch ramp-up may use fewer).
  DType model_dtype = DType::f32;
  DType grad_dtype = DType::f32;
  DType moment_dtype = DType::f32;
  Recompute recompute;
  bool sequence_parallel = false;                     ///< No effect on one tensor-parallel rank.
  ScheduleKind schedule = ScheduleKind::one_f_one_b;  ///< Of the pipeline's stages.
  int chunks = 1;                                     ///< Model chunks a rank, for interleaved.
  /// As place_on() takes them; empty: balanced for the head, or even with several chunks.
  std::vector<int64_t> layers_per_stage;
  int64_t head_rows =
      0;  ///< Rows of logits held at once; 0: chosen so that they take at most 512 MiB.
  bool reset_attention_mask = false;
  OptimizerKind optimizer = OptimizerKind::adamw;
  MuonOptions muon;  ///< query_rows and key_rows follow from the model.
  /// Every token of a step counts the same: HostBatch::loss_mask is weighed (data/batch_loader.h),
  /// where it else is 0 or 1 and a step's loss is the mean of its micro-batches' means.
  bool per_token_loss = false;
  float clip_grad = 1;
  float adam_beta1 = 0.9f, adam_beta2 = 0.999f, adam_eps = 1e-8f;
  LossScaler loss_scaler;
  uint32_t seed = 1234;
  /// Of the linears that end attention and MLP; 0: the spec's, over the root of twice the layers.
  float output_init_std = 0;
  bool fuse_residual =
      true;  ///< Residual additions in the linears' epilogues where no dropout forbids it.
  bool capture = true;  ///< Replay the step as a recorded graph where the device can.
  // Among data-parallel ranks. Source: Rajbhandari et al. 2020 (ZeRO).
  int zero_stage = 0;  ///< Shared: 1 main parameters and moments, 2 gradients, 3 parameters too.
  bool overlap_grad_reduce = false;   ///< Gradients leave during backward.
  bool overlap_param_gather = false;  ///< Updated parameters come during the next forward.
  bool grad_reduce_in_bf16 = false;   ///< Ranks' gradients are added in bf16, not grad_dtype.
  bool cpu_offload = false;  ///< Main parameters and moments lie in page-locked host memory.
  Fp8Options fp8;
};

/// What a run will need, found without doing it.
struct EnginePlan {
  int64_t total_bytes = 0;      ///< Of device memory.
  int64_t host_bytes = 0;       ///< Of page-locked host memory beside it (cpu_offload).
  std::string report;           ///< Table of purposes and MiB.
  double step_flops = 0;        ///< Of one step with max_microbatches, recompute included.
  double step_bytes_moved = 0;  ///< Each operand of each operation once.
};

/// Page-locked host arrays of one step's batch; element (m, s, b) is at (m * S + s) * B + b.
struct HostBatch {
  std::span<int32_t> tokens, labels, positions;
  std::span<float> loss_mask;
  /// Of a query; empty unless reset_attention_mask or a sliding window shorter than a sample asks.
  std::span<int32_t> first_key;
};

/// One state of a parameter's optimizer, by the name it has in checkpoints.
struct StateView {
  const char* name = "";
  Tensor tensor;
};

/// A parameter's tensors, for checkpoints: views that stay valid as long as the Engine. Local shape
/// where the parameter is whole; else the flat range of its elements that this rank keeps (empty
/// where it keeps none).
struct ParamView {
  const LocalParam* param = nullptr;
  Tensor model;                   ///< Model dtype. With ZeRO 3 a layer's is the range `kept`.
  Range kept;                     ///< Of main, states and grad: all, or from ZeRO 1 on a share.
  Tensor main;                    ///< fp32; the same memory as model when model dtype is fp32.
  std::vector<StateView> states;  ///< What the optimizer keeps for it.
  Tensor grad;
  Range saved;  ///< What this rank writes of it: of all ranks exactly one writes each element.
};

/// See the room card. One thread at a time.
class Engine {
 public:
  /// Plans, allocates all memory, prepares the operations. Weights are undefined until initialise()
  /// or a load. Errors: ShapeError for options that do not fit; DeviceError when memory does not
  /// suffice, with the report.
  Engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops& ops);
  /// The same for one rank of many. Every rank of `groups` makes the same calls in the same order.
  Engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops& ops, Groups groups);
  ~Engine();

  /// What a layout cannot be, before any memory is taken: a message of one line naming the numbers,
  /// or empty.
  static std::string refusal(const ModelSpec& spec, const EngineOptions& options,
                             const Topology& topology);
  /// The plan alone, of one rank. `target` is the backend that would run (its workspace counts);
  /// may be null.
  static EnginePlan plan(const ModelSpec& spec, const EngineOptions& options, ops::Ops* target,
                         const Topology& topology = {});
  /// The bytes of that plan's largest step alone: what plan() can only exceed, for a search.
  static int64_t plan_largest(const ModelSpec& spec, const EngineOptions& options,
                              const Topology& topology);
  /// The bytes of that plan without any step: parameters, gradients, the optimizer's state.
  static int64_t plan_states(const ModelSpec& spec, const EngineOptions& options,
                             const Topology& topology);
  /// What one rank queues in a step of max_microbatches, gradients and update, each operation as
  /// long as `times` says. The middle micro-batches are one, repeated in the schedule's order.
  static ops::Timeline timeline(const ModelSpec& spec, const EngineOptions& options,
                                const Topology& topology, ops::OperationTimes& times);

  /// Draws the initial weights and clears moments and state.
  void initialise();
  /// Model parameters again from main parameters: after a load. Every rank calls it.
  void refresh_model_parameters();

  /// Host arrays to fill for the next step() or evaluate(); waits until the device has read them.
  HostBatch host_batch();

  /// Queues one training step over the first `num_microbatches` of the last host_batch(): forward,
  /// backward, judge, update. iteration counts from 1. The host does not wait.
  void step(int64_t iteration, int64_t num_microbatches, float lr, float weight_decay);
  /// State after the last step() (steps_ago = 0), or the one before it (1); waits for it. loss,
  /// grad_norm, skip and scale are there. Asking for 1 after queueing the next step keeps a GPU
  /// busy while the host prints.
  ops::StepState result(int64_t steps_ago = 0);
  /// Mean loss over the first num_microbatches of the last host_batch(), without dropout. Waits.
  float evaluate(int64_t num_microbatches);

  /// All parameters held here, in table order.
  const std::vector<ParamView>& parameters() const noexcept;
  /// Names of parameters of the whole model whose gradient holds a NaN or Inf, table order, the
  /// same on every rank; every rank calls it. Slow; after a bad step. Waits.
  std::vector<std::string> nonfinite_gradients();
  /// values[i] = sum or maximum over all ranks. Every rank calls it with as many values, at most
  /// kExchanged. Waits.
  static constexpr int64_t kExchanged = 64;
  void over_ranks(std::span<float> values, comm::Reduce reduce);
  /// State that is the whole model's and the same on every rank: scales and largest values of FP8
  /// ("scale", "history"), fp32. Empty where there is none. For checkpoints.
  std::vector<StateView> shared_state() const;
  /// shared_state() was loaded: its tensors hold the end of a step, perhaps of a run with other
  /// options. Waits.
  void shared_state_loaded();
  /// Scaler, updates and counters, for checkpoints. Both wait.
  ops::StepState state();
  void set_state(const ops::StepState& state);

  /// Queued work that changes weights or moments waits for `mark`: of a copy beside the steps.
  void before_next_update(const ops::Mark& mark);

  const Topology& topology() const noexcept;
  const EnginePlan& memory_plan() const noexcept;
  /// Most device memory in use so far: memory_plan().total_bytes once steps and evaluations have
  /// been as large as planned.
  int64_t peak_bytes() const noexcept;
  ops::Ops& ops() noexcept;

 private:
  friend struct Planner;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace trainer
