// SPDX-License-Identifier: MIT
// Llama and the families that differ from it in a few rows: rotary positions on whole heads,
// RMSNorm, a gated MLP, heads grouped or not. Mistral attends to a window; Qwen2 has biases of only
// q, k and v; Qwen3 has norms of q and k.
// Source: transformers/models/{llama,mistral,qwen2,qwen3}/modeling_*.py, configuration_*.py.
#include <iterator>

#include "convert/families/families.h"

namespace convert {
namespace {

using Use = KeyRow::Use;

template <class Row>
std::vector<Row> with(std::vector<Row> rows, std::vector<Row> more) {
  rows.insert(rows.end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
  return rows;
}

/// The meaning of missing keys in a family, as its transformers class defines it.
struct Absent {
  std::string_view groups = "0", head_size = "0";  ///< "0": as many as heads; hidden size / heads.
};

std::vector<KeyRow> keys(Absent absent, std::vector<KeyRow> own) {
  const std::vector<KeyRow> first = {{"hidden_size"},
                                     {"ffn_hidden_size"},
                                     {"num_layers"},
                                     {"num_attention_heads"},
                                     {"num_query_groups", absent.groups},
                                     {"kv_channels", absent.head_size},
                                     {"max_position_embeddings"},
                                     {"activation", "swiglu"},
                                     {"norm_epsilon", "1e-06"},
                                     {"rotary_base", "10000"}};
  return with(with(first, std::move(own)),
              {{"attention_dropout", "0"}, {"init_method_std", "0.02"}});
}

std::vector<NameRow> rows() {
  return {{"model.embed_tokens.weight", {"embedding.word_embeddings.weight"}},
          {"model.norm.weight", {"decoder.final_layernorm.weight"}},
          {"lm_head.weight", {"output_layer.weight"}}};
}

NameRow layer_row(std::string_view hf, std::string_view canonical, bool optional = false) {
  return {hf, {canonical}, Fuse::none, false, optional};
}

std::vector<NameRow> layer_rows() {
  return {
      layer_row("model.layers.{}.input_layernorm.weight", "input_layernorm.weight"),
      layer_row("model.layers.{}.self_attn.q_proj.weight", "self_attention.linear_q.weight"),
      layer_row("model.layers.{}.self_attn.q_proj.bias", "self_attention.linear_q.bias", true),
      layer_row("model.layers.{}.self_attn.k_proj.weight", "self_attention.linear_k.weight"),
      layer_row("model.layers.{}.self_attn.k_proj.bias", "self_attention.linear_k.bias", true),
      layer_row("model.layers.{}.self_attn.v_proj.weight", "self_attention.linear_v.weight"),
      layer_row("model.layers.{}.self_attn.v_proj.bias", "self_attention.linear_v.bias", true),
      layer_row("model.layers.{}.self_attn.q_norm.weight", "self_attention.q_layernorm.weight",
                true),
      layer_row("model.layers.{}.self_attn.k_norm.weight", "self_attention.k_layernorm.weight",
                true),
      layer_row("model.layers.{}.self_attn.o_proj.weight", "self_attention.linear_proj.weight"),
      layer_row("model.layers.{}.self_attn.o_proj.bias", "self_attention.linear_proj.bias", true),
      layer_row("model.layers.{}.post_attention_layernorm.weight", "pre_mlp_layernorm.weight"),
      layer_row("model.layers.{}.mlp.gate_proj.weight", "mlp.linear_gate.weight"),
      layer_row("model.layers.{}.mlp.gate_proj.bias", "mlp.linear_gate.bias", true),
      layer_row("model.layers.{}.mlp.up_proj.weight", "mlp.linear_up.weight"),
      layer_row("model.layers.{}.mlp.up_proj.bias", "mlp.linear_up.bias", true),
      layer_row("model.layers.{}.mlp.down_proj.weight", "mlp.linear_fc2.weight"),
      layer_row("model.layers.{}.mlp.down_proj.bias", "mlp.linear_fc2.bias", true)};
}

Family family(std::string_view name, std::string_view architecture, Absent absent,
              std::vector<KeyRow> own) {
  return {.name = name,
          .architecture = architecture,
          .bases = {"model."},
          .ignored = {".rotary_emb.inv_freq"},
          .keys = keys(absent, std::move(own)),
          .rows = rows(),
          .layer_rows = layer_rows()};
}

// Models with a window in only some layers are not supported.
const std::vector<KeyRow> kNoWindow = {{"", "false", "use_sliding_window"}};

}  // namespace

const Family kLlama =
    family("llama", "LlamaForCausalLM", {}, {{"attention_bias", "false"}, {"mlp_bias", "false"}});
const Family kMistral =
    family("mistral", "MistralForCausalLM", {.groups = "8"}, {{"sliding_window", "4096"}});
const Family kQwen2 = family("qwen2", "Qwen2ForCausalLM", {.groups = "32"}, kNoWindow);
const Family kQwen3 = family("qwen3", "Qwen3ForCausalLM", {.groups = "32", .head_size = "128"},
                             with(kNoWindow, {{"attention_bias", "false"}}));

}  // namespace convert
