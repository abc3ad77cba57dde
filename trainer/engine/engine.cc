// Engine: what the spine sees.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/engine.h"

#include <algorithm>
#include <utility>

#include "trainer/engine/parts.h"

namespace trainer {
namespace {

void check_options(const ModelSpec& spec, const EngineOptions& o, const Topology& topology) {
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
  require(o.muon.product_dtype == DType::bf16 || o.muon.product_dtype == DType::f32,
          "Muon's products are bf16 or fp32");
  require(o.muon.steps >= 1, "Muon takes at least one step of its iteration");
  require(o.zero_stage >= 0 && o.zero_stage <= 3, "zero_stage is 0 to 3");
  const std::string refusal = Engine::refusal(spec, o, topology);
  require(refusal.empty(), refusal);
}

}  // namespace

namespace {

/// FP8 products have sizes that are multiples of 16.
std::string fp8_refusal(const ModelSpec& spec, const EngineOptions& o, const Topology& t) {
  for (const auto& [what, n] :
       {std::pair("micro_batch_size * seq_length", o.micro_batch_size * o.seq_length),
        std::pair("hidden_size", spec.hidden_size),
        std::pair("qkv size / tensor-parallel ranks", spec.qkv_size() / t.tensor_size),
        std::pair("heads * kv_channels / tensor-parallel ranks",
                  spec.num_attention_heads * spec.kv_channels / t.tensor_size),
        std::pair("ffn_hidden_size / tensor-parallel ranks", spec.ffn_hidden_size / t.tensor_size)})
    if (n % ops::kFp8Granule != 0)
      return std::string("fp8: ") + what + " = " + std::to_string(n) + ": not a multiple of " +
             std::to_string(ops::kFp8Granule);
  return {};
}

}  // namespace

std::string Engine::refusal(const ModelSpec& spec, const EngineOptions& o, const Topology& t) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  const auto rest = [&](const char* what, int64_t n) {
    return std::string(what) + " " + number(n) + " cannot be divided among " +
           number(t.tensor_size) + " tensor-parallel ranks";
  };
  for (const auto& [what, n] : {std::pair("num_attention_heads", spec.num_attention_heads),
                                std::pair("num_query_groups", spec.num_query_groups),
                                std::pair("ffn_hidden_size", spec.ffn_hidden_size),
                                std::pair("padded_vocab_size", spec.padded_vocab_size)})
    if (n % t.tensor_size != 0) return rest(what, n);
  if (o.fp8.on())
    if (const std::string why = fp8_refusal(spec, o, t); !why.empty()) return why;
  if (o.sequence_parallel && o.seq_length % t.tensor_size != 0)
    return rest("sequence parallel: seq_length", o.seq_length);
  const int64_t parts = int64_t{t.pipeline_size} * o.chunks;
  if (o.chunks < 1 || (o.chunks > 1) != (o.schedule == ScheduleKind::interleaved))
    return number(o.chunks) + " model chunks a rank: more than one for the interleaved schedule";
  if (o.chunks > 1 && t.pipeline_size == 1) return "the interleaved schedule needs several stages";
  if (o.schedule == ScheduleKind::sequential && t.pipeline_size > 1)
    return "the sequential schedule has one stage";
  if (o.zero_stage >= 2 && t.data_size > 1 && o.schedule == ScheduleKind::zero_bubble)
    return "the zero-bubble schedule needs whole gradients: at most ZeRO stage 1";
  if (spec.num_layers < parts)
    return number(spec.num_layers) + " layers: fewer than the " + number(parts) +
           " parts of the pipeline";
  if (o.layers_per_stage.empty()) return {};
  int64_t sum = 0;
  for (const int64_t layers : o.layers_per_stage) {
    if (layers < 1) return "a stage of " + number(layers) + " layers: at least 1";
    sum += layers;
  }
  if (static_cast<int64_t>(o.layers_per_stage.size()) != parts || sum != spec.num_layers)
    return number(sum) + " layers in " + number(static_cast<int64_t>(o.layers_per_stage.size())) +
           " stages: " + number(spec.num_layers) + " in " + number(parts) + " expected";
  return {};
}

EnginePlan Engine::plan(const ModelSpec& spec, const EngineOptions& options, ops::Ops* target,
                        const Topology& topology) {
  check_options(spec, options, topology);
  return Planner::run(spec, options, topology, target).plan;
}

int64_t Engine::plan_largest(const ModelSpec& spec, const EngineOptions& options,
                             const Topology& topology) {
  check_options(spec, options, topology);
  return Planner::largest(spec, options, topology);
}

int64_t Engine::plan_states(const ModelSpec& spec, const EngineOptions& options,
                            const Topology& topology) {
  check_options(spec, options, topology);
  ops::PlanOps ops;
  return Parts(spec, options, plan_groups(topology), ops, {}).arena.used_bytes();
}

ops::Timeline Engine::timeline(const ModelSpec& spec, const EngineOptions& options,
                               const Topology& topology, ops::OperationTimes& times) {
  check_options(spec, options, topology);
  return Planner::timeline(spec, options, topology, times);
}

Engine::Engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops& ops)
    : Engine(spec, options, ops, solo_groups()) {}

Engine::Engine(const ModelSpec& spec, const EngineOptions& options, ops::Ops& ops, Groups groups) {
  check_options(spec, options, groups.topology);
  const Planned planned = Planner::run(spec, options, groups.topology, &ops);
  // Before the memory of the model is taken: timing algorithms takes some, and gives it back.
  ops.prepare(planned.calls);
  try {
    Parts::Memory memory{.device = ops::Arena(ops, planned.plan.total_bytes),
                         .host = ops::Arena::on_host(ops, planned.plan.host_bytes),
                         .pool_bytes = planned.pool_bytes,
                         .workspace_bytes = planned.workspace_bytes};
    parts_ = std::make_unique<Parts>(spec, options, std::move(groups), ops, std::move(memory));
  } catch (const DeviceError& error) {
    throw DeviceError(std::string(error.what()) + "\n" + planned.plan.report);
  }
  Parts& p = *parts_;
  p.plan = planned.plan;
  p.pool_bytes = planned.pool_bytes;
  p.host_batches = static_cast<std::byte*>(ops.allocate_host(kSlots * p.host_batch_bytes()));
  p.host_states = static_cast<ops::StepState*>(
      ops.allocate_host(static_cast<int64_t>((kSlots + 1) * sizeof(ops::StepState))));
  for (const FlatMemory* flat : {&p.flats.model, &p.flats.main, &p.flats.grad})
    ops.run(ops::Fill{.dst = flat->tensor(), .value = 0});
  p.clear_states();
  if (options.fp8.on()) p.fp8.reset(ops);
  for (const Tensor& buffer : p.layer_buffers)
    if (buffer) ops.run(ops::Fill{.dst = buffer, .value = 0});
  p.upload_tables();
}

Engine::~Engine() = default;

void Engine::initialise() {
  Parts& p = *parts_;
  for (const Slot& slot : p.layout.slots()) p.draw(slot);
  p.clear_states();
  if (p.options.fp8.on()) p.fp8.reset(p.ops);
  refresh_model_parameters();
  ops::StepState state;
  state.loss_scale = p.options.loss_scaler.initial;
  state.hysteresis_tracker = p.options.loss_scaler.hysteresis;
  set_state(state);
}

void Engine::refresh_model_parameters() {
  Parts& p = *parts_;
  if (p.flats.model.tensor().data != p.flats.main.tensor().data) {
    for (size_t b = 0; b < p.layout.buckets().size(); ++b) {
      const int bucket = static_cast<int>(b);
      if (p.in_shares())
        p.ops.run(ops::Copy{.dst = p.flats.model.share(bucket), .src = p.flats.main.share(bucket)});
      else
        p.ops.run(
            ops::Copy{.dst = p.flats.model.bucket(bucket), .src = p.flats.main.bucket(bucket)});
    }
  }
  p.refresh();
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
  p.ops.run(ops::BeginStep{
      .state = p.state, .iteration = iteration, .lr = lr, .weight_decay = weight_decay});
  // The first step of each size runs plainly, so that a backend has built all it needs before
  // recording. What must not overtake a copy of the weights is recorded apart.
  const auto [known, is_first] = p.captured.try_emplace(num_microbatches);
  Parts::Captured& captured = known->second;
  const auto run = [&](int64_t& recorded, const auto& half) {
    if (recorded < 0 && !is_first && p.options.capture && p.ops.begin_capture()) {
      half();
      recorded = p.ops.end_capture();
    }
    if (recorded >= 0)
      p.ops.replay(recorded);
    else
      half();
  };
  run(captured.gradients, [&] { p.make_gradients(num_microbatches); });
  p.ops.follow(std::exchange(p.before_update, ops::Mark()));
  run(captured.update, [&] { p.apply_gradients(); });
  p.stale = p.in_shares() && p.options.overlap_param_gather;
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
  p.ops.run(ops::BeginStep{.state = p.eval_state});
  p.evaluate_all(num_microbatches);
  p.ops.download(p.host_states + kSlots, p.eval_state);
  p.ops.synchronize();
  return p.host_states[kSlots].loss;
}

const std::vector<ParamView>& Engine::parameters() const noexcept { return parts_->views; }

std::vector<std::string> Engine::nonfinite_gradients() {
  Parts& p = *parts_;
  const std::vector<ParamSpec> table = param_table(p.spec);
  std::vector<float> counts(table.size(), 0.0f);
  int64_t* host = static_cast<int64_t*>(p.ops.allocate_host(sizeof(int64_t)));
  for (const ParamView& view : p.views) {
    if (!view.grad) continue;
    p.ops.run(ops::CountNonfinite{.out = p.count, .x = view.grad});
    p.ops.download(host, p.count);
    p.ops.synchronize();
    const auto row = std::find_if(table.begin(), table.end(), [&](const ParamSpec& spec) {
      return spec.name == view.param->spec.name;
    });
    counts[static_cast<size_t>(row - table.begin())] = *host > 0 ? 1.0f : 0.0f;
  }
  p.ops.release_host(host);
  p.over_ranks(p.param_counts, counts, comm::Reduce::max);
  std::vector<std::string> names;
  for (size_t i = 0; i < table.size(); ++i)
    if (counts[i] > 0) names.push_back(table[i].name);
  return names;
}

void Engine::over_ranks(std::span<float> values, comm::Reduce reduce) {
  if (static_cast<int64_t>(values.size()) > kExchanged)
    throw ShapeError("engine: " + std::to_string(values.size()) + " numbers over ranks: at most " +
                     std::to_string(kExchanged));
  parts_->over_ranks(parts_->exchanged, values, reduce);
}

void Engine::before_next_update(const ops::Mark& mark) { parts_->before_update = mark; }

std::vector<StateView> Engine::shared_state() const {
  const Fp8& fp8 = parts_->fp8;
  if (!parts_->options.fp8.on() || !fp8.history()) return {};
  return {{"scale", fp8.scale()}, {"history", fp8.history()}};
}

void Engine::shared_state_loaded() { parts_->fp8.resume(parts_->ops); }

ops::StepState Engine::state() {
  Parts& p = *parts_;
  p.ops.download(p.host_states + kSlots, p.state);
  p.ops.synchronize();
  return p.host_states[kSlots];
}

void Engine::set_state(const ops::StepState& state) { parts_->upload_now(parts_->state, &state); }

const Topology& Engine::topology() const noexcept { return parts_->groups.topology; }

const EnginePlan& Engine::memory_plan() const noexcept { return parts_->plan; }

int64_t Engine::peak_bytes() const noexcept {
  return parts_->plan.total_bytes - ops::align_up(parts_->pool_bytes) +
         ops::align_up(parts_->pool.peak_bytes());
}

ops::Ops& Engine::ops() noexcept { return parts_->ops; }

}  // namespace trainer
