// SPDX-License-Identifier: MIT
// GPT-NeoX and Pythia: rotary positions on part of each head, LayerNorm, biases, attention and MLP
// in parallel or one after the other, untied head as a rule. Its fused qkv rows are (N, 3, D), as
// Megatron's of version 2 and later.
// Source: transformers/models/gpt_neox/modeling_gpt_neox.py, configuration_gpt_neox.py.
#include "convert/families/families.h"
#include "libindexed/format.h"

namespace convert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using trainer::ModelSpec;

std::string refusal(const ModelSpec& spec) {
  if (spec.position != trainer::Position::rotary) return "positions are not rotary";
  if (spec.norm != ops::Norm::layernorm) return "the norm is not LayerNorm";
  if (spec.activation == ops::Activation::swiglu) return "the MLP is gated";
  return refusal_of_plain_heads(spec);
}

ordered_json config(const ModelSpec& spec) {
  ordered_json out;
  out["hidden_size"] = spec.hidden_size;
  out["intermediate_size"] = spec.ffn_hidden_size;
  out["num_hidden_layers"] = spec.num_layers;
  out["num_attention_heads"] = spec.num_attention_heads;
  out["max_position_embeddings"] = spec.max_position_embeddings;
  out["hidden_act"] = activation_name(spec.activation);
  out["layer_norm_eps"] = shortest(spec.norm_epsilon);
  out["rotary_pct"] = shortest(spec.rotary_percent);
  out["rotary_emb_base"] = shortest(spec.rotary_base);
  out["use_parallel_residual"] = spec.parallel_residual;
  out["attention_bias"] = true;
  out["hidden_dropout"] = shortest(spec.hidden_dropout);
  out["attention_dropout"] = shortest(spec.attention_dropout);
  out["initializer_range"] = shortest(spec.init_method_std);
  return out;
}

ModelSpec read_config(const json& config) {
  if (!config_bool(config, "attention_bias", true))
    throw indexed::FormatError("key \"attention_bias\" is false, which is not supported");
  ModelSpec spec;
  spec.family = "gpt_neox";
  spec.position = trainer::Position::rotary;
  spec.num_layers = config_integer(config, "num_hidden_layers");
  spec.hidden_size = config_integer(config, "hidden_size");
  spec.ffn_hidden_size = config_integer(config, "intermediate_size");
  spec.num_attention_heads = spec.num_query_groups = config_integer(config, "num_attention_heads");
  spec.kv_channels = spec.hidden_size / spec.num_attention_heads;
  spec.max_position_embeddings = config_integer(config, "max_position_embeddings");
  spec.vocab_size = spec.padded_vocab_size = config_integer(config, "vocab_size");
  spec.norm_epsilon = config_real(config, "layer_norm_eps", 1e-5F);
  const json rope = rope_parameters(config);
  spec.rotary_percent =
      config_real(rope, "partial_rotary_factor", config_real(config, "rotary_pct", 0.25F));
  spec.rotary_base =
      config_real(rope, "rope_theta", config_real(config, "rotary_emb_base", 10000.0F));
  spec.activation = activation_from_name(config.value("hidden_act", "gelu"));
  spec.parallel_residual = config_bool(config, "use_parallel_residual", true);
  spec.tied_embeddings = config_bool(config, "tie_word_embeddings", false);
  spec.hidden_dropout = config_real(config, "hidden_dropout", 0.0F);
  spec.attention_dropout = config_real(config, "attention_dropout", 0.0F);
  spec.init_method_std = config_real(config, "initializer_range", 0.02F);
  return spec;
}

}  // namespace

const Family kGptNeox = {
    .name = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .bases = {"gpt_neox."},
    .ignored = {".attention.bias", ".masked_bias", ".rotary_emb.inv_freq"},
    .rows = {{"gpt_neox.embed_in.weight", {"embedding.word_embeddings.weight"}},
             {"gpt_neox.final_layer_norm.weight", {"decoder.final_layernorm.weight"}},
             {"gpt_neox.final_layer_norm.bias", {"decoder.final_layernorm.bias"}},
             {"embed_out.weight", {"output_layer.weight"}}},
    .layer_rows = {{"gpt_neox.layers.{}.input_layernorm.weight", {"input_layernorm.weight"}},
                   {"gpt_neox.layers.{}.input_layernorm.bias", {"input_layernorm.bias"}},
                   {"gpt_neox.layers.{}.attention.query_key_value.weight",
                    {"self_attention.linear_q.weight", "self_attention.linear_k.weight",
                     "self_attention.linear_v.weight"},
                    Fuse::grouped},
                   {"gpt_neox.layers.{}.attention.query_key_value.bias",
                    {"self_attention.linear_q.bias", "self_attention.linear_k.bias",
                     "self_attention.linear_v.bias"},
                    Fuse::grouped},
                   {"gpt_neox.layers.{}.attention.dense.weight",
                    {"self_attention.linear_proj.weight"}},
                   {"gpt_neox.layers.{}.attention.dense.bias", {"self_attention.linear_proj.bias"}},
                   {"gpt_neox.layers.{}.post_attention_layernorm.weight",
                    {"pre_mlp_layernorm.weight"}},
                   {"gpt_neox.layers.{}.post_attention_layernorm.bias", {"pre_mlp_layernorm.bias"}},
                   {"gpt_neox.layers.{}.mlp.dense_h_to_4h.weight", {"mlp.linear_fc1.weight"}},
                   {"gpt_neox.layers.{}.mlp.dense_h_to_4h.bias", {"mlp.linear_fc1.bias"}},
                   {"gpt_neox.layers.{}.mlp.dense_4h_to_h.weight", {"mlp.linear_fc2.weight"}},
                   {"gpt_neox.layers.{}.mlp.dense_4h_to_h.bias", {"mlp.linear_fc2.bias"}}},
    .refusal = refusal,
    .config = config,
    .spec = read_config,
};

}  // namespace convert
