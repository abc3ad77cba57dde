// Engine::Parts: memory, batches, tables, initial values.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

}  // namespace

Engine::Parts::Parts(const ModelSpec& spec_, const EngineOptions& options_, Groups groups_,
                     ops::Ops& ops_, ops::Arena memory, int64_t pool_bytes, int64_t workspace_bytes)
    : spec(spec_),
      options(options_),
      groups(std::move(groups_)),
      places(places_of(spec_, options_, groups.topology)),
      ops(ops_),
      layout(local_params(spec_, places), false),
      arena(std::move(memory)),
      pool((cut(), cut_pool(pool_bytes))),
      weights(layout, flats.model),
      grads(layout, flats.grad),
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
          .training = true,
          .sequence_parallel = options.sequence_parallel && groups.topology.tensor_size > 1} {
  for (const Place& place : places) stages.emplace_back(run, place, options.max_microbatches);
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

}  // namespace trainer
