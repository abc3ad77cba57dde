// SPDX-License-Identifier: MIT
// GPT-NeoX and Pythia: rotary positions on part of each head, LayerNorm, biases, attention and MLP
// in parallel or in sequence, usually an untied output layer. Its fused qkv rows are (N, 3, D), as
// Megatron's of version 2 and later.
// Source: transformers/models/gpt_neox/modeling_gpt_neox.py, configuration_gpt_neox.py.
#include "convert/families/families.h"

namespace convert {

const Family kGptNeox = {
    .name = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .bases = {"gpt_neox."},
    .ignored = {".attention.bias", ".masked_bias", ".rotary_emb.inv_freq"},
    .keys = {{"hidden_size"},
             {"ffn_hidden_size"},
             {"num_layers"},
             {"num_attention_heads"},
             {"max_position_embeddings"},
             {"activation", "gelu_erf"},
             {"norm_epsilon", "1e-05", "layer_norm_eps"},
             {"rotary_percent", "0.25", "rotary_pct"},
             {"rotary_base", "10000", "rotary_emb_base"},
             {"parallel_residual", "true"},
             {"", "true", "attention_bias"},
             {"hidden_dropout", "0", "hidden_dropout"},
             {"attention_dropout", "0"},
             {"init_method_std", "0.02"}},
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
};

}  // namespace convert
