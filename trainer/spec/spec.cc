// ModelSpec: what follows from it, and flops.
//
// SPDX-License-Identifier: MIT
#include "trainer/spec/spec.h"

#include <algorithm>
#include <cmath>

#include "trainer/spec/model_fields.h"
#include "trainer/spec/params.h"

namespace trainer {
namespace {

void require(bool holds, const char* field, int64_t value, const char* why) {
  if (!holds)
    throw ShapeError(std::string("model: ") + field + " " + std::to_string(value) + ": " + why);
}

}  // namespace

void settle_biases(ModelSpec& spec) {
  spec.linear_bias = spec.linear_bias || (spec.attention_bias && spec.mlp_bias);
  spec.attention_bias = spec.attention_bias && !spec.linear_bias;
  spec.mlp_bias = spec.mlp_bias && !spec.linear_bias;
  spec.qkv_bias = spec.qkv_bias && !spec.linear_bias && !spec.attention_bias;
}

std::string rotary_refusal(const ModelSpec& spec) {
  if (spec.position != Position::rotary) return {};
  const int64_t channels =
      static_cast<int64_t>(spec.rotary_percent * static_cast<float>(spec.kv_channels));
  if (channels % 2 == 0) return {};
  return "rotary_percent " + field_text(model_field("rotary_percent"), spec) + " of kv_channels " +
         std::to_string(spec.kv_channels) + " is " + std::to_string(channels) +
         ": expected an even number, since pairs are rotated";
}

void complete(ModelSpec& spec) {
  settle_biases(spec);
  require(spec.num_layers > 0, "num_layers", spec.num_layers, "at least 1");
  require(spec.hidden_size > 0, "hidden_size", spec.hidden_size, "at least 1");
  const int64_t heads = spec.num_attention_heads;
  require(heads > 0, "num_attention_heads", heads, "at least 1");
  if (spec.num_query_groups == 0) spec.num_query_groups = heads;
  require(spec.num_query_groups > 0 && heads % spec.num_query_groups == 0, "num_query_groups",
          spec.num_query_groups, "must divide num_attention_heads");
  if (spec.kv_channels == 0) {
    require(spec.hidden_size % heads == 0, "num_attention_heads", heads, "must divide hidden_size");
    spec.kv_channels = spec.hidden_size / heads;
  }
  require(spec.kv_channels > 0, "kv_channels", spec.kv_channels, "at least 1");
  if (spec.ffn_hidden_size == 0)
    spec.ffn_hidden_size = spec.gated() ? std::max<int64_t>(spec.hidden_size * 8 / 3 / 64 * 64, 64)
                                        : 4 * spec.hidden_size;
  require(spec.ffn_hidden_size > 0, "ffn_hidden_size", spec.ffn_hidden_size, "at least 1");
  require(spec.vocab_size > 0, "vocab_size", spec.vocab_size, "at least 1");
  if (spec.padded_vocab_size == 0) spec.padded_vocab_size = spec.vocab_size;
  require(spec.padded_vocab_size >= spec.vocab_size, "padded_vocab_size", spec.padded_vocab_size,
          "at least vocab_size");
  require(spec.embedding_size >= 0, "embedding_size", spec.embedding_size, "at least 1");
  if (spec.embedding_size == spec.hidden_size) spec.embedding_size = 0;
  require(spec.max_position_embeddings > 0 || spec.position == Position::none,
          "max_position_embeddings", spec.max_position_embeddings, "at least 1");
  require(spec.sliding_window >= 0, "sliding_window", spec.sliding_window, "0 or more");
  require(!spec.rotary_scaling || spec.rotary_interpolation == 1, "rotary_scaling", 1,
          "not together with rotary_interpolation");
  require(!spec.parallel_residual || !spec.post_norm, "post_norm", 1,
          "not together with parallel_residual");
  require(!spec.parallel_residual || spec.hidden_dropout == 0, "hidden_dropout (in percent)",
          static_cast<int64_t>(spec.hidden_dropout * 100), "0 with a parallel residual");
}

float softmax_scale(const ModelSpec& spec) {
  return 1.0f / std::sqrt(static_cast<float>(spec.kv_channels));
}

int64_t count_parameters(const ModelSpec& spec) {
  int64_t count = 0;
  for (const ParamSpec& param : param_table(spec)) count += param.elements();
  return count;
}

double flops_per_sample(const ModelSpec& spec, int64_t seq_length) {
  const double s = static_cast<double>(seq_length);
  const double h = static_cast<double>(spec.hidden_size);
  const double attention_size = static_cast<double>(spec.num_attention_heads * spec.kv_channels);
  const double products = h * static_cast<double>(spec.qkv_size()) + attention_size * h +
                          h * static_cast<double>(spec.fc1_size() + spec.ffn_hidden_size);
  const double layer = 2 * products + 4 * s * attention_size;
  const double e = static_cast<double>(spec.embedding_columns());
  const double projections = spec.projects_embeddings() ? 4 * h * e : 0;
  const double head = 2 * e * static_cast<double>(spec.padded_vocab_size) + projections;
  return 3 * s * (static_cast<double>(spec.num_layers) * layer + head);
}

}  // namespace trainer
