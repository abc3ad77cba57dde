// See model_fields.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/spec/model_fields.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <type_traits>

namespace trainer {
namespace {

using Known = ModelField::Known;
using M = ModelSpec;

constexpr ModelField kFields[] = {
    {"family", &M::family, "model_family", "", Known::ours},
    {"num_layers", &M::num_layers, "num_layers", "num_hidden_layers"},
    {"hidden_size", &M::hidden_size, "hidden_size", "hidden_size"},
    {"ffn_hidden_size", &M::ffn_hidden_size, "ffn_hidden_size", "intermediate_size"},
    {"num_attention_heads", &M::num_attention_heads, "num_attention_heads", "num_attention_heads"},
    {"num_query_groups", &M::num_query_groups, "num_query_groups", "num_key_value_heads",
     Known::megatron, false, "group-query-attention"},
    {"kv_channels", &M::kv_channels, "kv_channels", "head_dim"},
    {"max_position_embeddings", &M::max_position_embeddings, "max_position_embeddings",
     "max_position_embeddings"},
    {"vocab_size", &M::vocab_size, "vocab_size", "vocab_size", Known::megatron, false,
     "extra-vocab-size"},
    {"padded_vocab_size", &M::padded_vocab_size},
    {"embedding_size", &M::embedding_size, "embedding_size", "word_embed_proj_dim", Known::ours},
    {"norm", &M::norm, "normalization"},
    {"norm_epsilon", &M::norm_epsilon, "norm_epsilon", "rms_norm_eps"},
    {"position", &M::position, "position_embedding_type", "", Known::megatron, false,
     "use-rotary-position-embeddings"},
    {"position_offset", &M::position_offset, "position_offset", "", Known::ours},
    {"rotary_percent", &M::rotary_percent, "rotary_percent"},
    {"rotary_base", &M::rotary_base, "rotary_base", "rope_theta"},
    {"rotary_interpolation", &M::rotary_interpolation, "rotary_seq_len_interpolation_factor"},
    {"rotary_scaling", &M::rotary_scaling, "use_rope_scaling"},
    {"rotary_scaling_factor", &M::rotary_scaling_factor, "rope_scaling_factor"},
    {"rotary_low_freq_factor", &M::rotary_low_freq_factor, "rope_low_freq_factor", "", Known::ours},
    {"rotary_high_freq_factor", &M::rotary_high_freq_factor, "rope_high_freq_factor", "",
     Known::ours},
    {"rotary_original_positions", &M::rotary_original_positions,
     "rope_original_max_position_embeddings", "", Known::ours},
    {"sliding_window", &M::sliding_window, "sliding_window", "sliding_window", Known::ours, false,
     "window-size"},
    {"qk_norm", &M::qk_norm, "qk_layernorm"},
    {"activation", &M::activation, "activation", "hidden_act", Known::ours, false,
     "swiglu openai-gelu no-bias-gelu-fusion"},
    {"parallel_residual", &M::parallel_residual, "parallel_residual", "use_parallel_residual",
     Known::ours},
    {"post_norm", &M::post_norm, "post_norm", "", Known::ours},
    {"linear_bias", &M::linear_bias, "disable_bias_linear", "", Known::megatron, true},
    {"qkv_bias", &M::qkv_bias, "add_qkv_bias"},
    {"attention_bias", &M::attention_bias, "attention_bias", "attention_bias", Known::ours},
    {"mlp_bias", &M::mlp_bias, "mlp_bias", "mlp_bias", Known::ours},
    {"tied_embeddings", &M::tied_embeddings, "untie_embeddings_and_output_weights",
     "tie_word_embeddings", Known::megatron, true},
    {"hidden_dropout", &M::hidden_dropout, "hidden_dropout"},
    {"attention_dropout", &M::attention_dropout, "attention_dropout", "attention_dropout"},
    {"init_method_std", &M::init_method_std, "init_method_std", "initializer_range"},
};

// By the enumeration's values.
constexpr FieldWord kNorms[] = {{"layernorm", "LayerNorm"}, {"rmsnorm", "RMSNorm"}};
constexpr FieldWord kPositions[] = {
    {"learned", "learned_absolute"}, {"rotary", "rope"}, {"none", "none"}};
constexpr FieldWord kActivations[] = {{"none", "none"},
                                      {"gelu_tanh", "gelu_tanh"},
                                      {"gelu_erf", "gelu_erf"},
                                      {"relu", "relu"},
                                      {"swiglu", "swiglu"}};
static_assert(int(ops::Norm::rmsnorm) == 1 && int(Position::none) == 2 &&
              int(ops::Activation::gelu_tanh) == 1 && int(ops::Activation::gelu_erf) == 2 &&
              int(ops::Activation::relu) == 3 && int(ops::Activation::swiglu) == 4);

std::span<const FieldWord> words(ops::Norm) { return kNorms; }
std::span<const FieldWord> words(Position) { return kPositions; }
std::span<const FieldWord> words(ops::Activation) { return kActivations; }

template <class T>
std::string show(const T& value, bool as_flag, bool inverted) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != (as_flag && inverted) ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    const FieldWord& word = words(value)[static_cast<size_t>(value)];
    return as_flag ? word.flag : word.record;
  } else {
    char text[40];
    return {text, std::to_chars(text, text + sizeof text, value).ptr};
  }
}

template <class T>
bool read(T& value, std::string_view text, bool as_flag, bool inverted) {
  if constexpr (std::is_same_v<T, std::string>) {
    value = text;
    return true;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text != "true" && text != "false") return false;
    value = (text == "true") != (as_flag && inverted);
    return true;
  } else if constexpr (std::is_enum_v<T>) {
    const std::span<const FieldWord> known = words(value);
    for (size_t i = 0; i < known.size(); ++i) {
      if (text != (as_flag ? known[i].flag : known[i].record)) continue;
      value = static_cast<T>(i);
      return true;
    }
    return false;
  } else {
    T number{};
    const std::from_chars_result end = std::from_chars(text.begin(), text.end(), number);
    if (end.ec != std::errc() || end.ptr != text.end()) return false;
    value = number;
    return true;
  }
}

}  // namespace

std::string ModelField::flag() const {
  std::string text(argument);
  std::ranges::replace(text, '_', '-');
  return text;
}

std::span<const ModelField> model_fields() noexcept { return kFields; }

const ModelField& model_field(std::string_view name) {
  for (const ModelField& field : kFields)
    if (field.name == name) return field;
  throw std::out_of_range("no field of a model: " + std::string(name));
}

std::string field_text(const ModelField& field, const ModelSpec& spec, bool as_flag) {
  return std::visit([&](auto member) { return show(spec.*member, as_flag, field.inverted); },
                    field.member);
}

bool set_field(const ModelField& field, ModelSpec& spec, std::string_view text, bool as_flag) {
  return std::visit([&](auto member) { return read(spec.*member, text, as_flag, field.inverted); },
                    field.member);
}

std::map<std::string, std::string> model_record(const ModelSpec& spec) {
  std::map<std::string, std::string> record;
  for (const ModelField& field : kFields) record.emplace(field.name, field_text(field, spec));
  return record;
}

ModelSpec model_from_record(const std::map<std::string, std::string>& record) {
  ModelSpec spec;
  for (const ModelField& field : kFields) {
    const auto found = record.find(std::string(field.name));
    if (found != record.end() && !set_field(field, spec, found->second))
      throw ShapeError("model." + found->first + ": \"" + found->second +
                       "\" is not a value for it");
  }
  return spec;
}

bool same_field(const ModelField& field, const ModelSpec& a, const ModelSpec& b) {
  return std::visit([&](auto member) { return a.*member == b.*member; }, field.member);
}

}  // namespace trainer
