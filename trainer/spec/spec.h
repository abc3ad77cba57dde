// ModelSpec: a family of models as data, and what follows from it.
// Not here: the list of parameters (params.h), how a block computes (block.h), the user's flags
// (config/). May include: ops/. Names are Megatron's; counts are the whole model's.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/ops/activation.h"
#include "trainer/ops/norm.h"

namespace trainer {

/// How a model knows where a token stands.
enum class Position : uint8_t { learned, rotary, none };

/// Everything that tells one model of a family from another. Constant once check() has accepted it.
struct ModelSpec {
  std::string family =
      "gpt2";  ///< gpt2, opt, gpt_neox, llama: decides defaults and conversion only.
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t num_query_groups = 0;  ///< = num_attention_heads without grouped-query attention.
  int64_t kv_channels = 0;       ///< hidden_size / num_attention_heads as a rule.
  int64_t max_position_embeddings = 0;
  int64_t vocab_size = 0;         ///< Real token ids.
  int64_t padded_vocab_size = 0;  ///< Rows of the word embeddings.

  ops::Norm norm = ops::Norm::layernorm;
  float norm_epsilon = 1e-5f;
  Position position = Position::learned;
  int64_t position_offset = 0;  ///< Rows skipped in the position table (OPT: 2).
  float rotary_percent = 1;
  float rotary_base = 10000;
  ops::Activation activation = ops::Activation::gelu_tanh;
  bool parallel_residual = false;  ///< x + attention(norm1(x)) + mlp(norm2(x)).
  bool linear_bias = true;         ///< Biases of qkv, proj, fc1, fc2.
  bool tied_embeddings = true;     ///< The output layer is the word embedding table.

  float hidden_dropout = 0.1f;
  float attention_dropout = 0.1f;
  float init_method_std = 0.02f;

  /// qkv columns: G * (N/G + 2) * D.
  int64_t qkv_size() const noexcept {
    return (num_attention_heads + 2 * num_query_groups) * kv_channels;
  }
  /// Columns of fc1: twice ffn_hidden_size for swiglu.
  int64_t fc1_size() const noexcept {
    return activation == ops::Activation::swiglu ? 2 * ffn_hidden_size : ffn_hidden_size;
  }
  int64_t rotary_dim() const noexcept {
    return position == Position::rotary
               ? static_cast<int64_t>(rotary_percent * static_cast<float>(kv_channels)) / 2 * 2
               : 0;
  }
};

/// The family's norm, position, activation, biases, tying and dropout; sizes are left 0.
/// Errors: ShapeError naming the families when `family` is none.
ModelSpec family_defaults(std::string_view family);

/// Fills what follows (ffn_hidden_size, num_query_groups, kv_channels where 0) and checks the rest.
/// Errors: ShapeError naming field, value and permitted range.
void complete(ModelSpec& spec);

/// 1 / sqrt(kv_channels).
float softmax_scale(const ModelSpec& spec);

/// All parameters, padding rows included.
int64_t count_parameters(const ModelSpec& spec);

/// Floating point operations of one sample's forward and backward, recompute not counted, as
/// Megatron-LM prints them: causal attention counted whole, head with the padded vocabulary.
/// Source: Narayanan et al. 2021, "Efficient large-scale language model training", equation 3.
double flops_per_sample(const ModelSpec& spec, int64_t seq_length);

}  // namespace trainer
