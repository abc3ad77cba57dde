// The table of parameters. Names: Megatron-core's GPTModel with the local layer spec.
//
// SPDX-License-Identifier: MIT
#include "trainer/spec/params.h"

#include <algorithm>
#include <utility>

namespace trainer {
namespace {

/// Adds rows to a table. Biases and norms do not decay.
class Writer {
 public:
  Writer(const ModelSpec& spec, std::vector<ParamSpec>& rows) : spec_(spec), rows_(rows) {}

  void weight(std::string name, Role role, int64_t layer, std::vector<int64_t> shape, int split,
              Init init, int split_parts = 1) {
    rows_.push_back({.name = std::move(name),
                     .role = role,
                     .layer = layer,
                     .shape = std::move(shape),
                     .split = split,
                     .split_parts = split_parts,
                     .init = init,
                     .decay = true});
  }
  void vector(std::string name, Role role, int64_t layer, int64_t size, int split, Init init,
              int split_parts = 1) {
    rows_.push_back({.name = std::move(name),
                     .role = role,
                     .layer = layer,
                     .shape = {size},
                     .split = split,
                     .split_parts = split_parts,
                     .init = init,
                     .decay = false});
  }
  void norm(const std::string& name, Role weight_role, Role bias_role, int64_t layer) {
    norm(name, weight_role, bias_role, layer, spec_.hidden_size);
  }
  void head_norm(const std::string& name, Role weight_role, Role bias_role, int64_t layer) {
    const size_t first = rows_.size();
    norm(name, weight_role, bias_role, layer, spec_.kv_channels);
    for (size_t i = first; i < rows_.size(); ++i) rows_[i].of_heads = true;
  }

 private:
  void norm(const std::string& name, Role weight_role, Role bias_role, int64_t layer,
            int64_t size) {
    vector(name + ".weight", weight_role, layer, size, -1, Init::ones);
    if (spec_.norm == ops::Norm::layernorm)
      vector(name + ".bias", bias_role, layer, size, -1, Init::zeros);
  }

  const ModelSpec& spec_;
  std::vector<ParamSpec>& rows_;
};

void add_layer(Writer& w, const ModelSpec& spec, int64_t layer) {
  const std::string at = "decoder.layers." + std::to_string(layer) + ".";
  const int64_t h = spec.hidden_size, attention_size = spec.num_attention_heads * spec.kv_channels;
  const int gate_parts = spec.gated() ? 2 : 1;
  if (spec.has_input_norm(layer))
    w.norm(at + "input_layernorm", Role::input_norm_weight, Role::input_norm_bias, layer);
  w.weight(at + "self_attention.linear_qkv.weight", Role::qkv_weight, layer, {spec.qkv_size(), h},
           0, Init::normal);
  if (spec.has_qkv_bias())
    w.vector(at + "self_attention.linear_qkv.bias", Role::qkv_bias, layer, spec.qkv_size(), 0,
             Init::zeros);
  if (spec.qk_norm) {
    w.head_norm(at + "self_attention.q_layernorm", Role::q_norm_weight, Role::q_norm_bias, layer);
    w.head_norm(at + "self_attention.k_layernorm", Role::k_norm_weight, Role::k_norm_bias, layer);
  }
  w.weight(at + "self_attention.linear_proj.weight", Role::proj_weight, layer, {h, attention_size},
           1, Init::scaled_normal);
  if (spec.has_proj_bias())
    w.vector(at + "self_attention.linear_proj.bias", Role::proj_bias, layer, h, -1, Init::zeros);
  w.norm(at + "pre_mlp_layernorm", Role::mlp_norm_weight, Role::mlp_norm_bias, layer);
  w.weight(at + "mlp.linear_fc1.weight", Role::fc1_weight, layer, {spec.fc1_size(), h}, 0,
           Init::normal, gate_parts);
  if (spec.has_mlp_bias())
    w.vector(at + "mlp.linear_fc1.bias", Role::fc1_bias, layer, spec.fc1_size(), 0, Init::zeros,
             gate_parts);
  w.weight(at + "mlp.linear_fc2.weight", Role::fc2_weight, layer, {h, spec.ffn_hidden_size}, 1,
           Init::scaled_normal);
  if (spec.has_mlp_bias())
    w.vector(at + "mlp.linear_fc2.bias", Role::fc2_bias, layer, h, -1, Init::zeros);
}

}  // namespace

bool is_matrix(const ParamSpec& spec) noexcept {
  return spec.shape.size() == 2 && spec.role != Role::word_embeddings &&
         spec.role != Role::position_embeddings && spec.role != Role::project_in &&
         spec.role != Role::project_out && spec.role != Role::output_layer;
}

namespace {

/// The table without layers for which `wanted` is false.
template <class Wanted>
std::vector<ParamSpec> table_of(const ModelSpec& spec, Wanted wanted) {
  std::vector<ParamSpec> rows;
  Writer w(spec, rows);
  w.weight("embedding.word_embeddings.weight", Role::word_embeddings, -1,
           {spec.padded_vocab_size, spec.embedding_columns()}, 0, Init::normal);
  if (spec.position == Position::learned)
    w.weight("embedding.position_embeddings.weight", Role::position_embeddings, -1,
             {spec.max_position_embeddings + spec.position_offset, spec.hidden_size}, -1,
             Init::normal);
  if (spec.projects_embeddings())
    w.weight("embedding.project_in.weight", Role::project_in, -1,
             {spec.hidden_size, spec.embedding_columns()}, -1, Init::normal);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    if (wanted(layer)) add_layer(w, spec, layer);
  w.norm("decoder.final_layernorm", Role::final_norm_weight, Role::final_norm_bias,
         spec.num_layers);
  if (spec.projects_embeddings())
    w.weight("project_out.weight", Role::project_out, spec.num_layers,
             {spec.embedding_columns(), spec.hidden_size}, -1, Init::normal);
  if (!spec.tied_embeddings)
    w.weight("output_layer.weight", Role::output_layer, spec.num_layers,
             {spec.padded_vocab_size, spec.embedding_columns()}, 0, Init::normal);
  return rows;
}

}  // namespace

std::vector<ParamSpec> param_table(const ModelSpec& spec) {
  return table_of(spec, [](int64_t) { return true; });
}

int64_t count_param_rows(const ModelSpec& spec) {
  const auto rows = [&](int64_t last_layer) {  // of the ends, and one layer.
    return static_cast<int64_t>(
        table_of(spec, [&](int64_t layer) { return layer == last_layer; }).size());
  };
  const int64_t ends = rows(-1), inner = spec.num_layers - 1;  // the first may lack a norm.
  return rows(0) + inner * (rows(inner) - ends);
}

Place whole_model(const ModelSpec& spec) {
  return Place{.first_layer = 0, .num_layers = spec.num_layers};
}

namespace {

bool holds_layer(const Place& place, int64_t layer) {
  return layer >= place.first_layer && layer < place.first_layer + place.num_layers;
}

bool holds(const ModelSpec& spec, const Place& place, const ParamSpec& param) {
  if (param.layer < 0)
    return place.has_embedding ||
           (place.has_head && spec.tied_embeddings && param.role == Role::word_embeddings);
  if (param.layer == spec.num_layers) return place.has_head;
  return holds_layer(place, param.layer);
}

}  // namespace

std::vector<LocalParam> local_params(const ModelSpec& spec, const Place& place) {
  return local_params(spec, std::span(&place, 1));
}

std::vector<LocalParam> local_params(const ModelSpec& spec, std::span<const Place> chunks) {
  std::vector<LocalParam> held;
  const Place& place = chunks.front();  // all chunks have one place among tensor ranks.
  const auto held_layer = [&](int64_t layer) {
    return std::any_of(chunks.begin(), chunks.end(),
                       [&](const Place& chunk) { return holds_layer(chunk, layer); });
  };
  for (ParamSpec& param : table_of(spec, held_layer)) {
    if (std::none_of(chunks.begin(), chunks.end(),
                     [&](const Place& chunk) { return holds(spec, chunk, param); }))
      continue;
    LocalParam local{.spec = std::move(param), .shape = {}};
    local.shape = local.spec.shape;
    if (const ParamSpec& whole = local.spec; whole.split >= 0) {
      int64_t& size = local.shape[static_cast<size_t>(whole.split)];
      const int64_t shares = int64_t{whole.split_parts} * place.tensor_size;
      if (size % shares != 0)
        throw ShapeError("model: " + whole.name + ": " + std::to_string(size) +
                         " cannot be divided into " + std::to_string(shares) + " equal shares");
      size /= place.tensor_size;
      local.first = size / whole.split_parts * place.tensor_rank;
    }
    held.push_back(std::move(local));
  }
  return held;
}

uint32_t init_stream(const std::string& name) noexcept {
  uint32_t hash = 2166136261u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

}  // namespace trainer
