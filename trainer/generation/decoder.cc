// See decoder.h. The order of operations is block.cc's, without dropout and without keeping
// anything for backward. As there, the norms do the residual additions.
//
// SPDX-License-Identifier: MIT
#include "trainer/generation/decoder.h"

#include <algorithm>
#include <string>

#include "trainer/ops/number.h"
#include "trainer/spec/rotary.h"

namespace trainer {
namespace {

using ops::Activation;

std::string text(int64_t n) { return std::to_string(n); }

std::vector<WeightPlace> places_of(const FlatLayout& layout, DType dtype,
                                   const std::function<WeightPlace(const LocalParam&)>& place) {
  std::vector<WeightPlace> places;
  for (const Slot& slot : layout.slots())
    places.push_back(place ? place(slot.param) : WeightPlace{dtype});
  return places;
}

// A tensor of the parameter's shape, or its transpose's, in memory that exists already.
Tensor placed(const Slot& slot, const WeightPlace& place) {
  Tensor flat(const_cast<std::byte*>(place.in_place), place.dtype, Device::cpu,
              {slot.param.elements()});
  if (place.transposed) return flat.view({slot.param.shape[1], slot.param.shape[0]});
  return slot.in(flat, slot.offset);
}

}  // namespace

Decoder::Decoder(const ModelSpec& spec, DType dtype, int64_t max_length, ops::Ops& ops,
                 const std::function<WeightPlace(const LocalParam&)>& place)
    : spec_(spec),
      dtype_(dtype),
      max_length_(max_length),
      ops_(ops),
      layout_(local_params(spec, whole_model(spec)), true),
      arena_([&] {
        ops::Arena plan;
        allocate(plan, places_of(layout_, dtype, place));
        return ops::Arena(ops, plan.used_bytes());
      }()) {
  if (spec.position == Position::learned && max_length > spec.max_position_embeddings) {
    throw ShapeError("a text of " + text(max_length) + " tokens: the model has positions for " +
                     text(spec.max_position_embeddings));
  }
  allocate(arena_, places_of(layout_, dtype, place));
  if (spec.rotary_dim() > 0) fill_rotary_tables();
}

void Decoder::allocate(ops::Arena& arena, const std::vector<WeightPlace>& places) {
  const int64_t rows = std::min(kChunk, max_length_), h = spec_.hidden_size;
  const int64_t kv = spec_.num_query_groups * spec_.kv_channels;
  const auto activations = [&](int64_t columns) {
    return arena.cut("activations", dtype_, {rows, 1, columns});
  };
  parameters_.clear();
  for (size_t i = 0; i < places.size(); ++i) {
    const Slot& slot = layout_.slots()[i];
    const bool in_place = places[i].in_place != nullptr;
    parameters_.push_back(
        {&slot.param,
         in_place ? placed(slot, places[i])
                  : slot.in(arena.cut("parameters", places[i].dtype, {slot.param.elements()}),
                            slot.offset),
         in_place, in_place && places[i].transposed, places[i].pieces});
  }
  keys_.clear();
  values_.clear();
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    keys_.push_back(arena.cut("cache", dtype_, {max_length_, 1, kv}));
    values_.push_back(arena.cut("cache", dtype_, {max_length_, 1, kv}));
  }
  if (spec_.rotary_dim() > 0) {
    cosine_ = arena.cut("rotary", DType::f32, {max_length_, spec_.rotary_dim() / 2});
    sine_ = arena.cut("rotary", DType::f32, {max_length_, spec_.rotary_dim() / 2});
  }
  buffers_.tokens = arena.cut("activations", DType::i32, {rows, 1});
  buffers_.positions = arena.cut("activations", DType::i32, {rows, 1});
  buffers_.x = activations(h);
  buffers_.branch = activations(h);
  buffers_.y = activations(h);
  buffers_.qkv = activations(spec_.qkv_size());
  buffers_.attention = activations(spec_.num_attention_heads * spec_.kv_channels);
  buffers_.wide = activations(spec_.fc1_size());
  if (spec_.gated()) buffers_.narrow = activations(spec_.ffn_hidden_size);
  buffers_.last = activations(h);
  if (spec_.projects_embeddings()) {
    buffers_.words = activations(spec_.embedding_columns());
    buffers_.last_words = arena.cut("logits", dtype_, {1, spec_.embedding_columns()});
  }
  buffers_.logits = arena.cut("logits", dtype_, {1, spec_.padded_vocab_size});
}

void Decoder::fill_rotary_tables() {
  const RotaryTables tables = rotary_tables(spec_, max_length_);
  ops_.upload(cosine_, tables.cosine.data());
  ops_.upload(sine_, tables.sine.data());
  ops_.wait(ops_.mark());
}

Tensor Decoder::weight(int64_t layer, Role role) const {
  const int at = layout_.find(layer, role);
  return at < 0 ? Tensor() : parameters_[static_cast<size_t>(at)].tensor;
}

// A linear with its weight and bias; x, y and what follows are the caller's.
ops::LinearForward Decoder::linear(int64_t layer, Role weight_role, Role bias_role) const {
  const int at = layout_.find(layer, weight_role);
  if (at < 0) return {};
  const Parameter& parameter = parameters_[static_cast<size_t>(at)];
  return {.y = {},
          .pre_activation = {},
          .x = {},
          .weight = parameter.tensor,
          .bias = weight(layer, bias_role),
          .addend = {},
          .weight_is_transposed = parameter.transposed,
          .pieces = parameter.pieces};
}

std::vector<float> Decoder::append(std::span<const int32_t> tokens) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (count == 0) throw ShapeError("no tokens to append");
  if (length_ + count > max_length_) {
    throw ShapeError(text(length_ + count) + " tokens, room for " + text(max_length_));
  }
  int64_t size = 0;
  for (int64_t begin = 0; begin < count; begin += size) {
    size = chunk_size(count - begin);
    forward(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(size)));
  }
  score(size - 1);
  std::vector<std::byte> host(static_cast<size_t>(buffers_.logits.bytes()));
  ops_.download(host.data(), buffers_.logits);
  ops_.wait(ops_.mark());
  std::vector<float> logits(static_cast<size_t>(spec_.vocab_size));
  if (dtype_ == DType::f32) {
    const float* from = reinterpret_cast<const float*>(host.data());
    std::copy_n(from, logits.size(), logits.begin());
  } else {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(host.data());
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = dtype_ == DType::bf16 ? ops::bf16_to_float(from[i]) : ops::f16_to_float(from[i]);
    }
  }
  return logits;
}

// How many of `count` tokens the next pass takes. None takes up to three of a longer text: few rows
// are multiplied in another order than more, and no score may depend on where a text is cut.
int64_t Decoder::chunk_size(int64_t count) {
  constexpr int64_t kFewRows = 3;
  const int64_t rest = count - kChunk;
  return rest <= 0 ? count : rest <= kFewRows ? kChunk - kFewRows : kChunk;
}

// One pass over at most kChunk tokens. The last block's output is x + branch.
void Decoder::forward(std::span<const int32_t> tokens) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  std::vector<int32_t> positions(tokens.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    positions[i] = static_cast<int32_t>(length_ + spec_.position_offset) + static_cast<int32_t>(i);
  }
  const Tensor token_rows = buffers_.tokens.slice(0, count);
  const Tensor position_rows = buffers_.positions.slice(0, count);
  ops_.upload(token_rows, tokens.data());
  ops_.upload(position_rows, positions.data());
  ops_.wait(ops_.mark());  // Both host arrays are destroyed at the end of this function.
  embed(count);
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) block(layer, count, layer > 0);
  length_ += count;
}

void Decoder::project(const Tensor& y, const Tensor& x, const Tensor& weight,
                      const Tensor& addend) {
  ops_.run(ops::LinearForward{
      .y = y, .pre_activation = {}, .x = x, .weight = weight, .bias = {}, .addend = addend});
}

// x = word embeddings + position embeddings.
void Decoder::embed(int64_t count) {
  const Tensor x = buffers_.x.slice(0, count), tokens = buffers_.tokens.slice(0, count);
  const Tensor table = weight(-1, Role::word_embeddings);
  const bool projected = spec_.projects_embeddings();
  ops_.run(ops::EmbeddingForward{.x = x,
                                 .tokens = tokens,
                                 .token_table = projected ? Tensor() : table,
                                 .positions = buffers_.positions.slice(0, count),
                                 .position_table = weight(-1, Role::position_embeddings),
                                 .first_token = 0,
                                 .dropout = {}});
  if (!projected) return;
  const Tensor words = buffers_.words.slice(0, count);
  ops_.run(ops::EmbeddingForward{.x = words,
                                 .tokens = tokens,
                                 .token_table = table,
                                 .positions = {},
                                 .position_table = {},
                                 .first_token = 0,
                                 .dropout = {}});
  project(x, words, weight(-1, Role::project_in), x);
}

// Logits of one row of the last block's output.
void Decoder::score(int64_t row) {
  const int64_t last = spec_.num_layers;
  norm(last, Role::final_norm_weight, Role::final_norm_bias, buffers_.x.slice(row, 1),
       buffers_.branch.slice(row, 1), buffers_.last.slice(0, 1));
  const Tensor y = buffers_.last.slice(0, 1).view({1, spec_.hidden_size});
  const Tensor table =
      spec_.tied_embeddings ? weight(-1, Role::word_embeddings) : weight(last, Role::output_layer);
  if (spec_.projects_embeddings())
    project(buffers_.last_words, y, weight(last, Role::project_out), {});
  project(buffers_.logits, spec_.projects_embeddings() ? buffers_.last_words : y, table, {});
}

// x += branch (when there is one), y = norm(x).
void Decoder::norm(int64_t layer, Role weight_role, Role bias_role, const Tensor& x,
                   const Tensor& branch, const Tensor& y) {
  ops_.run(ops::ResidualNormForward{.norm = spec_.norm,
                                    .eps = spec_.norm_epsilon,
                                    .y = y,
                                    .residual_out = branch ? x : Tensor(),
                                    .mean = {},
                                    .rstd = {},
                                    .residual = x,
                                    .branch = branch,
                                    .branch_bias = {},
                                    .weight = weight(layer, weight_role),
                                    .bias = weight(layer, bias_role),
                                    .dropout = {}});
}

// The block's output is x + branch afterwards.
void Decoder::block(int64_t layer, int64_t count, bool has_branch) {
  const Tensor x = buffers_.x.slice(0, count), y = buffers_.y.slice(0, count);
  const Tensor branch = buffers_.branch.slice(0, count);
  if (spec_.has_input_norm(layer))
    norm(layer, Role::input_norm_weight, Role::input_norm_bias, x, has_branch ? branch : Tensor(),
         y);
  else
    ops_.run(ops::Copy{.dst = y, .src = x});
  attend(layer, count, y, branch);
  if (spec_.post_norm) {  // y is the stream, and x the next norm's output
    norm(layer, Role::mlp_norm_weight, Role::mlp_norm_bias, y, branch, x);
    mlp(layer, count, x, branch, {});
    return;
  }
  if (spec_.parallel_residual) {
    norm(layer, Role::mlp_norm_weight, Role::mlp_norm_bias, x, {}, y);
    mlp(layer, count, y, branch, branch);
    return;
  }
  norm(layer, Role::mlp_norm_weight, Role::mlp_norm_bias, x, branch, y);
  mlp(layer, count, y, branch, {});
}

void Decoder::attend(int64_t layer, int64_t count, const Tensor& y, const Tensor& out) {
  const Tensor qkv = buffers_.qkv.slice(0, count), attention = buffers_.attention.slice(0, count);
  ops::LinearForward to_qkv = linear(layer, Role::qkv_weight, Role::qkv_bias);
  to_qkv.x = y;
  to_qkv.y = qkv;
  ops_.run(to_qkv);
  if (spec_.qk_norm) {
    ops_.run(ops::HeadNormForward{.heads = {.norm = spec_.norm,
                                            .num_attention_heads = spec_.num_attention_heads,
                                            .num_query_groups = spec_.num_query_groups,
                                            .x = qkv,
                                            .mean = {},
                                            .rstd = {},
                                            .q_weight = weight(layer, Role::q_norm_weight),
                                            .k_weight = weight(layer, Role::k_norm_weight)},
                                  .eps = spec_.norm_epsilon,
                                  .y = qkv,
                                  .q_bias = weight(layer, Role::q_norm_bias),
                                  .k_bias = weight(layer, Role::k_norm_bias)});
  }
  if (spec_.rotary_dim() > 0) {
    ops_.run(ops::Rotary{.qkv = qkv,
                         .positions = buffers_.positions.slice(0, count),
                         .cosine = cosine_,
                         .sine = sine_,
                         .num_attention_heads = spec_.num_attention_heads,
                         .num_query_groups = spec_.num_query_groups});
  }
  ops_.run(ops::AttentionDecode{.shape = {.num_attention_heads = spec_.num_attention_heads,
                                          .num_query_groups = spec_.num_query_groups,
                                          .kv_channels = spec_.kv_channels,
                                          .softmax_scale = softmax_scale(spec_)},
                                .out = attention,
                                .qkv = qkv,
                                .key_cache = keys_[static_cast<size_t>(layer)],
                                .value_cache = values_[static_cast<size_t>(layer)],
                                .cached = length_,
                                .window = spec_.sliding_window});
  ops::LinearForward proj = linear(layer, Role::proj_weight, Role::proj_bias);
  proj.x = attention;
  proj.y = out;
  ops_.run(proj);
}

void Decoder::mlp(int64_t layer, int64_t count, const Tensor& y, const Tensor& out,
                  const Tensor& addend) {
  const bool gated = spec_.gated();
  const Tensor wide = buffers_.wide.slice(0, count);
  const Tensor narrow = gated ? buffers_.narrow.slice(0, count) : wide;
  ops::LinearForward fc1 = linear(layer, Role::fc1_weight, Role::fc1_bias);
  fc1.x = y;
  fc1.y = wide;
  if (!gated) fc1.activation = spec_.activation;
  ops_.run(fc1);
  if (gated)
    ops_.run(ops::ActivationForward{.y = narrow, .x = wide, .activation = Activation::swiglu});
  ops::LinearForward fc2 = linear(layer, Role::fc2_weight, Role::fc2_bias);
  fc2.x = narrow;
  fc2.y = out;
  fc2.addend = addend;
  ops_.run(fc2);
}

}  // namespace trainer
