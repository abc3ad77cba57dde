// SPDX-License-Identifier: MIT
// OPT: as GPT-2, with ReLU, plain linears, q, k and v apart, and a position table whose first two
// rows no position uses (the trainer keeps them too: position_offset 2).
// OPT-350m (norm after each branch, projected embeddings) is another model and is refused.
// Source: transformers/models/opt/modeling_opt.py, configuration_opt.py.
#include "convert/families/families.h"
#include "libindexed/format.h"

namespace convert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using trainer::ModelSpec;

std::string refusal(const ModelSpec& spec) {
  if (spec.position != trainer::Position::learned || spec.position_offset != 2)
    return "positions are not learned ones with an offset of 2";
  if (spec.norm != ops::Norm::layernorm || spec.norm_epsilon != 1e-5F)
    return "the norm is not LayerNorm with an epsilon of 1e-5";
  if (spec.activation != ops::Activation::relu) return "the activation is not ReLU";
  if (spec.parallel_residual) return "attention and MLP are parallel";
  return refusal_of_plain_heads(spec);
}

ordered_json config(const ModelSpec& spec) {
  ordered_json out;
  out["hidden_size"] = spec.hidden_size;
  out["word_embed_proj_dim"] = spec.hidden_size;
  out["ffn_dim"] = spec.ffn_hidden_size;
  out["num_hidden_layers"] = spec.num_layers;
  out["num_attention_heads"] = spec.num_attention_heads;
  out["max_position_embeddings"] = spec.max_position_embeddings;
  out["activation_function"] = activation_name(spec.activation);
  out["do_layer_norm_before"] = true;
  out["_remove_final_layer_norm"] = false;
  out["layer_norm_elementwise_affine"] = true;
  out["enable_bias"] = true;
  out["dropout"] = shortest(spec.hidden_dropout);
  out["attention_dropout"] = shortest(spec.attention_dropout);
  out["layerdrop"] = 0.0;
  out["init_std"] = shortest(spec.init_method_std);
  return out;
}

ModelSpec read_config(const json& config) {
  for (const char* key : {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"})
    if (!config_bool(config, key, true))
      throw indexed::FormatError(std::string("key \"") + key +
                                 "\" is false, which is not supported");
  if (config_bool(config, "_remove_final_layer_norm", false))
    throw indexed::FormatError("key \"_remove_final_layer_norm\" is true, which is not supported");
  ModelSpec spec;
  spec.family = "opt";
  spec.num_layers = config_integer(config, "num_hidden_layers");
  spec.hidden_size = config_integer(config, "hidden_size");
  if (config_integer(config, "word_embed_proj_dim", spec.hidden_size) != spec.hidden_size)
    throw indexed::FormatError("projected embeddings are not supported");
  spec.ffn_hidden_size = config_integer(config, "ffn_dim");
  spec.num_attention_heads = spec.num_query_groups = config_integer(config, "num_attention_heads");
  spec.kv_channels = spec.hidden_size / spec.num_attention_heads;
  spec.max_position_embeddings = config_integer(config, "max_position_embeddings");
  spec.position_offset = 2;
  spec.vocab_size = spec.padded_vocab_size = config_integer(config, "vocab_size");
  spec.activation = activation_from_name(config.value("activation_function", "relu"));
  spec.tied_embeddings = config_bool(config, "tie_word_embeddings", true);
  spec.hidden_dropout = config_real(config, "dropout", 0.1F);
  spec.attention_dropout = config_real(config, "attention_dropout", 0.0F);
  spec.init_method_std = config_real(config, "init_std", 0.02F);
  return spec;
}

}  // namespace

const Family kOpt = {
    .name = "opt",
    .architecture = "OPTForCausalLM",
    .bases = {"model."},
    .ignored = {},
    .rows = {{"model.decoder.embed_tokens.weight", {"embedding.word_embeddings.weight"}},
             {"model.decoder.embed_positions.weight", {"embedding.position_embeddings.weight"}},
             {"model.decoder.final_layer_norm.weight", {"decoder.final_layernorm.weight"}},
             {"model.decoder.final_layer_norm.bias", {"decoder.final_layernorm.bias"}},
             {"lm_head.weight", {"output_layer.weight"}}},
    .layer_rows =
        {{"model.decoder.layers.{}.self_attn_layer_norm.weight", {"input_layernorm.weight"}},
         {"model.decoder.layers.{}.self_attn_layer_norm.bias", {"input_layernorm.bias"}},
         {"model.decoder.layers.{}.self_attn.q_proj.weight", {"self_attention.linear_q.weight"}},
         {"model.decoder.layers.{}.self_attn.q_proj.bias", {"self_attention.linear_q.bias"}},
         {"model.decoder.layers.{}.self_attn.k_proj.weight", {"self_attention.linear_k.weight"}},
         {"model.decoder.layers.{}.self_attn.k_proj.bias", {"self_attention.linear_k.bias"}},
         {"model.decoder.layers.{}.self_attn.v_proj.weight", {"self_attention.linear_v.weight"}},
         {"model.decoder.layers.{}.self_attn.v_proj.bias", {"self_attention.linear_v.bias"}},
         {"model.decoder.layers.{}.self_attn.out_proj.weight",
          {"self_attention.linear_proj.weight"}},
         {"model.decoder.layers.{}.self_attn.out_proj.bias", {"self_attention.linear_proj.bias"}},
         {"model.decoder.layers.{}.final_layer_norm.weight", {"pre_mlp_layernorm.weight"}},
         {"model.decoder.layers.{}.final_layer_norm.bias", {"pre_mlp_layernorm.bias"}},
         {"model.decoder.layers.{}.fc1.weight", {"mlp.linear_fc1.weight"}},
         {"model.decoder.layers.{}.fc1.bias", {"mlp.linear_fc1.bias"}},
         {"model.decoder.layers.{}.fc2.weight", {"mlp.linear_fc2.weight"}},
         {"model.decoder.layers.{}.fc2.bias", {"mlp.linear_fc2.bias"}}},
    .refusal = refusal,
    .config = config,
    .spec = read_config,
};

}  // namespace convert
