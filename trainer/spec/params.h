// ParamSpec: the table of a model's parameters, the only list of them in the project. Allocation,
// initial values, optimizer groups, checkpoint and conversion all walk it. Not here: where a
// parameter lies in memory (parallel/flat_layout.h). May include: ops/, spec/spec.h. Shapes are
// the whole model's; (out, in) for linears.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/spec/spec.h"

namespace trainer {

/// What a parameter is for; with the layer it names a parameter inside the program.
enum class Role : uint8_t {
  word_embeddings,
  position_embeddings,
  project_in,
  input_norm_weight,
  input_norm_bias,
  qkv_weight,
  qkv_bias,
  q_norm_weight,
  q_norm_bias,
  k_norm_weight,
  k_norm_bias,
  proj_weight,
  proj_bias,
  mlp_norm_weight,
  mlp_norm_bias,
  fc1_weight,
  fc1_bias,
  fc2_weight,
  fc2_bias,
  final_norm_weight,
  final_norm_bias,
  project_out,
  output_layer,
};
inline constexpr int kNumRoles = 23;

/// zeros, ones, Normal(0, init_method_std), Normal(0, init_method_std / sqrt(2 num_layers)).
enum class Init : uint8_t { zeros, ones, normal, scaled_normal };

/// One row of the table.
struct ParamSpec {
  std::string name;  ///< Megatron-core's: decoder.layers.3.self_attention.linear_qkv.weight.
  Role role{};
  int64_t layer = -1;          ///< 0 .. L-1; -1 before the layers, L after them.
  std::vector<int64_t> shape;  ///< One or two dimensions.
  int split = -1;  ///< Dimension divided among tensor-parallel ranks; -1: whole on each.
  /// The split dimension is this many equal parts, each divided on its own (swiglu's gate and up:
  /// 2).
  int split_parts = 1;
  Init init = Init::normal;
  bool decay = true;  ///< Weight decay: all but biases and norms, as in Megatron.
  /// Whole on each tensor-parallel rank, but read only by this rank's heads: gradients are summed.
  bool of_heads = false;

  int64_t elements() const noexcept {
    int64_t count = 1;
    for (int64_t n : shape) count *= n;
    return count;
  }
};

/// A linear layer's weight, which an optimizer of matrices updates. Embeddings, their projections
/// and the output layer do not count, though they have two dimensions. Source:
/// is_embedding_or_output_parameter in Megatron-LM core/optimizer/emerging_optimizers.py; position
/// embeddings count as embeddings here.
bool is_matrix(const ParamSpec& spec) noexcept;

/// All parameters in the order of forward. Deterministic; independent of any layout.
std::vector<ParamSpec> param_table(const ModelSpec& spec);
/// How many those are; faster than the table.
int64_t count_param_rows(const ModelSpec& spec);

/// A rank's model chunk: layers first_layer .. first_layer + num_layers - 1 of the model, and a
/// share of each.
struct Place {
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  bool has_embedding = true;  ///< First pipeline stage.
  bool has_head = true;       ///< Last pipeline stage (a copy of tied embeddings too).
  int tensor_rank = 0;
  int tensor_size = 1;
};
/// Everything on one rank.
Place whole_model(const ModelSpec& spec);

/// A parameter on this rank.
struct LocalParam {
  ParamSpec spec;              ///< Of the whole.
  std::vector<int64_t> shape;  ///< Held here; = spec.shape without a split.
  /// Where this rank's rows or columns begin in each of spec.split_parts parts.
  int64_t first = 0;
  int64_t elements() const noexcept {
    int64_t count = 1;
    for (int64_t n : shape) count *= n;
    return count;
  }
};
/// The entries of param_table that the chunks of one rank hold, in its order. Errors: ShapeError
/// when a split leaves a rest.
std::vector<LocalParam> local_params(const ModelSpec& spec, std::span<const Place> chunks);
std::vector<LocalParam> local_params(const ModelSpec& spec, const Place& place);

/// The Philox stream of a parameter's initial values: FNV-1a (32 bits) of its name.
uint32_t init_stream(const std::string& name) noexcept;

}  // namespace trainer
