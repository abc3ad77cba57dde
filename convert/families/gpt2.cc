// SPDX-License-Identifier: MIT
// GPT-2: learned positions, LayerNorm before each branch, biases everywhere, tied head as a rule.
// Its linears are Conv1D: stored (in, out). c_attn has all q columns, then all k, then all v.
// Source: transformers/models/gpt2/modeling_gpt2.py, configuration_gpt2.py.
#include "convert/families/families.h"
#include "libindexed/format.h"

namespace convert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using trainer::ModelSpec;

std::string refusal(const ModelSpec& spec) {
  if (spec.position != trainer::Position::learned) return "positions are not learned";
  if (spec.position_offset != 0) return "positions are offset";
  if (spec.norm != ops::Norm::layernorm) return "the norm is not LayerNorm";
  if (spec.activation == ops::Activation::swiglu) return "the MLP is gated";
  if (spec.parallel_residual) return "attention and MLP are parallel";
  return refusal_of_plain_heads(spec);
}

ordered_json config(const ModelSpec& spec) {
  ordered_json out;
  out["n_positions"] = spec.max_position_embeddings;
  out["n_ctx"] = spec.max_position_embeddings;
  out["n_embd"] = spec.hidden_size;
  out["n_layer"] = spec.num_layers;
  out["n_head"] = spec.num_attention_heads;
  out["n_inner"] = spec.ffn_hidden_size;
  out["activation_function"] = activation_name(spec.activation);
  out["layer_norm_epsilon"] = shortest(spec.norm_epsilon);
  out["resid_pdrop"] = shortest(spec.hidden_dropout);
  out["embd_pdrop"] = shortest(spec.hidden_dropout);
  out["attn_pdrop"] = shortest(spec.attention_dropout);
  out["initializer_range"] = shortest(spec.init_method_std);
  out["scale_attn_weights"] = true;
  out["scale_attn_by_inverse_layer_idx"] = false;
  out["reorder_and_upcast_attn"] = false;
  return out;
}

ModelSpec read_config(const json& config) {
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    if (config_bool(config, key, false))
      throw indexed::FormatError(std::string("key \"") + key +
                                 "\" is true, which is not supported");
  if (!config_bool(config, "scale_attn_weights", true))
    throw indexed::FormatError("key \"scale_attn_weights\" is false, which is not supported");
  ModelSpec spec;
  spec.family = "gpt2";
  spec.num_layers = config_integer(config, "n_layer");
  spec.hidden_size = config_integer(config, "n_embd");
  spec.ffn_hidden_size = config_integer(config, "n_inner", 4 * spec.hidden_size);
  spec.num_attention_heads = config_integer(config, "n_head");
  spec.num_query_groups = spec.num_attention_heads;
  if (spec.hidden_size % spec.num_attention_heads != 0)
    throw indexed::FormatError("n_head does not divide n_embd");
  spec.kv_channels = spec.hidden_size / spec.num_attention_heads;
  spec.max_position_embeddings = config_integer(config, "n_positions");
  spec.vocab_size = spec.padded_vocab_size = config_integer(config, "vocab_size");
  spec.norm_epsilon = config_real(config, "layer_norm_epsilon", 1e-5F);
  spec.activation = activation_from_name(config.value("activation_function", "gelu_new"));
  spec.tied_embeddings = config_bool(config, "tie_word_embeddings", true);
  spec.hidden_dropout = config_real(config, "resid_pdrop", 0.1F);
  spec.attention_dropout = config_real(config, "attn_pdrop", 0.1F);
  spec.init_method_std = config_real(config, "initializer_range", 0.02F);
  return spec;
}

}  // namespace

const Family kGpt2 = {
    .name = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .bases = {"transformer."},
    .ignored = {".attn.bias", ".attn.masked_bias"},
    .rows = {{"transformer.wte.weight", {"embedding.word_embeddings.weight"}},
             {"transformer.wpe.weight", {"embedding.position_embeddings.weight"}},
             {"transformer.ln_f.weight", {"decoder.final_layernorm.weight"}},
             {"transformer.ln_f.bias", {"decoder.final_layernorm.bias"}},
             {"lm_head.weight", {"output_layer.weight"}}},
    .layer_rows =
        {{"transformer.h.{}.ln_1.weight", {"input_layernorm.weight"}},
         {"transformer.h.{}.ln_1.bias", {"input_layernorm.bias"}},
         {"transformer.h.{}.attn.c_attn.weight",
          {"self_attention.linear_q.weight", "self_attention.linear_k.weight",
           "self_attention.linear_v.weight"},
          Fuse::stacked,
          true},
         {"transformer.h.{}.attn.c_attn.bias",
          {"self_attention.linear_q.bias", "self_attention.linear_k.bias",
           "self_attention.linear_v.bias"},
          Fuse::stacked},
         {"transformer.h.{}.attn.c_proj.weight",
          {"self_attention.linear_proj.weight"},
          Fuse::none,
          true},
         {"transformer.h.{}.attn.c_proj.bias", {"self_attention.linear_proj.bias"}},
         {"transformer.h.{}.ln_2.weight", {"pre_mlp_layernorm.weight"}},
         {"transformer.h.{}.ln_2.bias", {"pre_mlp_layernorm.bias"}},
         {"transformer.h.{}.mlp.c_fc.weight", {"mlp.linear_fc1.weight"}, Fuse::none, true},
         {"transformer.h.{}.mlp.c_fc.bias", {"mlp.linear_fc1.bias"}},
         {"transformer.h.{}.mlp.c_proj.weight", {"mlp.linear_fc2.weight"}, Fuse::none, true},
         {"transformer.h.{}.mlp.c_proj.bias", {"mlp.linear_fc2.bias"}}},
    .refusal = refusal,
    .config = config,
    .spec = read_config,
};

}  // namespace convert
