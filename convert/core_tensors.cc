// SPDX-License-Identifier: MIT
// megatron_source.h: add_core_tensors, from tensor-parallel shares of core parameters to canonical
// tensors. Also used for the trainer's own checkpoints, whose parameters have the same names.
#include "convert/megatron_names.h"
#include "convert/megatron_source.h"
#include "libindexed/format.h"

namespace convert {
namespace {

using indexed::FormatError;
using trainer::ModelSpec;

using Shares = std::map<std::string, std::vector<TensorSource>>;

// The first of the ranks' copies; only the shapes of the copies are compared.
TensorSource same_everywhere(const std::vector<TensorSource>& shares) {
  for (const TensorSource& share : shares)
    if (share.shape != shares[0].shape || share.dtype != shares[0].dtype)
      throw FormatError(share.place + ": another shape than " + shares[0].place);
  return shares[0];
}

void add_qkv(CanonicalModel& model, int64_t layer, const std::string& ending,
             const std::vector<TensorSource>& shares, QkvOrder order) {
  const ModelSpec& spec = model.spec;
  QkvShape shape{spec.num_attention_heads, spec.num_query_groups, spec.kv_channels};
  const int64_t ranks = static_cast<int64_t>(shares.size());
  std::vector<TensorSource> parts[3];
  if (shape.groups % ranks == 0) {
    shape.heads /= ranks;
    shape.groups /= ranks;
    for (const TensorSource& share : shares) {
      const std::vector<TensorSource> split = split_qkv(share, shape, order);
      for (size_t s = 0; s < 3; ++s) parts[s].push_back(split[s]);
    }
  } else if (order == QkvOrder::neox_stacked || order == QkvOrder::neox_by_head) {
    throw FormatError(shares[0].place + ": " + std::to_string(ranks) + " ranks do not divide " +
                      std::to_string(shape.groups) + " groups");
  } else {  // fewer groups than ranks: core cuts the rows evenly
    const std::vector<TensorSource> split = split_qkv(join_rows(shares), shape, order);
    for (size_t s = 0; s < 3; ++s) parts[s].push_back(split[s]);
  }
  constexpr const char* kNames[3] = {"linear_q.", "linear_k.", "linear_v."};
  for (size_t s = 0; s < 3; ++s)
    model.tensors[layer_name(layer, std::string("self_attention.") + kNames[s] + ending)] =
        join_rows(parts[s]);
}

void add_mlp_in(CanonicalModel& model, int64_t layer, const std::string& ending,
                const std::vector<TensorSource>& shares) {
  if (!model.spec.gated()) {
    model.tensors[layer_name(layer, "mlp.linear_fc1." + ending)] = join_rows(shares);
    return;
  }
  std::vector<TensorSource> gate, up;
  for (const TensorSource& share : shares) {
    const int64_t half = share.rows() / 2;
    gate.push_back(slice_rows(share, 0, half));
    up.push_back(slice_rows(share, half, share.rows() - half));
  }
  model.tensors[layer_name(layer, "mlp.linear_gate." + ending)] = join_rows(gate);
  model.tensors[layer_name(layer, "mlp.linear_up." + ending)] = join_rows(up);
}

const std::vector<TensorSource>& required(const Shares& shares, std::string_view name) {
  const auto found = shares.find(std::string(name));
  if (found == shares.end() || found->second.empty() || found->second[0].shape.empty())
    throw FormatError("no parameter " + std::string(name));
  return found->second;
}

// Takes sizes that the arguments lack from the shapes.
void complete_spec(ModelSpec& spec, const Shares& shares) {
  check_numbers(spec);
  const std::vector<TensorSource>& words = required(shares, "embedding.word_embeddings.weight");
  if (words[0].shape.size() != 2) throw FormatError(words[0].place + ": is no matrix");
  spec.padded_vocab_size = 0;
  for (const TensorSource& share : words) spec.padded_vocab_size += share.rows();
  if (spec.hidden_size == 0) spec.hidden_size = words[0].shape[1];
  if (spec.num_layers == 0)
    for (const auto& [name, parts] : shares)
      spec.num_layers = std::max(spec.num_layers, split_layer(name).layer + 1);
  if (spec.ffn_hidden_size == 0) {
    for (const TensorSource& share : required(shares, layer_name(0, "mlp.linear_fc1.weight")))
      spec.ffn_hidden_size += share.rows();
    if (spec.gated()) spec.ffn_hidden_size /= 2;
  }
  if (spec.kv_channels == 0) spec.kv_channels = spec.hidden_size / spec.num_attention_heads;
  if (spec.num_query_groups == 0) spec.num_query_groups = spec.num_attention_heads;
  if (spec.position == trainer::Position::learned && spec.max_position_embeddings == 0)
    spec.max_position_embeddings =
        required(shares, "embedding.position_embeddings.weight")[0].rows();
  if (spec.num_attention_heads < 1 || spec.num_query_groups < 1 || spec.kv_channels < 1 ||
      spec.num_attention_heads % spec.num_query_groups != 0)
    throw FormatError(std::to_string(spec.num_attention_heads) + " heads in " +
                      std::to_string(spec.num_query_groups) + " groups are impossible");
}

}  // namespace

void add_core_tensors(CanonicalModel& model, const Shares& shares, QkvOrder order) {
  complete_spec(model.spec, shares);
  if (const std::string why = trainer::rotary_refusal(model.spec); !why.empty())
    throw FormatError(why);
  for (const auto& [name, parts] : shares) {
    const LayerName place = split_layer(name);
    const std::string ending(name.substr(name.rfind('.') + 1));
    switch (share_of(name)) {
      case Share::same:
        model.tensors[name] = same_everywhere(parts);
        break;
      case Share::rows:
        if (name == "output_layer.weight" && model.spec.tied_embeddings) break;  // a copy
        model.tensors[name] = join_rows(parts);
        break;
      case Share::columns:
        model.tensors[name] = join_columns(parts);
        break;
      case Share::qkv:
        add_qkv(model, place.layer, ending, parts, order);
        break;
      case Share::mlp_in:
        add_mlp_in(model, place.layer, ending, parts);
        break;
    }
  }
  model.dtype = dtype_of_most(model);
  check_complete(model);
}

}  // namespace convert
