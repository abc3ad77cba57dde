// Engine::Parts: what an Engine owns, and the pieces of its step. Built twice: over PlanOps with
// memory in plan mode, to learn the sizes, and over the real device; both cut the same tensors in
// the same order, so the plan is exact. Not here: the public face (trainer/engine/engine.h). May
// include: what engine.h may. parts.cc: memory and batches; step.cc: the step; walk.cc: its
// schedule; plan.cc: planning.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "trainer/engine/engine.h"
#include "trainer/parallel/groups.h"

namespace trainer {

/// Batches and states that the host may hold at once.
inline constexpr int kSlots = 2;

/// One step's batch on the device, each (max_microbatches, S, B).
struct Staging {
  Tensor tokens, labels, positions, loss_mask, first_key;
};

/// What the actions of a planned step queue, kept to be repeated.
class Tape {
 public:
  /// Micro-batches that show all kinds: the first, those between, the last.
  static constexpr int64_t kRecorded = 3;

  explicit Tape(ops::Timeline& timeline) : timeline_(timeline) {}
  /// From here on actions are those of a step of `microbatches`, and queue what was kept.
  void repeat_for(int64_t microbatches) noexcept { microbatches_ = microbatches; }
  bool repeats() const noexcept { return microbatches_ > 0; }
  void begin() noexcept { begin_ = position(); }
  void end(const Action& action);
  void repeat(const Action& action);
  /// Where the schedule's actions lie in the recording.
  size_t walk_begin = 0, walk_end = 0;
  /// What is queued from here on goes into entries of its own.
  size_t position() noexcept {
    timeline_.cut();
    return timeline_.entries().size();
  }

 private:
  using Key = std::tuple<Action::Kind, int, int>;
  static Key key_of(const Action& action, int64_t microbatches);

  ops::Timeline& timeline_;
  int64_t microbatches_ = 0;
  size_t begin_ = 0;
  std::map<Key, std::vector<ops::Timeline::Entry>> kept_;
};

/// See the room card.
struct Engine::Parts {
  const ModelSpec spec;
  const EngineOptions options;
  const Groups groups;
  const std::vector<Place> places;  ///< Of this rank's model chunks.
  ops::Ops& ops;
  const Share share;  ///< Among the data-parallel ranks.
  FlatLayout layout;
  Flats flats;
  ops::Arena arena, host_arena;
  Tensor state, eval_state, sums, count, exchanged, param_counts;
  std::array<Tensor, Weights::kBuffers> layer_buffers;
  Staging staging;
  Tensor cosine, sine;
  Fp8 fp8;
  Weights weights;
  ops::Pool pool;
  Grads grads;
  std::vector<Tensor> counted;
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
  struct Captured {
    int64_t gradients = -1, update = -1;  ///< -1: ran once, not captured yet.
  };
  std::map<int64_t, Captured> captured;  ///< By number of micro-batches.
  ops::Mark before_update;               ///< Of a copy that the next update must not overtake.
  bool stale = false;                    ///< Other ranks' shares of the weights are not here yet.
  Tape* tape = nullptr;                  ///< Of a step that is planned for its time.

  /// Blocks of memory, in plan mode or as large as was planned.
  struct Memory {
    ops::Arena device, host;
    int64_t pool_bytes = 0, workspace_bytes = 0;
  };
  Parts(const ModelSpec& spec, const EngineOptions& options, Groups groups, ops::Ops& ops,
        Memory memory);
  ~Parts();
  Parts(const Parts&) = delete;

  bool in_shares() const noexcept { return options.zero_stage > 0 && share.size > 1; }
  OptimizerOptions optimizer_options() const;
  void cut();
  void cut_flats();
  void cut_fp8();
  Tensor cut_pool(int64_t bytes);
  ParamView view_of(const Slot& slot) const;
  MicroBatch micro_batch(int64_t index) const;
  /// Whether a query may see fewer keys than all before it.
  bool keys_hidden() const noexcept {
    return options.reset_attention_mask ||
           (spec.sliding_window > 0 && spec.sliding_window < options.seq_length);
  }
  int64_t host_batch_bytes() const;
  HostBatch host_batch(int64_t slot) const;
  void upload_batch(int64_t num_microbatches);
  /// The two halves of a step: all that changes no weights, and the update.
  void make_gradients(int64_t num_microbatches);
  void apply_gradients();
  void refresh();
  class Walk;
  void walk(ScheduleKind kind, int64_t num_microbatches);
  PoolTensor take_stream();
  void sum_tied_gradients();
  void sum_gradients_of_rows();
  void evaluate_all(int64_t num_microbatches);
  void clear_states();
  void draw(const Slot& slot);
  void draw_rows(const Slot& slot, const Tensor& out, int64_t first);
  void upload_tables();
  /// values = reduced over all ranks, by way of `buffer`. Waits.
  void over_ranks(const Tensor& buffer, std::span<float> values, comm::Reduce reduce);
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
  static int64_t largest(const ModelSpec& spec, const EngineOptions& options,
                         const Topology& topology);
  static ops::Timeline timeline(const ModelSpec& spec, const EngineOptions& options,
                                const Topology& topology, ops::OperationTimes& times);
};

}  // namespace trainer
