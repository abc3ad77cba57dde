// SPDX-License-Identifier: MIT
// canonical.h: the list of tensors that follows from the sizes, and the qkv orders.
// Source of the orders: Megatron-LM's fix_query_key_value_ordering (megatron/checkpointing.py).
#include "convert/canonical.h"

#include <algorithm>
#include <unordered_set>

#include "convert/float_formats.h"
#include "libindexed/format.h"

namespace convert {
namespace {

using indexed::FormatError;
using trainer::ModelSpec;

std::string show(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

void add_layer(std::vector<CanonicalEntry>& entries, const ModelSpec& spec, int64_t layer) {
  const int64_t h = spec.hidden_size, ffn = spec.ffn_hidden_size;
  const int64_t q = spec.num_attention_heads * spec.kv_channels;
  const int64_t kv = spec.num_query_groups * spec.kv_channels;
  const auto add = [&](std::string_view suffix, std::vector<int64_t> shape) {
    entries.push_back({layer_name(layer, suffix), std::move(shape)});
  };
  const auto norm = [&](const std::string& name, int64_t size) {
    add(name + ".weight", {size});
    if (spec.norm == ops::Norm::layernorm) add(name + ".bias", {size});
  };
  const auto linear = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  };
  const bool mlp_bias = spec.has_mlp_bias();
  if (spec.has_input_norm(layer)) norm("input_layernorm", h);
  linear("self_attention.linear_q", q, h, spec.has_qkv_bias());
  linear("self_attention.linear_k", kv, h, spec.has_qkv_bias());
  linear("self_attention.linear_v", kv, h, spec.has_qkv_bias());
  if (spec.qk_norm) {
    norm("self_attention.q_layernorm", spec.kv_channels);
    norm("self_attention.k_layernorm", spec.kv_channels);
  }
  linear("self_attention.linear_proj", h, q, spec.has_proj_bias());
  norm("pre_mlp_layernorm", h);
  if (spec.gated()) {
    linear("mlp.linear_gate", ffn, h, mlp_bias);
    linear("mlp.linear_up", ffn, h, mlp_bias);
  } else {
    linear("mlp.linear_fc1", ffn, h, mlp_bias);
  }
  linear("mlp.linear_fc2", h, ffn, mlp_bias);
}

}  // namespace

const TensorSource& CanonicalModel::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw FormatError("the model has no tensor " + name);
  return found->second;
}

std::string layer_name(int64_t layer, std::string_view suffix) {
  return "decoder.layers." + std::to_string(layer) + "." + std::string(suffix);
}

std::string dtype_of_most(const CanonicalModel& model) {
  std::map<std::string, int64_t> elements;
  for (const auto& [name, source] : model.tensors) elements[source.dtype] += source.elements();
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? "" : most->first;
}

void trim_vocabulary(CanonicalModel& model, int64_t vocab_size) {
  for (const char* name : {"embedding.word_embeddings.weight", "output_layer.weight"}) {
    const auto found = model.tensors.find(name);
    if (found == model.tensors.end()) continue;
    if (found->second.rows() < vocab_size)
      throw FormatError(found->second.place + ": " + std::to_string(found->second.rows()) +
                        " rows, fewer than the vocabulary's " + std::to_string(vocab_size));
    found->second = slice_rows(found->second, 0, vocab_size);
  }
  model.spec.vocab_size = model.spec.padded_vocab_size = vocab_size;
}

int64_t pad_vocabulary(CanonicalModel& model, int64_t unit) {
  const int64_t before = model.spec.padded_vocab_size;
  const int64_t real = model.spec.vocab_size > 0 ? model.spec.vocab_size : before;
  const auto padded_to = [&](int64_t multiple) {
    return (real + multiple - 1) / multiple * multiple;
  };
  const int64_t rows = unit > 0 ? padded_to(unit) : before;
  if (unit == 0) {
    unit = rows & -rows;  // the largest power of two: 128 times tensor-parallel ranks, mostly.
    if (padded_to(unit) != rows) unit = rows;
  }
  for (const char* name : {"embedding.word_embeddings.weight", "output_layer.weight"}) {
    const auto found = model.tensors.find(name);
    if (found == model.tensors.end()) continue;
    const int64_t last = found->second.rows() - 1;
    found->second =
        pick_rows(found->second, rows, [last](int64_t row) { return std::min(row, last); });
  }
  model.spec.padded_vocab_size = rows;
  return unit;
}

std::vector<CanonicalEntry> canonical_entries(const ModelSpec& spec) {
  std::vector<CanonicalEntry> entries;
  const int64_t h = spec.hidden_size, e = spec.embedding_columns();
  entries.push_back({"embedding.word_embeddings.weight", {spec.padded_vocab_size, e}});
  if (spec.position == trainer::Position::learned)
    entries.push_back({"embedding.position_embeddings.weight",
                       {spec.max_position_embeddings + spec.position_offset, h}});
  if (spec.projects_embeddings()) entries.push_back({"embedding.project_in.weight", {h, e}});
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) add_layer(entries, spec, layer);
  entries.push_back({"decoder.final_layernorm.weight", {h}});
  if (spec.norm == ops::Norm::layernorm) entries.push_back({"decoder.final_layernorm.bias", {h}});
  if (spec.projects_embeddings()) entries.push_back({"project_out.weight", {e, h}});
  if (!spec.tied_embeddings)
    entries.push_back({"output_layer.weight", {spec.padded_vocab_size, e}});
  return entries;
}

void check_numbers(const ModelSpec& spec) {
  constexpr int64_t kMost = int64_t{1} << 30;  // products of two, tripled, fit 64 bits
  for (const auto& [name, value] :
       {std::pair("layers", spec.num_layers), std::pair("hidden size", spec.hidden_size),
        std::pair("embedding size", spec.embedding_size),
        std::pair("MLP size", spec.ffn_hidden_size), std::pair("heads", spec.num_attention_heads),
        std::pair("key/value groups", spec.num_query_groups),
        std::pair("head size", spec.kv_channels),
        std::pair("positions", spec.max_position_embeddings),
        std::pair("offset of positions", spec.position_offset),
        std::pair("original positions", spec.rotary_original_positions),
        std::pair("sliding window", spec.sliding_window), std::pair("vocabulary", spec.vocab_size),
        std::pair("padded vocabulary", spec.padded_vocab_size)})
    if (value < 0 || value > kMost)
      throw FormatError(std::string(name) + " of " + std::to_string(value) +
                        ", expected 0 to 2^30");
}

void check_complete(const CanonicalModel& model) {
  check_numbers(model.spec);
  if (model.spec.num_layers > static_cast<int64_t>(model.tensors.size()))
    throw FormatError(std::to_string(model.spec.num_layers) + " layers, but " +
                      std::to_string(model.tensors.size()) + " tensors");
  const std::vector<CanonicalEntry> entries = canonical_entries(model.spec);
  for (const CanonicalEntry& entry : entries) {
    const TensorSource& source = model.at(entry.name);
    if (source.shape != entry.shape)
      throw FormatError(source.place + ": shape " + show(source.shape) + ", expected " +
                        show(entry.shape) + " for " + entry.name);
    if (!is_float(source.dtype))
      throw FormatError(source.place + ": dtype " + source.dtype +
                        ": quantized weights are not read");
  }
  if (model.tensors.size() == entries.size()) return;
  std::unordered_set<std::string_view> known;
  for (const CanonicalEntry& entry : entries) known.insert(entry.name);
  for (const auto& [name, source] : model.tensors)
    if (!known.contains(name))
      throw FormatError(source.place + ": " + name +
                        " is no part of the model that the arguments describe");
}

std::vector<TensorSource> split_qkv(const TensorSource& fused, const QkvShape& shape,
                                    QkvOrder order) {
  if (fused.shape.empty() || fused.shape[0] != shape.rows())
    throw FormatError(fused.place + ": " + std::to_string(fused.rows()) + " rows, expected " +
                      std::to_string(shape.rows()) + " for " + std::to_string(shape.heads) +
                      " heads and " + std::to_string(shape.groups) + " groups of " +
                      std::to_string(shape.head_size));
  const bool old = order == QkvOrder::stacked || order == QkvOrder::split_last;
  if (old && shape.heads != shape.groups)
    throw FormatError(fused.place + ": grouped-query attention in a checkpoint before version 2");
  const int64_t d = shape.head_size, per_group = shape.heads / shape.groups;
  const int64_t share = shape.groups * d / shape.heads;  // a query head's, of k and of v
  if (order == QkvOrder::neox_by_head && share * shape.heads != shape.groups * d)
    throw FormatError(fused.place + ": " + std::to_string(shape.groups * d) + " rows of keys do " +
                      "not divide by " + std::to_string(shape.heads) + " heads");
  std::vector<TensorSource> parts;
  int64_t first = 0;
  for (int64_t s = 0; s < 3; ++s) {
    const int64_t rows = (s == 0 ? shape.heads : shape.groups) * d;
    if (order == QkvOrder::stacked || order == QkvOrder::neox_stacked) {
      parts.push_back(slice_rows(fused, first, rows));
      first += rows;
    } else if (order == QkvOrder::neox_by_head) {
      const int64_t part = s == 0 ? d : share, before = s == 0 ? 0 : d + (s - 1) * share;
      parts.push_back(pick_rows(fused, rows, [d, share, part, before](int64_t row) {
        return row / part * (d + 2 * share) + before + row % part;
      }));
    } else if (order == QkvOrder::split_last) {
      parts.push_back(pick_rows(fused, rows, [s](int64_t row) { return row * 3 + s; }));
    } else if (s == 0) {
      parts.push_back(pick_rows(fused, rows, [d, per_group](int64_t row) {
        const int64_t head = row / d;
        return ((head / per_group) * (per_group + 2) + head % per_group) * d + row % d;
      }));
    } else {
      parts.push_back(pick_rows(fused, rows, [d, per_group, s](int64_t row) {
        return ((row / d) * (per_group + 2) + per_group + s - 1) * d + row % d;
      }));
    }
  }
  return parts;
}

TensorSource join_qkv(const TensorSource& q, const TensorSource& k, const TensorSource& v,
                      const QkvShape& shape) {
  const int64_t d = shape.head_size, per_group = shape.heads / shape.groups;
  const int64_t k_first = shape.heads * d, v_first = k_first + shape.groups * d;
  return pick_rows(join_rows({q, k, v}), shape.rows(),
                   [d, per_group, k_first, v_first](int64_t row) {
                     const int64_t group = row / d / (per_group + 2);
                     const int64_t slot = row / d % (per_group + 2);
                     if (slot < per_group) return (group * per_group + slot) * d + row % d;
                     return (slot == per_group ? k_first : v_first) + group * d + row % d;
                   });
}

}  // namespace convert
