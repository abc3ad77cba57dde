// SPDX-License-Identifier: MIT
// OPT: like GPT-2, with ReLU, plain linears, separate q, k and v, and a position table whose first
// two rows are unused (the trainer keeps them too: position_offset 2). OPT-350m (norm after each
// branch, projected embeddings) is another model and is refused.
// Source: transformers/models/opt/modeling_opt.py, configuration_opt.py.
#include "convert/families/families.h"

namespace convert {

using Use = KeyRow::Use;

const Family kOpt = {
    .name = "opt",
    .architecture = "OPTForCausalLM",
    .bases = {"model."},
    .ignored = {},
    .keys = {{"hidden_size"},
             {"hidden_size", "", "word_embed_proj_dim", Use::equal},
             {"ffn_hidden_size", "", "ffn_dim"},
             {"num_layers"},
             {"num_attention_heads"},
             {"max_position_embeddings"},
             {"activation", "relu", "activation_function"},
             {"", "true", "do_layer_norm_before"},
             {"", "false", "_remove_final_layer_norm"},
             {"", "true", "layer_norm_elementwise_affine"},
             {"", "true", "enable_bias"},
             {"hidden_dropout", "0.1", "dropout"},
             {"attention_dropout", "0"},
             {"", "0.0", "layerdrop", Use::write},
             {"init_method_std", "0.02", "init_std"}},
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
};

}  // namespace convert
