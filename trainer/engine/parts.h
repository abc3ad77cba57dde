// Engine::Parts: what an Engine owns, and the pieces of its step. Built twice: over PlanOps with
// memory in plan mode, to learn the sizes, and over the real device; both cut the same tensors in
// the same order, so the plan is exact. Not here: the public face (trainer/engine.h). May include:
// what engine.h may. parts.cc: memory and batches; step.cc: the step; walk.cc:
// its schedule; plan.cc: planning.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "trainer/engine.h"
#include "trainer/parallel/groups.h"

namespace trainer {

/// Batches and states that the host may hold at once.
inline constexpr int kSlots = 2;

/// One step's batch on the device, each (max_microbatches, S, B).
struct Staging {
  Tensor tokens, labels, positions, loss_mask, first_key;
};

/// See the room card.
struct Engine::Parts {
  const ModelSpec spec;
  const EngineOptions options;
  const Groups groups;
  const std::vector<Place> places;  ///< Of this rank's model chunks.
  ops::Ops& ops;
  FlatLayout layout;
  ops::Arena arena;
  Flats flats;
  Tensor state, eval_state, square, count;
  Staging staging;
  Tensor cosine, sine;
  ops::Pool pool;
  Weights weights;
  Grads grads;
  Run run;
  std::vector<Stage> stages;  ///< One a chunk.
  EnginePlan plan;
  int64_t pool_bytes = 0;
  std::vector<ParamView> views;
  // The host's side.
  std::byte* host_batches = nullptr;
  ops::StepState* host_states = nullptr;
  std::array<ops::Mark, kSlots> batch_read, state_written;
  int64_t batches = 0, steps = 0;
  std::map<int64_t, int64_t>
      captured;  ///< By number of micro-batches; -1: ran once, not captured yet.

  Parts(const ModelSpec& spec, const EngineOptions& options, Groups groups, ops::Ops& ops,
        ops::Arena memory, int64_t pool_bytes, int64_t workspace_bytes);
  ~Parts();
  Parts(const Parts&) = delete;

  void cut();
  Tensor cut_pool(int64_t bytes);
  MicroBatch micro_batch(int64_t index) const;
  int64_t host_batch_bytes() const;
  HostBatch host_batch(int64_t slot) const;
  void upload_batch(int64_t num_microbatches);
  void body(int64_t num_microbatches);
  class Walk;
  void walk(ScheduleKind kind, int64_t num_microbatches);
  Tensor take_stream();
  void sum_shared_gradients();
  void evaluate_all(int64_t num_microbatches);
  void draw(const Slot& slot);
  void upload_tables();
  template <class T>
  void upload_now(const Tensor& dst, const T* values);
};

template <class T>
void Engine::Parts::upload_now(const Tensor& dst, const T* values) {
  void* host = ops.allocate_host(dst.bytes());
  std::memcpy(host, values, static_cast<size_t>(dst.bytes()));
  ops.upload(dst, host);
  ops.synchronize();
  ops.release_host(host);
}

/// What planning one step gives.
struct Planned {
  EnginePlan plan;
  int64_t pool_bytes = 0, workspace_bytes = 0;
  std::vector<ops::AnyArgs> calls;
};

/// Runs a step of one and of two micro-batches and an evaluation over PlanOps.
struct Planner {
  static Planned run(const ModelSpec& spec, const EngineOptions& options, const Topology& topology,
                     ops::Ops* target);
};

}  // namespace trainer
