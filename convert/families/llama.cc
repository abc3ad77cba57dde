// SPDX-License-Identifier: MIT
// Llama and what is written as it (Mistral without a window): rotary positions on whole heads,
// RMSNorm, a gated MLP, no biases, heads grouped or not.
// Source: transformers/models/llama/modeling_llama.py, configuration_llama.py.
#include "convert/families/families.h"
#include "libindexed/format.h"

namespace convert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using trainer::ModelSpec;

std::string refusal(const ModelSpec& spec) {
  if (spec.position != trainer::Position::rotary || spec.rotary_percent != 1.0F)
    return "positions are not rotary on whole heads";
  if (spec.norm != ops::Norm::rmsnorm) return "the norm is not RMSNorm";
  if (spec.activation != ops::Activation::swiglu) return "the MLP is not gated by SiLU";
  if (spec.linear_bias) return "linears have biases";
  if (spec.parallel_residual) return "attention and MLP are parallel";
  return {};
}

ordered_json config(const ModelSpec& spec) {
  ordered_json out;
  out["hidden_size"] = spec.hidden_size;
  out["intermediate_size"] = spec.ffn_hidden_size;
  out["num_hidden_layers"] = spec.num_layers;
  out["num_attention_heads"] = spec.num_attention_heads;
  out["num_key_value_heads"] = spec.num_query_groups;
  out["head_dim"] = spec.kv_channels;
  out["max_position_embeddings"] = spec.max_position_embeddings;
  out["hidden_act"] = "silu";
  out["rms_norm_eps"] = shortest(spec.norm_epsilon);
  out["rope_theta"] = shortest(spec.rotary_base);
  out["attention_bias"] = false;
  out["mlp_bias"] = false;
  out["attention_dropout"] = shortest(spec.attention_dropout);
  out["initializer_range"] = shortest(spec.init_method_std);
  return out;
}

ModelSpec read_config(const json& config) {
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (config_bool(config, key, false))
      throw indexed::FormatError(std::string("key \"") + key +
                                 "\" is true, which is not supported");
  if (config.value("hidden_act", "silu") != "silu")
    throw indexed::FormatError("hidden_act \"" + config.value("hidden_act", "") +
                               "\" is not supported, expected silu");
  ModelSpec spec;
  spec.family = "llama";
  spec.position = trainer::Position::rotary;
  spec.norm = ops::Norm::rmsnorm;
  spec.activation = ops::Activation::swiglu;
  spec.linear_bias = false;
  spec.num_layers = config_integer(config, "num_hidden_layers");
  spec.hidden_size = config_integer(config, "hidden_size");
  spec.ffn_hidden_size = config_integer(config, "intermediate_size");
  spec.num_attention_heads = config_integer(config, "num_attention_heads");
  spec.num_query_groups = config_integer(config, "num_key_value_heads", spec.num_attention_heads);
  if (spec.num_attention_heads % spec.num_query_groups != 0)
    throw indexed::FormatError("num_key_value_heads does not divide num_attention_heads");
  spec.kv_channels =
      config_integer(config, "head_dim", spec.hidden_size / spec.num_attention_heads);
  spec.max_position_embeddings = config_integer(config, "max_position_embeddings");
  spec.vocab_size = spec.padded_vocab_size = config_integer(config, "vocab_size");
  spec.norm_epsilon = config_real(config, "rms_norm_eps", 1e-6F);
  spec.rotary_base = config_real(rope_parameters(config), "rope_theta",
                                 config_real(config, "rope_theta", 10000.0F));
  spec.tied_embeddings = config_bool(config, "tie_word_embeddings", false);
  spec.hidden_dropout = 0;
  spec.attention_dropout = config_real(config, "attention_dropout", 0.0F);
  spec.init_method_std = config_real(config, "initializer_range", 0.02F);
  return spec;
}

}  // namespace

const Family kLlama = {
    .name = "llama",
    .architecture = "LlamaForCausalLM",
    .bases = {"model."},
    .ignored = {".rotary_emb.inv_freq"},
    .rows = {{"model.embed_tokens.weight", {"embedding.word_embeddings.weight"}},
             {"model.norm.weight", {"decoder.final_layernorm.weight"}},
             {"lm_head.weight", {"output_layer.weight"}}},
    .layer_rows = {{"model.layers.{}.input_layernorm.weight", {"input_layernorm.weight"}},
                   {"model.layers.{}.self_attn.q_proj.weight", {"self_attention.linear_q.weight"}},
                   {"model.layers.{}.self_attn.k_proj.weight", {"self_attention.linear_k.weight"}},
                   {"model.layers.{}.self_attn.v_proj.weight", {"self_attention.linear_v.weight"}},
                   {"model.layers.{}.self_attn.o_proj.weight",
                    {"self_attention.linear_proj.weight"}},
                   {"model.layers.{}.post_attention_layernorm.weight",
                    {"pre_mlp_layernorm.weight"}},
                   {"model.layers.{}.mlp.gate_proj.weight", {"mlp.linear_gate.weight"}},
                   {"model.layers.{}.mlp.up_proj.weight", {"mlp.linear_up.weight"}},
                   {"model.layers.{}.mlp.down_proj.weight", {"mlp.linear_fc2.weight"}}},
    .refusal = refusal,
    .config = config,
    .spec = read_config,
};

}  // namespace convert
