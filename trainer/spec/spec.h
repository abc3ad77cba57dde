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

/// How a model encodes a token's position.
enum class Position : uint8_t { learned, rotary, none };

/// Everything that distinguishes one model from another. Constant once complete() has accepted it.
/// Each member has a row in model_fields.h.
struct ModelSpec {
  /// The family of families.h as which the model is written for Hugging Face; empty: none can
  /// represent it. No computation depends on it.
  std::string family;
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t num_query_groups = 0;  ///< = num_attention_heads without grouped-query attention.
  int64_t kv_channels = 0;       ///< Usually hidden_size / num_attention_heads.
  int64_t max_position_embeddings = 0;
  int64_t vocab_size = 0;         ///< Real token ids.
  int64_t padded_vocab_size = 0;  ///< Rows of the word embeddings.
  /// Columns of the word embeddings and of the output layer; 0: hidden_size. Other sizes are
  /// projected to hidden_size before the layers, and back after them (OPT-350m).
  int64_t embedding_size = 0;

  ops::Norm norm = ops::Norm::layernorm;
  float norm_epsilon = 1e-5f;
  Position position = Position::learned;
  int64_t position_offset = 0;  ///< Rows skipped in the position table (OPT: 2).
  float rotary_percent = 1;
  float rotary_base = 10000;
  float rotary_interpolation = 1;  ///< Positions are divided by it (rope_type linear).
  /// Low frequencies are divided by rotary_scaling_factor, high ones stay, and those in between are
  /// blended (rope_type llama3): rotary.h.
  bool rotary_scaling = false;
  float rotary_scaling_factor = 8;
  float rotary_low_freq_factor = 1;
  float rotary_high_freq_factor = 4;
  int64_t rotary_original_positions = 8192;
  int64_t sliding_window = 0;  ///< Keys that a query sees, including its own; 0: all before it.
  bool qk_norm = false;        ///< A norm of each query and key head, before rotary.
  ops::Activation activation = ops::Activation::gelu_tanh;
  bool parallel_residual = false;  ///< x + attention(norm1(x)) + mlp(norm2(x)).
  /// norm(x + branch(x)) in place of x + branch(norm(x)): each norm's output is the stream that
  /// the next branch reads and is added to. The norm after a layer is the next layer's input norm,
  /// the one after the last layer is the final norm, and the first layer has no input norm.
  bool post_norm = false;
  // Biases. settle_biases() brings these four into one form: linear_bias alone where all linears
  // have one, else attention_bias before qkv_bias.
  bool linear_bias = true;      ///< qkv, proj, fc1 and fc2.
  bool qkv_bias = false;        ///< qkv.
  bool attention_bias = false;  ///< qkv and proj.
  bool mlp_bias = false;        ///< fc1 and fc2.
  bool tied_embeddings = true;  ///< The output layer is the word embedding table.

  float hidden_dropout = 0.1f;
  float attention_dropout = 0.1f;
  float init_method_std = 0.02f;

  bool has_qkv_bias() const noexcept { return linear_bias || attention_bias || qkv_bias; }
  bool has_proj_bias() const noexcept { return linear_bias || attention_bias; }
  bool has_mlp_bias() const noexcept { return linear_bias || mlp_bias; }
  int64_t embedding_columns() const noexcept {
    return embedding_size > 0 ? embedding_size : hidden_size;
  }
  bool projects_embeddings() const noexcept { return embedding_columns() != hidden_size; }
  bool has_input_norm(int64_t layer) const noexcept { return !post_norm || layer > 0; }
  bool gated() const noexcept { return activation == ops::Activation::swiglu; }

  /// qkv columns: G * (N/G + 2) * D.
  int64_t qkv_size() const noexcept {
    return (num_attention_heads + 2 * num_query_groups) * kv_channels;
  }
  /// Columns of fc1: twice ffn_hidden_size for swiglu.
  int64_t fc1_size() const noexcept { return gated() ? 2 * ffn_hidden_size : ffn_hidden_size; }
  int64_t rotary_dim() const noexcept {
    return position == Position::rotary
               ? static_cast<int64_t>(rotary_percent * static_cast<float>(kv_channels)) / 2 * 2
               : 0;
  }
};

/// The family's norm, position, activation, biases, tying and dropout; sizes are left 0.
/// Errors: ShapeError naming the families when `family` is none of families.h.
ModelSpec family_defaults(std::string_view family);

/// Brings the four bias members into the one form that their comment describes.
void settle_biases(ModelSpec& spec);

/// Why the rotary part of a head cannot be rotated in pairs; empty: it can. Libraries differ in how
/// they treat an odd channel.
std::string rotary_refusal(const ModelSpec& spec);

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
