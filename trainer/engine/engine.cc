// Engine: allocates the planned memory, and implements the interface that the spine uses.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/engine.h"

#include <utility>

#include "trainer/engine/host_array.h"

namespace trainer {
namespace {

EnginePlan plan_and_prepare(const Setup& setup, ops::Ops& ops) {
  std::vector<ops::AnyArgs> calls;
  const EnginePlan plan = plan_engine(setup, &ops, &calls);
  // Before the model's memory is allocated: timing algorithms allocates some, and frees it.
  ops.prepare(calls);
  return plan;
}

/// Errors: DeviceError that leads to the plan's report.
StepMemory allocate(const EnginePlan& plan, ops::Ops& ops) {
  try {
    return {.device = ops::Arena(ops, plan.total_bytes),
            .host = ops::Arena::on_host(ops, plan.host_bytes),
            .pool_bytes = plan.pool_bytes,
            .workspace_bytes = plan.workspace_bytes};
  } catch (const DeviceError& error) {
    throw DeviceError(std::string(error.what()) + "; --dry-run shows what takes how much");
  }
}

}  // namespace

Engine::Engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops& ops, Groups groups)
    : ops_(ops),
      setup_(spec, options, groups.topology),
      plan_(plan_and_prepare(setup_, ops)),
      step_(setup_, std::move(groups), ops, allocate(plan_, ops)),
      batches_(ops, step_.batch()),
      results_(ops),
      gradients_(ops, options.capture),
      update_(ops, options.capture) {
  step_.clear();
}

void Engine::initialise() {
  step_.initialise();
  const LossScaler& scaler = setup_.options.loss_scaler;
  ops::StepState state;
  state.loss_scale = scaler.initial;
  state.hysteresis_tracker = scaler.hysteresis;
  set_state(state);
}

void Engine::refresh_model_parameters() {
  step_.refresh_model_parameters();
  weights_stale_ = false;
}

void Engine::step(int64_t iteration, int64_t num_microbatches, float lr, float weight_decay) {
  batches_.upload(num_microbatches);
  ops_.run(ops::BeginStep{
      .state = step_.state(), .iteration = iteration, .lr = lr, .weight_decay = weight_decay});
  // The update is recorded separately, because it must not overtake a copy of the weights.
  gradients_.run(num_microbatches, [&] { step_.make_gradients(num_microbatches); });
  ops_.follow(std::exchange(before_update_, ops::Mark()));
  update_.run(num_microbatches, [&] { step_.apply_gradients(); });
  weights_stale_ = setup_.in_shares() && setup_.options.overlap_param_gather;
  results_.download(step_.state());
}

float Engine::evaluate(int64_t num_microbatches) {
  batches_.upload(num_microbatches);
  ops_.run(ops::BeginStep{.state = step_.eval_state()});
  if (std::exchange(weights_stale_, false)) step_.gather_weights();
  step_.evaluate(num_microbatches);
  return results_.now(step_.eval_state()).loss;
}

std::vector<std::string> Engine::nonfinite_gradients() {
  return step_.exchange().nonfinite_gradients(ops_, *step_.groups().world, parameters());
}

void Engine::over_ranks(std::span<float> values, comm::Reduce reduce) {
  step_.exchange().over_ranks(ops_, *step_.groups().world, values, reduce);
}

std::vector<StateView> Engine::shared_state() const {
  const Fp8& fp8 = step_.fp8();
  if (!fp8.options().on() || !fp8.history()) return {};
  return {{"scale", fp8.scale()}, {"history", fp8.history()}};
}

void Engine::set_state(const ops::StepState& state) { upload_now(ops_, step_.state(), &state); }

int64_t Engine::peak_bytes() const noexcept {
  return plan_.total_bytes - ops::align_up(plan_.pool_bytes) +
         ops::align_up(step_.pool().peak_bytes());
}

}  // namespace trainer
