// SPDX-License-Identifier: MIT
// OPT: like GPT-2, but with ReLU, plain linears, separate q, k and v, and a position table whose
// first two rows no position uses (the trainer keeps them too: position_offset 2).
// OPT-350m has its norms after the branches, so a layer's last norm is the next one's input norm,
// and it has projected embeddings.
// Source: transformers/models/opt/modeling_opt.py, configuration_opt.py.
#include "convert/families/families.h"

namespace convert {

using Use = KeyRow::Use;
using When = NameRow::When;

namespace {

constexpr When kPre = When::pre_norm, kPost = When::post_norm;

NameRow only(When when, std::string_view hf, std::string_view canonical, bool next = false) {
  return {.hf = hf, .canonical = {canonical}, .when = when, .next = next};
}

}  // namespace

const Family kOpt = {
    .name = "opt",
    .architecture = "OPTForCausalLM",
    .bases = {"model."},
    .ignored = {},
    .keys = {{"hidden_size"},
             {"embedding_size", "0"},
             {"ffn_hidden_size", "", "ffn_dim"},
             {"num_layers"},
             {"num_attention_heads"},
             {"max_position_embeddings"},
             {"activation", "relu", "activation_function"},
             {"post_norm", "false", "do_layer_norm_before", Use::both, true},
             {"", "false", "_remove_final_layer_norm"},
             {"", "true", "layer_norm_elementwise_affine"},
             {"", "true", "enable_bias"},
             {"hidden_dropout", "0.1", "dropout"},
             {"attention_dropout", "0"},
             {"", "0.0", "layerdrop", Use::write},
             {"init_method_std", "0.02", "init_std"}},
    .rows = {{"model.decoder.embed_tokens.weight", {"embedding.word_embeddings.weight"}},
             {"model.decoder.embed_positions.weight", {"embedding.position_embeddings.weight"}},
             {.hf = "model.decoder.project_in.weight",
              .canonical = {"embedding.project_in.weight"},
              .optional = true},
             only(kPre, "model.decoder.final_layer_norm.weight", "decoder.final_layernorm.weight"),
             only(kPre, "model.decoder.final_layer_norm.bias", "decoder.final_layernorm.bias"),
             {.hf = "model.decoder.project_out.weight",
              .canonical = {"project_out.weight"},
              .optional = true},
             {"lm_head.weight", {"output_layer.weight"}}},
    .layer_rows =
        {only(kPre, "model.decoder.layers.{}.self_attn_layer_norm.weight",
              "input_layernorm.weight"),
         only(kPost, "model.decoder.layers.{}.self_attn_layer_norm.weight",
              "pre_mlp_layernorm.weight"),
         only(kPre, "model.decoder.layers.{}.self_attn_layer_norm.bias", "input_layernorm.bias"),
         only(kPost, "model.decoder.layers.{}.self_attn_layer_norm.bias", "pre_mlp_layernorm.bias"),
         {"model.decoder.layers.{}.self_attn.q_proj.weight", {"self_attention.linear_q.weight"}},
         {"model.decoder.layers.{}.self_attn.q_proj.bias", {"self_attention.linear_q.bias"}},
         {"model.decoder.layers.{}.self_attn.k_proj.weight", {"self_attention.linear_k.weight"}},
         {"model.decoder.layers.{}.self_attn.k_proj.bias", {"self_attention.linear_k.bias"}},
         {"model.decoder.layers.{}.self_attn.v_proj.weight", {"self_attention.linear_v.weight"}},
         {"model.decoder.layers.{}.self_attn.v_proj.bias", {"self_attention.linear_v.bias"}},
         {"model.decoder.layers.{}.self_attn.out_proj.weight",
          {"self_attention.linear_proj.weight"}},
         {"model.decoder.layers.{}.self_attn.out_proj.bias", {"self_attention.linear_proj.bias"}},
         only(kPre, "model.decoder.layers.{}.final_layer_norm.weight", "pre_mlp_layernorm.weight"),
         only(kPost, "model.decoder.layers.{}.final_layer_norm.weight", "input_layernorm.weight",
              true),
         only(kPre, "model.decoder.layers.{}.final_layer_norm.bias", "pre_mlp_layernorm.bias"),
         only(kPost, "model.decoder.layers.{}.final_layer_norm.bias", "input_layernorm.bias", true),
         {"model.decoder.layers.{}.fc1.weight", {"mlp.linear_fc1.weight"}},
         {"model.decoder.layers.{}.fc1.bias", {"mlp.linear_fc1.bias"}},
         {"model.decoder.layers.{}.fc2.weight", {"mlp.linear_fc2.weight"}},
         {"model.decoder.layers.{}.fc2.bias", {"mlp.linear_fc2.bias"}}},
};

}  // namespace convert
