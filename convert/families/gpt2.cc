// SPDX-License-Identifier: MIT
// GPT-2: learned positions, LayerNorm before each branch, biases everywhere, usually a tied output
// layer. Its linears are Conv1D: stored (in, out). c_attn has all q columns, then all k, then all
// v.
// Source: transformers/models/gpt2/modeling_gpt2.py, configuration_gpt2.py.
#include "convert/families/families.h"

namespace convert {

using Use = KeyRow::Use;

const Family kGpt2 = {
    .name = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .bases = {"transformer."},
    .ignored = {".attn.bias", ".attn.masked_bias"},
    .keys = {{"max_position_embeddings", "", "n_positions"},
             {"max_position_embeddings", "", "n_ctx", Use::write},
             {"hidden_size", "", "n_embd"},
             {"num_layers", "", "n_layer"},
             {"num_attention_heads", "", "n_head"},
             {"ffn_hidden_size", "0", "n_inner"},
             {"activation", "gelu_tanh", "activation_function"},
             {"norm_epsilon", "1e-05", "layer_norm_epsilon"},
             {"hidden_dropout", "0.1", "resid_pdrop"},
             {"hidden_dropout", "0.1", "embd_pdrop", Use::training},
             {"attention_dropout", "0.1", "attn_pdrop"},
             {"init_method_std", "0.02"},
             {"", "true", "scale_attn_weights"},
             {"", "false", "scale_attn_by_inverse_layer_idx"},
             {"", "false", "reorder_and_upcast_attn", Use::write},
             {"", "false", "add_cross_attention", Use::read}},
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
};

}  // namespace convert
