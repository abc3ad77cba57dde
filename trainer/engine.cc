// Engine: planning, memory, the step.
// One class, Parts, is built twice: over PlanOps with memory in plan mode, to learn the sizes, and
// over the real device. Both cut the same tensors in the same order, so the plan is exact.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "trainer/comm/comm.h"
#include "trainer/ops/plan.h"
#include "trainer/schedule/action.h"

namespace trainer {
namespace {

constexpr int kSlots = 2;  ///< Batches and states that the host may hold at once.
constexpr int64_t kLogitsBytes = int64_t{512} << 20;

/// Rows of logits held at once: a multiple of 128 that keeps them under kLogitsBytes, at least 128.
int64_t default_head_rows(const ModelSpec& spec, const EngineOptions& o) {
  const int64_t rows =
      kLogitsBytes / (spec.padded_vocab_size * ops::size_bytes(o.model_dtype)) / 128 * 128;
  return std::min(std::max<int64_t>(rows, 128), o.seq_length * o.micro_batch_size);
}

void check_options(const ModelSpec& spec, const EngineOptions& o) {
  const auto require = [](bool holds, const std::string& why) {
    if (!holds) throw ShapeError("engine: " + why);
  };
  require(o.seq_length > 0 && o.micro_batch_size > 0 && o.max_microbatches > 0,
          "seq_length, micro_batch_size and max_microbatches must be at least 1");
  require(spec.position == Position::none || o.seq_length <= spec.max_position_embeddings,
          "seq_length " + std::to_string(o.seq_length) + ": at most max_position_embeddings " +
              std::to_string(spec.max_position_embeddings));
  require(o.grad_dtype == DType::f32 || o.grad_dtype == o.model_dtype,
          std::string("grad dtype ") + ops::name(o.grad_dtype) + ": fp32 or the model dtype");
  require(o.moment_dtype == DType::f32 || o.moment_dtype == DType::bf16,
          "moments are fp32 or bf16");
}

/// One step's batch on the device, each (max_microbatches, S, B).
struct Staging {
  Tensor tokens, labels, positions, loss_mask, first_key;
};

}  // namespace

struct Engine::Parts {
  const ModelSpec spec;
  const EngineOptions options;
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
  std::unique_ptr<comm::Comm> tp;
  Run run;
  Stage stage;
  EnginePlan plan;
  std::vector<ParamView> views;
  // The host's side.
  std::byte* host_batches = nullptr;
  ops::StepState* host_states = nullptr;
  std::array<ops::Mark, kSlots> batch_read, state_written;
  int64_t batches = 0, steps = 0;
  std::map<int64_t, int64_t>
      captured;  ///< By number of micro-batches; -1: ran once, not captured yet.

  Parts(const ModelSpec& spec, const EngineOptions& options, ops::Ops& ops, ops::Arena memory,
        int64_t pool_bytes, int64_t workspace_bytes);
  ~Parts();
  Parts(const Parts&) = delete;

  void cut();
  Tensor cut_pool(int64_t bytes);
  MicroBatch micro_batch(int64_t index) const;
  int64_t host_batch_bytes() const;
  HostBatch host_batch(int64_t slot) const;
  void upload_batch(int64_t num_microbatches);
  void body(int64_t num_microbatches);
  void evaluate_all(int64_t num_microbatches);
  void draw(const Slot& slot);
  void upload_tables();
  template <class T>
  void upload_now(const Tensor& dst, const T* values);
};

Engine::Parts::Parts(const ModelSpec& spec_, const EngineOptions& options_, ops::Ops& ops_,
                     ops::Arena memory, int64_t pool_bytes, int64_t workspace_bytes)
    : spec(spec_),
      options(options_),
      ops(ops_),
      layout(local_params(spec_, whole_model(spec_)), false),
      arena(std::move(memory)),
      pool((cut(), cut_pool(pool_bytes))),
      weights(layout, flats.model),
      grads(layout, flats.grad),
      tp(comm::make_solo_comm()),
      run{.spec = spec,
          .place = whole_model(spec),
          .ops = ops,
          .pool = pool,
          .weights = weights,
          .grads = grads,
          .tp = *tp,
          .state = state,
          .cosine = cosine,
          .sine = sine,
          .model_dtype = options.model_dtype,
          .seq_length = options.seq_length,
          .micro_batch_size = options.micro_batch_size,
          .head_rows = options.head_rows > 0 ? options.head_rows : default_head_rows(spec, options),
          .num_microbatches = 1,
          .recompute = options.recompute,
          .seed = options.seed,
          .fuse_residual = options.fuse_residual,
          .training = true},
      stage(run, options.max_microbatches) {
  if (workspace_bytes > 0) ops.set_workspace(arena.cut("workspace", DType::u8, {workspace_bytes}));
  for (const Slot& slot : layout.slots())
    views.push_back({.param = &slot.param,
                     .model = slot.in(flats.model),
                     .main = slot.in(flats.main),
                     .m = slot.in(flats.m),
                     .v = slot.in(flats.v),
                     .grad = slot.in(flats.grad)});
}

Engine::Parts::~Parts() {
  ops.synchronize();
  ops.set_workspace({});
  if (host_batches != nullptr) ops.release_host(host_batches);
  if (host_states != nullptr) ops.release_host(host_states);
}

void Engine::Parts::cut() {
  const int64_t n = layout.elements(), batch = options.micro_batch_size, seq = options.seq_length;
  flats.model = arena.cut("model parameters", options.model_dtype, {n});
  flats.main = options.model_dtype == DType::f32 ? flats.model
                                                 : arena.cut("main parameters", DType::f32, {n});
  flats.grad = arena.cut("gradients", options.grad_dtype, {n});
  flats.m = arena.cut("moments", options.moment_dtype, {n});
  flats.v = arena.cut("moments", options.moment_dtype, {n});
  constexpr int64_t kState = sizeof(ops::StepState);
  state = arena.cut("state", DType::u8, {kState});
  eval_state = arena.cut("state", DType::u8, {kState});
  square = arena.cut("state", DType::f32, {1});
  count = arena.cut("state", DType::i64, {1});
  const int64_t all = options.max_microbatches;
  staging.tokens = arena.cut("batch", DType::i32, {all, seq, batch});
  staging.labels = arena.cut("batch", DType::i32, {all, seq, batch});
  staging.positions = arena.cut("batch", DType::i32, {all, seq, batch});
  staging.loss_mask = arena.cut("batch", DType::f32, {all, seq, batch});
  if (options.reset_attention_mask)
    staging.first_key = arena.cut("batch", DType::i32, {all, seq, batch});
  const int64_t half = spec.rotary_dim() / 2;
  if (half == 0) return;
  cosine = arena.cut("rotary tables", DType::f32, {spec.max_position_embeddings, half});
  sine = arena.cut("rotary tables", DType::f32, {spec.max_position_embeddings, half});
}

/// An empty Tensor (a Pool in plan mode) while planning.
Tensor Engine::Parts::cut_pool(int64_t bytes) {
  return bytes == 0 ? Tensor()
                    : arena.cut("activations and gradients in flight", DType::u8, {bytes});
}

MicroBatch Engine::Parts::micro_batch(int64_t index) const {
  const auto part = [&](const Tensor& t) {
    return t ? t.slice(index, 1).view({options.seq_length, options.micro_batch_size}) : Tensor();
  };
  return {.tokens = part(staging.tokens),
          .labels = part(staging.labels),
          .positions = part(staging.positions),
          .loss_mask = part(staging.loss_mask),
          .first_key = part(staging.first_key),
          .index = index,
          .first_sample = index * options.micro_batch_size};
}

int64_t Engine::Parts::host_batch_bytes() const {
  return staging.tokens.bytes() * (options.reset_attention_mask ? 5 : 4);
}

HostBatch Engine::Parts::host_batch(int64_t slot) const {
  const size_t count_ = static_cast<size_t>(staging.tokens.elements());
  int32_t* at = reinterpret_cast<int32_t*>(host_batches + slot * host_batch_bytes());
  HostBatch host{.tokens = {at, count_},
                 .labels = {at + count_, count_},
                 .positions = {at + 2 * count_, count_},
                 .loss_mask = {reinterpret_cast<float*>(at + 3 * count_), count_},
                 .first_key = {}};
  if (options.reset_attention_mask) host.first_key = {at + 4 * count_, count_};
  return host;
}

void Engine::Parts::upload_batch(int64_t num_microbatches) {
  if (batches == 0) throw ShapeError("engine: a step before host_batch()");
  if (num_microbatches < 1 || num_microbatches > options.max_microbatches)
    throw ShapeError("engine: " + std::to_string(num_microbatches) + " micro-batches: 1 to " +
                     std::to_string(options.max_microbatches));
  const int64_t slot = (batches - 1) % kSlots;
  const HostBatch host = host_batch(slot);
  ops.upload(staging.tokens.slice(0, num_microbatches), host.tokens.data());
  ops.upload(staging.labels.slice(0, num_microbatches), host.labels.data());
  ops.upload(staging.positions.slice(0, num_microbatches), host.positions.data());
  ops.upload(staging.loss_mask.slice(0, num_microbatches), host.loss_mask.data());
  if (staging.first_key)
    ops.upload(staging.first_key.slice(0, num_microbatches), host.first_key.data());
  batch_read[static_cast<size_t>(slot)] = ops.mark();
}

/// The part of a step that is the same each time: what a graph records.
void Engine::Parts::body(int64_t num_microbatches) {
  run.training = true;
  run.state = state;
  run.num_microbatches = num_microbatches;
  grads.begin_step();
  for (const Action& action : make_schedule(ScheduleKind::sequential, 0, 1, num_microbatches)) {
    const MicroBatch batch = micro_batch(action.microbatch);
    if (action.kind == Action::Kind::forward) stage.forward(batch);
    if (action.kind == Action::Kind::backward) stage.backward(batch);
  }
  optimizer_step(ops, layout, flats,
                 {.clip_grad = options.clip_grad,
                  .beta1 = options.adam_beta1,
                  .beta2 = options.adam_beta2,
                  .eps = options.adam_eps,
                  .scaler = options.loss_scaler,
                  .seed = options.seed},
                 state, square);
  if (!pool.empty()) throw DeviceError("engine: a step ended with memory still out");
}

void Engine::Parts::evaluate_all(int64_t num_microbatches) {
  run.training = false;
  run.state = eval_state;
  run.num_microbatches = num_microbatches;
  for (int64_t m = 0; m < num_microbatches; ++m) stage.evaluate(micro_batch(m));
}

template <class T>
void Engine::Parts::upload_now(const Tensor& dst, const T* values) {
  void* host = ops.allocate_host(dst.bytes());
  std::memcpy(host, values, static_cast<size_t>(dst.bytes()));
  ops.upload(dst, host);
  ops.synchronize();
  ops.release_host(host);
}

void Engine::Parts::upload_tables() {
  if (!cosine) return;
  const int64_t half = cosine.shape[1];
  std::vector<float> c, s;
  for (int64_t t = 0; t < cosine.shape[0]; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double rate = std::pow(static_cast<double>(spec.rotary_base),
                                   -static_cast<double>(i) / static_cast<double>(half));
      c.push_back(static_cast<float>(std::cos(static_cast<double>(t) * rate)));
      s.push_back(static_cast<float>(std::sin(static_cast<double>(t) * rate)));
    }
  }
  upload_now(cosine, c.data());
  upload_now(sine, s.data());
}

/// Initial values of one parameter, by position in the whole tensor.
void Engine::Parts::draw(const Slot& slot) {
  const ParamSpec& p = slot.param.spec;
  const Tensor out = slot.in(flats.main);
  if (p.init == Init::zeros || p.init == Init::ones) {
    ops.fill({.dst = out, .value = p.init == Init::ones ? 1.0f : 0.0f});
    return;
  }
  const float depth = std::sqrt(2.0f * static_cast<float>(spec.num_layers));
  const float std = spec.init_method_std / (p.init == Init::scaled_normal ? depth : 1.0f);
  const int64_t rows = out.shape[0] / p.split_parts;
  for (int64_t part = 0; part < p.split_parts; ++part)
    ops.normal_fill(
        {.out = out.slice(part * rows, rows),
         .std = std,
         .seed = options.seed,
         .stream = init_stream(p.name),
         .whole_columns = p.shape.back(),
         .first_row = part * (p.shape[0] / p.split_parts) + (p.split == 0 ? slot.param.first : 0),
         .first_column = p.split == 1 ? slot.param.first : 0});
}

namespace {

/// What planning one step gives.
struct Planned {
  EnginePlan plan;
  int64_t pool_bytes = 0, workspace_bytes = 0;
  std::vector<ops::AnyArgs> calls;
};

}  // namespace

/// Runs a step of `microbatches` and an evaluation over PlanOps.
struct Planner {
  static Planned run(const ModelSpec& spec, const EngineOptions& options, ops::Ops* target) {
    Planned result;
    // Two micro-batches show all there is; the rest repeat the second.
    std::array<ops::Cost, 2> costs;
    for (int64_t microbatches : {1, 2}) {
      if (microbatches > options.max_microbatches) break;
      ops::PlanOps ops(target);
      ops.keep_calls(true);
      Engine::Parts parts(spec, options, ops, ops::Arena(), 0, 0);
      parts.body(microbatches);
      costs[static_cast<size_t>(microbatches - 1)] = ops.total();
      parts.evaluate_all(1);
      result.pool_bytes = std::max(parts.pool.peak_bytes(), ops::kAlignment);
      result.workspace_bytes = ops.workspace_bytes();
      result.calls = ops.calls();
      result.plan.total_bytes =
          parts.arena.used_bytes() + ops::align_up(result.pool_bytes) +
          (result.workspace_bytes > 0 ? ops::align_up(result.workspace_bytes) : 0);
      parts.cut_pool(result.pool_bytes);
      if (result.workspace_bytes > 0)
        parts.arena.cut("workspace", DType::u8, {result.workspace_bytes});
      result.plan.report =
          parts.arena.report() + "  of which, where activations are most:\n" + parts.pool.report();
    }
    const double more = static_cast<double>(options.max_microbatches - 1);
    result.plan.step_flops =
        costs[0].flops + (more > 0 ? more * (costs[1].flops - costs[0].flops) : 0);
    result.plan.step_bytes_moved =
        costs[0].bytes + (more > 0 ? more * (costs[1].bytes - costs[0].bytes) : 0);
    return result;
  }
};

EnginePlan Engine::plan(const ModelSpec& spec, const EngineOptions& options, ops::Ops* target) {
  check_options(spec, options);
  return Planner::run(spec, options, target).plan;
}

Engine::Engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops& ops) {
  check_options(spec, options);
  const Planned planned = Planner::run(spec, options, &ops);
  try {
    parts_ = std::make_unique<Parts>(spec, options, ops, ops::Arena(ops, planned.plan.total_bytes),
                                     planned.pool_bytes, planned.workspace_bytes);
  } catch (const DeviceError& error) {
    throw DeviceError(std::string(error.what()) + "\n" + planned.plan.report);
  }
  Parts& p = *parts_;
  p.plan = planned.plan;
  p.host_batches = static_cast<std::byte*>(ops.allocate_host(kSlots * p.host_batch_bytes()));
  p.host_states = static_cast<ops::StepState*>(
      ops.allocate_host(static_cast<int64_t>((kSlots + 1) * sizeof(ops::StepState))));
  for (const Tensor& flat : {p.flats.model, p.flats.main, p.flats.grad, p.flats.m, p.flats.v})
    ops.fill({.dst = flat, .value = 0});
  p.upload_tables();
  ops.prepare(planned.calls);
}

Engine::~Engine() = default;

void Engine::initialise() {
  Parts& p = *parts_;
  for (const Slot& slot : p.layout.slots()) p.draw(slot);
  p.ops.fill({.dst = p.flats.m, .value = 0});
  p.ops.fill({.dst = p.flats.v, .value = 0});
  refresh_model_parameters();
  ops::StepState state;
  state.loss_scale = p.options.loss_scaler.initial;
  state.hysteresis_tracker = p.options.loss_scaler.hysteresis;
  set_state(state);
}

void Engine::refresh_model_parameters() {
  Parts& p = *parts_;
  if (p.flats.model.data != p.flats.main.data)
    p.ops.copy({.dst = p.flats.model, .src = p.flats.main});
}

HostBatch Engine::host_batch() {
  Parts& p = *parts_;
  const int64_t slot = p.batches++ % kSlots;
  p.ops.wait(p.batch_read[static_cast<size_t>(slot)]);
  return p.host_batch(slot);
}

void Engine::step(int64_t iteration, int64_t num_microbatches, float lr, float weight_decay) {
  Parts& p = *parts_;
  p.upload_batch(num_microbatches);
  p.ops.begin_step(
      {.state = p.state, .iteration = iteration, .lr = lr, .weight_decay = weight_decay});
  // The first step of each size runs plainly, so that a backend has built all it needs before
  // recording.
  const auto known = p.captured.find(num_microbatches);
  if (known != p.captured.end() && known->second >= 0) {
    p.ops.launch(known->second);
  } else if (known != p.captured.end() && p.options.capture && p.ops.begin_capture()) {
    p.body(num_microbatches);
    known->second = p.ops.end_capture();
    p.ops.launch(known->second);
  } else {
    p.body(num_microbatches);
    p.captured.emplace(num_microbatches, -1);
  }
  const size_t slot = static_cast<size_t>(p.steps++ % kSlots);
  p.ops.download(p.host_states + slot, p.state);
  p.state_written[slot] = p.ops.mark();
}

ops::StepState Engine::result(int64_t steps_ago) {
  Parts& p = *parts_;
  if (steps_ago < 0 || steps_ago >= kSlots || steps_ago >= p.steps)
    throw ShapeError("engine: result of " + std::to_string(steps_ago) + " steps ago: not kept");
  const size_t slot = static_cast<size_t>((p.steps - 1 - steps_ago) % kSlots);
  p.ops.wait(p.state_written[slot]);
  return p.host_states[slot];
}

float Engine::evaluate(int64_t num_microbatches) {
  Parts& p = *parts_;
  p.upload_batch(num_microbatches);
  p.ops.begin_step({.state = p.eval_state});
  p.evaluate_all(num_microbatches);
  p.ops.download(p.host_states + kSlots, p.eval_state);
  p.ops.synchronize();
  return p.host_states[kSlots].loss;
}

const std::vector<ParamView>& Engine::parameters() const noexcept { return parts_->views; }

std::vector<std::string> Engine::nonfinite_gradients() {
  Parts& p = *parts_;
  std::vector<std::string> names;
  int64_t* host = static_cast<int64_t*>(p.ops.allocate_host(sizeof(int64_t)));
  for (const ParamView& view : p.views) {
    p.ops.count_nonfinite({.out = p.count, .x = view.grad});
    p.ops.download(host, p.count);
    p.ops.synchronize();
    if (*host > 0) names.push_back(view.param->spec.name);
  }
  p.ops.release_host(host);
  return names;
}

ops::StepState Engine::state() {
  Parts& p = *parts_;
  p.ops.download(p.host_states + kSlots, p.state);
  p.ops.synchronize();
  return p.host_states[kSlots];
}

void Engine::set_state(const ops::StepState& state) { parts_->upload_now(parts_->state, &state); }

const EnginePlan& Engine::memory_plan() const noexcept { return parts_->plan; }

ops::Ops& Engine::ops() noexcept { return parts_->ops; }

}  // namespace trainer
