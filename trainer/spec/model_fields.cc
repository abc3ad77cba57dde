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
    {.name = "family", .member = &M::family, .argument = "model_family", .known = Known::ours},
    {.name = "num_layers",
     .member = &M::num_layers,
     .argument = "num_layers",
     .hf = "num_hidden_layers"},
    {.name = "hidden_size",
     .member = &M::hidden_size,
     .argument = "hidden_size",
     .hf = "hidden_size"},
    {.name = "ffn_hidden_size",
     .member = &M::ffn_hidden_size,
     .argument = "ffn_hidden_size",
     .hf = "intermediate_size"},
    {.name = "num_attention_heads",
     .member = &M::num_attention_heads,
     .argument = "num_attention_heads",
     .hf = "num_attention_heads"},
    {.name = "num_query_groups",
     .member = &M::num_query_groups,
     .argument = "num_query_groups",
     .rivals = "group-query-attention",
     .hf = "num_key_value_heads"},
    {.name = "kv_channels", .member = &M::kv_channels, .argument = "kv_channels", .hf = "head_dim"},
    {.name = "max_position_embeddings",
     .member = &M::max_position_embeddings,
     .argument = "max_position_embeddings",
     .hf = "max_position_embeddings"},
    {.name = "vocab_size",
     .member = &M::vocab_size,
     .argument = "vocab_size",
     .rivals = "extra-vocab-size",
     .hf = "vocab_size"},
    {.name = "padded_vocab_size", .member = &M::padded_vocab_size},
    {.name = "norm", .member = &M::norm, .argument = "normalization"},
    {.name = "norm_epsilon",
     .member = &M::norm_epsilon,
     .argument = "norm_epsilon",
     .hf = "rms_norm_eps"},
    {.name = "position",
     .member = &M::position,
     .argument = "position_embedding_type",
     .rivals = "use-rotary-position-embeddings"},
    {.name = "position_offset",
     .member = &M::position_offset,
     .argument = "position_offset",
     .known = Known::ours},
    {.name = "rotary_percent", .member = &M::rotary_percent, .argument = "rotary_percent"},
    {.name = "rotary_base",
     .member = &M::rotary_base,
     .argument = "rotary_base",
     .hf = "rope_theta"},
    {.name = "rotary_interpolation",
     .member = &M::rotary_interpolation,
     .argument = "rotary_seq_len_interpolation_factor"},
    {.name = "rotary_scaling", .member = &M::rotary_scaling, .argument = "use_rope_scaling"},
    {.name = "rotary_scaling_factor",
     .member = &M::rotary_scaling_factor,
     .argument = "rope_scaling_factor"},
    {.name = "rotary_low_freq_factor",
     .member = &M::rotary_low_freq_factor,
     .argument = "rope_low_freq_factor",
     .known = Known::ours},
    {.name = "rotary_high_freq_factor",
     .member = &M::rotary_high_freq_factor,
     .argument = "rope_high_freq_factor",
     .known = Known::ours},
    {.name = "rotary_original_positions",
     .member = &M::rotary_original_positions,
     .argument = "rope_original_max_position_embeddings",
     .known = Known::ours},
    {.name = "sliding_window",
     .member = &M::sliding_window,
     .argument = "sliding_window",
     .known = Known::ours,
     .rivals = "window-size",
     .hf = "sliding_window"},
    {.name = "qk_norm", .member = &M::qk_norm, .argument = "qk_layernorm"},
    {.name = "activation",
     .member = &M::activation,
     .argument = "activation",
     .known = Known::ours,
     .rivals = "swiglu openai-gelu no-bias-gelu-fusion",
     .hf = "hidden_act"},
    {.name = "parallel_residual",
     .member = &M::parallel_residual,
     .argument = "parallel_residual",
     .known = Known::ours,
     .hf = "use_parallel_residual"},
    {.name = "linear_bias",
     .member = &M::linear_bias,
     .argument = "disable_bias_linear",
     .inverted = true},
    {.name = "qkv_bias", .member = &M::qkv_bias, .argument = "add_qkv_bias"},
    {.name = "attention_bias",
     .member = &M::attention_bias,
     .argument = "attention_bias",
     .known = Known::ours,
     .hf = "attention_bias"},
    {.name = "mlp_bias",
     .member = &M::mlp_bias,
     .argument = "mlp_bias",
     .known = Known::ours,
     .hf = "mlp_bias"},
    {.name = "tied_embeddings",
     .member = &M::tied_embeddings,
     .argument = "untie_embeddings_and_output_weights",
     .inverted = true,
     .hf = "tie_word_embeddings"},
    {.name = "hidden_dropout", .member = &M::hidden_dropout, .argument = "hidden_dropout"},
    {.name = "attention_dropout",
     .member = &M::attention_dropout,
     .argument = "attention_dropout",
     .hf = "attention_dropout"},
    {.name = "init_method_std",
     .member = &M::init_method_std,
     .argument = "init_method_std",
     .hf = "initializer_range"},
};

// By the number of the value.
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
