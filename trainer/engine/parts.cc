// Engine::Parts: memory, batches, tables, initial values.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/spec/rotary.h"

namespace trainer {
namespace {

constexpr int64_t kLogitsBytes = int64_t{512} << 20;

/// Rows of logits held at once: a multiple of 128 that keeps them under kLogitsBytes, at least 128.
int64_t default_head_rows(const ModelSpec& spec, const EngineOptions& o, int64_t tensor_size) {
  const int64_t row_bytes = spec.padded_vocab_size / tensor_size * ops::size_bytes(o.model_dtype);
  const int64_t rows = kLogitsBytes / row_bytes / 128 * 128;
  return std::min(std::max<int64_t>(rows, 128), o.seq_length * o.micro_batch_size);
}

std::vector<Place> places_of(const ModelSpec& spec, const EngineOptions& o, const Topology& t) {
  std::vector<int64_t> layers = o.layers_per_stage;
  if (layers.empty())
    layers = o.chunks > 1 ? even_layers(spec.num_layers, t.pipeline_size * o.chunks)
                          : balanced_layers(spec, t.pipeline_size, o.seq_length);
  return places_on(t, spec, layers);
}

Flats flats_of(const FlatLayout& layout, const Share& share, const ModelSpec& spec,
               const EngineOptions& options) {
  using Hold = FlatMemory::Hold;
  using Buckets = FlatMemory::Buckets;
  const auto flat = [&](int sharing_stage, Hold sharing, Buckets buckets = Buckets::all) {
    const Hold hold = options.zero_stage >= sharing_stage ? sharing : Hold::whole;
    return FlatMemory(layout, share, hold, spec.num_layers, buckets);
  };
  std::vector<FlatMemory> states;
  for (const StateSpec& state : optimizer_states(options.optimizer))
    states.push_back(flat(1, Hold::share, state.buckets));
  return {.model = flat(3, Hold::layers),
          .main = flat(1, Hold::share),
          .grad = flat(2, Hold::layers),
          .states = std::move(states)};
}

Matrices matrices_of(const EngineOptions& o, const Share& share) {
  return matrices_for(o.optimizer, share.size > 1 ? o.zero_stage : 0);
}

}  // namespace

Engine::Parts::Parts(const ModelSpec& spec_, const EngineOptions& options_, Groups groups_,
                     ops::Ops& ops_, Memory memory)
    : spec(spec_),
      options(options_),
      groups(std::move(groups_)),
      places(places_of(spec_, options_, groups.topology)),
      ops(ops_),
      share{groups.topology.data_rank, groups.topology.data_size},
      layout(local_params(spec_, places), share.size > 1, share.size, matrices_of(options_, share)),
      flats(flats_of(layout, share, spec, options)),
      arena(std::move(memory.device)),
      host_arena(std::move(memory.host)),
      fp8(options.fp8, spec),
      weights(layout, flats.model, ops, *groups.data, in_shares()),
      pool((cut(), cut_pool(memory.pool_bytes))),
      grads(layout, flats.grad, ops, *groups.data, pool,
            {.in_shares = in_shares(),
             .overlap = options.overlap_grad_reduce,
             .hold_embedding = spec.tied_embeddings && groups.embedding->size() > 1,
             .grad_dtype = options.grad_dtype,
             .model_dtype = options.model_dtype,
             .reduce_dtype = options.grad_reduce_in_bf16 ? DType::bf16 : options.grad_dtype}),
      counted(counted_parts(layout, flats.grad, groups.topology)),
      run{.spec = spec,
          .place = places.front(),
          .ops = ops,
          .pool = pool,
          .weights = weights,
          .grads = grads,
          .tp = *groups.tensor,
          .state = state,
          .cosine = cosine,
          .sine = sine,
          .model_dtype = options.model_dtype,
          .seq_length = options.seq_length,
          .micro_batch_size = options.micro_batch_size,
          .head_rows = options.head_rows > 0
                           ? options.head_rows
                           : default_head_rows(spec, options, groups.topology.tensor_size),
          .num_microbatches = 1,
          .recompute = options.recompute,
          .seed = options.seed,
          .fuse_residual = options.fuse_residual,
          .per_token_loss = options.per_token_loss,
          .training = true,
          .sequence_parallel = options.sequence_parallel && groups.topology.tensor_size > 1,
          .fp8 = options.fp8.on() ? &fp8 : nullptr} {
  for (const Place& place : places) stages.emplace_back(run, place, options.max_microbatches);
  if (memory.workspace_bytes > 0)
    ops.set_workspace(arena.cut("workspace", DType::u8, {memory.workspace_bytes}));
  for (const Slot& slot : layout.slots()) views.push_back(view_of(slot));
}

ParamView Engine::Parts::view_of(const Slot& slot) const {
  const bool whole = !in_shares();
  const auto part = [&](const FlatMemory& flat) {
    return whole ? flat.whole(slot) : flat.range(slot);
  };
  const Range mine = layout.in_share(slot, share);
  std::vector<StateView> states;
  for (size_t i = 0; i < flats.states.size(); ++i)
    if (flats.states[i].holds(slot.bucket))
      states.push_back({optimizer_states(options.optimizer)[i].name, part(flats.states[i])});
  const Topology& t = groups.topology;
  const bool copy = (slot.param.spec.split < 0 && t.tensor_rank > 0) ||
                    (slot.param.spec.layer < 0 && !t.first_stage());
  return {.param = &slot.param,
          .model = flats.model.holds_whole(slot.bucket) ? flats.model.whole(slot)
                                                        : flats.model.range(slot),
          .kept = whole ? Range{0, slot.param.elements()} : mine,
          .main = part(flats.main),
          .states = std::move(states),
          .grad = part(flats.grad),
          .saved = copy ? Range{} : mine};
}

Engine::Parts::~Parts() {
  ops.synchronize();
  // NCCL's groups wait at their end for the recordings that hold their calls.
  for (const auto& [microbatches, steps] : captured) {
    ops.forget(steps.gradients);
    ops.forget(steps.update);
  }
  ops.set_workspace({});
  if (host_batches != nullptr) ops.release_host(host_batches);
  if (host_states != nullptr) ops.release_host(host_states);
}

OptimizerOptions Engine::Parts::optimizer_options() const {
  MuonOptions muon = options.muon;
  muon.query_rows = spec.num_attention_heads / spec.num_query_groups * spec.kv_channels;
  muon.key_rows = spec.kv_channels;
  return {.kind = options.optimizer,
          .muon = muon,
          .clip_grad = options.clip_grad,
          .beta1 = options.adam_beta1,
          .beta2 = options.adam_beta2,
          .eps = options.adam_eps,
          .scaler = options.loss_scaler,
          .seed = options.seed,
          .in_shares = in_shares()};
}

void Engine::Parts::cut_flats() {
  ops::Arena& optimizer = options.cpu_offload ? host_arena : arena;
  flats.model.place(arena.cut("model parameters", options.model_dtype, {flats.model.elements()}));
  if (const int64_t n = weights.buffer_elements(); n > 0) {
    for (Tensor& buffer : layer_buffers)
      buffer = arena.cut("gathered layers", options.model_dtype, {n});
    weights.set_buffers(layer_buffers);
  }
  if (options.model_dtype == DType::f32 && !options.cpu_offload)
    flats.main = flats.model;
  else
    flats.main.place(optimizer.cut("main parameters", DType::f32, {flats.main.elements()}));
  flats.grad.place(arena.cut("gradients", options.grad_dtype, {flats.grad.elements()}));
  for (size_t i = 0; i < flats.states.size(); ++i) {
    const StateSpec& state = optimizer_states(options.optimizer)[i];
    flats.states[i].place(optimizer.cut(state.purpose,
                                        state.always_fp32 ? DType::f32 : options.moment_dtype,
                                        {flats.states[i].elements()}));
  }
}

void Engine::Parts::cut() {
  cut_flats();
  const int64_t batch = options.micro_batch_size, seq = options.seq_length;
  constexpr int64_t kState = sizeof(ops::StepState);
  state = arena.cut("state", DType::u8, {kState});
  eval_state = arena.cut("state", DType::u8, {kState});
  sums = arena.cut("state", DType::f32, {2});
  count = arena.cut("state", DType::i64, {1});
  exchanged = arena.cut("state", DType::f32, {kExchanged});
  param_counts = arena.cut("state", DType::f32, {static_cast<int64_t>(param_table(spec).size())});
  const int64_t all = options.max_microbatches;
  staging.tokens = arena.cut("batch", DType::i32, {all, seq, batch});
  staging.labels = arena.cut("batch", DType::i32, {all, seq, batch});
  staging.positions = arena.cut("batch", DType::i32, {all, seq, batch});
  staging.loss_mask = arena.cut("batch", DType::f32, {all, seq, batch});
  if (keys_hidden()) staging.first_key = arena.cut("batch", DType::i32, {all, seq, batch});
  cut_fp8();
  const int64_t half = spec.rotary_dim() / 2;
  if (half == 0) return;
  cosine = arena.cut("rotary tables", DType::f32, {spec.max_position_embeddings, half});
  sine = arena.cut("rotary tables", DType::f32, {spec.max_position_embeddings, half});
}

void Engine::Parts::cut_fp8() {
  if (!options.fp8.on()) return;
  const int64_t n = fp8.tensors(), length = fp8.history_length();
  const Tensor scale = arena.cut("fp8 scales", DType::f32, {n, ops::kScaleSize});
  const Tensor amax = arena.cut("fp8 scales", DType::f32, {n});
  fp8.place(scale, amax, length > 0 ? arena.cut("fp8 scales", DType::f32, {n, length}) : Tensor());
  const int64_t bytes = fp8.list_weights(local_params(spec, places), [&](int64_t layer) {
    return flats.model.holds_whole(layout.buckets_of(layer).front());
  });
  if (bytes > 0) fp8.place_weights(arena.cut("fp8 weights", DType::e4m3, {bytes}));
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
          .first_sample = (index * share.size + share.rank) * options.micro_batch_size};
}

int64_t Engine::Parts::host_batch_bytes() const {
  return staging.tokens.bytes() * (keys_hidden() ? 5 : 4);
}

HostBatch Engine::Parts::host_batch(int64_t slot) const {
  const size_t count_ = static_cast<size_t>(staging.tokens.elements());
  int32_t* at = reinterpret_cast<int32_t*>(host_batches + slot * host_batch_bytes());
  HostBatch host{.tokens = {at, count_},
                 .labels = {at + count_, count_},
                 .positions = {at + 2 * count_, count_},
                 .loss_mask = {reinterpret_cast<float*>(at + 3 * count_), count_},
                 .first_key = {}};
  if (keys_hidden()) host.first_key = {at + 4 * count_, count_};
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

void Engine::Parts::upload_tables() {
  if (!cosine) return;
  const RotaryTables tables = rotary_tables(spec, cosine.shape[0]);
  upload_now(cosine, tables.cosine.data());
  upload_now(sine, tables.sine.data());
}

void Engine::Parts::clear_states() {
  for (const FlatMemory& state : flats.states)
    ops.run(ops::Fill{.dst = state.tensor(), .value = 0});
}

/// Initial values of what is kept of one parameter, by position in the whole tensor.
void Engine::Parts::draw(const Slot& slot) {
  const ParamSpec& p = slot.param.spec;
  const Range kept = in_shares() ? layout.in_share(slot, share) : Range{0, slot.param.elements()};
  if (kept.count == 0) return;
  const Tensor out = in_shares() ? flats.main.range(slot) : flats.main.whole(slot).flat();
  if (p.init == Init::zeros || p.init == Init::ones) {
    ops.run(ops::Fill{.dst = out, .value = p.init == Init::ones ? 1.0f : 0.0f});
    return;
  }
  // The rest of a row, whole rows up to the end of a part, the beginning of a row; and again.
  const int64_t columns = slot.param.shape.back();
  const int64_t rows = slot.param.shape[0] / p.split_parts;
  for (int64_t at = kept.first; at < kept.first + kept.count;) {
    const int64_t row = at / columns, end = kept.first + kept.count;
    const int64_t part_end = (row / rows + 1) * rows * columns;
    int64_t count = std::min(end, (row + 1) * columns) - at;
    if (at % columns == 0)
      count = std::max(count, std::min(end, part_end) / columns * columns - at);
    const bool whole_rows = count % columns == 0;
    const Tensor flat = out.slice(at - kept.first, count);
    draw_rows(slot, whole_rows ? flat.view({count / columns, columns}) : flat.view({1, count}), at);
    at += count;
  }
}

/// `out` begins at element `first` of the local parameter and stays in one of its parts.
void Engine::Parts::draw_rows(const Slot& slot, const Tensor& out, int64_t first) {
  const ParamSpec& p = slot.param.spec;
  const float depth = std::sqrt(2.0f * static_cast<float>(spec.num_layers));
  const int64_t columns = slot.param.shape.back(), rows = slot.param.shape[0] / p.split_parts;
  const int64_t row = first / columns, part = row / rows;
  ops.run(ops::NormalFill{.out = out,
                          .std = p.init != Init::scaled_normal ? spec.init_method_std
                                 : options.output_init_std > 0 ? options.output_init_std
                                                               : spec.init_method_std / depth,
                          .seed = options.seed,
                          .stream = init_stream(p.name),
                          .whole_columns = p.shape.back(),
                          .first_row = part * (p.shape[0] / p.split_parts) + row % rows +
                                       (p.split == 0 ? slot.param.first : 0),
                          .first_column = first % columns + (p.split == 1 ? slot.param.first : 0)});
}

void Engine::Parts::over_ranks(const Tensor& buffer, std::span<float> values, comm::Reduce reduce) {
  if (values.empty() || groups.world->size() == 1) return;
  const Tensor part = buffer.slice(0, static_cast<int64_t>(values.size()));
  upload_now(part, values.data());
  groups.world->follow(ops.mark());
  groups.world->all_reduce(part, reduce);
  ops.follow(groups.world->mark());
  void* host = ops.allocate_host(part.bytes());
  ops.download(host, part);
  ops.synchronize();
  std::memcpy(values.data(), host, static_cast<size_t>(part.bytes()));
  ops.release_host(host);
}

}  // namespace trainer
