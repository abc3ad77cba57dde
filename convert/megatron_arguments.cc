// SPDX-License-Identifier: MIT
// megatron_source.h: a model's fields from Megatron's `args`. Arguments changed over the years; a
// missing one has the meaning from before it existed.
// Source: megatron/training/arguments.py; legacy/model/transformer.py for the activation's choice.
#include "convert/megatron_source.h"

#include <cmath>

#include "libindexed/format.h"
#include "trainer/spec/model_fields.h"

namespace convert {
namespace {

using indexed::FormatError;
using trainer::ModelSpec;

int64_t number(Value args, const char* name, int64_t otherwise = 0) {
  const std::optional<int64_t> value = args.attribute(name).integer();
  return value.value_or(otherwise);
}

float real(Value args, const char* name, float otherwise) {
  const std::optional<double> value = args.attribute(name).real();
  return value ? static_cast<float>(*value) : otherwise;
}

bool on(Value args, const char* name) { return number(args, name) != 0; }

void refuse(Value args, const char* name, const char* what) {
  if (on(args, name))
    throw FormatError(std::string("argument ") + name + ": " + what + " is not supported");
}

// For arguments that are None by default.
void refuse_given(Value args, const char* name, const char* what) {
  const Value value = args.attribute(name);
  if (value && !value.is(Kind::null) && value.integer().value_or(1) != 0)
    throw FormatError(std::string("argument ") + name + ": " + what + " is not supported");
}

// In a core model --openai-gelu has no effect.
ops::Activation activation(Value args, bool core_layout) {
  if (on(args, "swiglu")) return ops::Activation::swiglu;
  if (!args.attribute("bias_gelu_fusion") && !args.attribute("openai_gelu"))
    return ops::Activation::gelu_tanh;
  if (on(args, "bias_gelu_fusion")) return ops::Activation::gelu_tanh;
  return on(args, "openai_gelu") && !core_layout ? ops::Activation::gelu_tanh
                                                 : ops::Activation::gelu_erf;
}

trainer::Position position(Value args) {
  const std::string_view type = args.attribute("position_embedding_type").text();
  if (type == "rope" || type.ends_with(".rotary") || on(args, "use_rotary_position_embeddings"))
    return trainer::Position::rotary;
  if (type == "none") return trainer::Position::none;
  if (!type.empty() && type != "learned_absolute" && !type.ends_with(".absolute"))
    throw FormatError("argument position_embedding_type: \"" + std::string(type) +
                      "\" is not supported");
  return trainer::Position::learned;
}

void refuse_unknown_models(Value args) {
  refuse(args, "apply_residual_connection_post_layernorm", "a norm after the residual");
  refuse(args, "num_experts", "a mixture of experts");
  refuse(args, "squared_relu", "squared ReLU");
  refuse(args, "rotary_interleaved", "interleaved rotary embedding");
  refuse(args, "multi_latent_attention", "latent attention");
  refuse(args, "embed_layernorm", "a norm of the embedding");
  refuse(args, "geglu", "GEGLU");
  refuse(args, "quick_geglu", "quick GEGLU");
  refuse(args, "qk_l2_norm", "a norm of queries and keys");
  refuse(args, "attention_output_gate", "a gate behind the attention");
  refuse(args, "use_mup", "a model scaled by muP");
  for (const auto& [name, what] :
       {std::pair("no_rope_freq", "layers without positions"),
        std::pair("window_attn_skip_freq", "layers with and without a window"),
        std::pair("mtp_num_layers", "prediction of several tokens"),
        std::pair("experimental_attention_variant", "an experimental attention"),
        std::pair("activation_func_clamp_value", "a clamped activation"),
        std::pair("heterogeneous_layers_config_path", "layers that differ")})
    refuse_given(args, name, what);
  if (real(args, "glu_linear_offset", 0.0F) != 0.0F)
    throw FormatError("argument glu_linear_offset: an offset of the gated branch is not supported");
  const std::string_view softmax = args.attribute("softmax_type").text();
  if (!softmax.empty() && softmax != "vanilla")
    throw FormatError("argument softmax_type: \"" + std::string(softmax) + "\" is not supported");
  if (args.attribute("num_experts").is(Kind::list) && args.attribute("num_experts").size() == 1 &&
      args.attribute("num_experts").item(0).integer() != 1)
    throw FormatError("argument num_experts: a mixture of experts is not supported");
}

// (left, right): tokens before and after; -1 is all of them.
int64_t window(Value args) {
  const Value size = args.attribute("window_size");
  if (!size || size.is(Kind::null)) return 0;
  const std::optional<int64_t> left = size.item(0).integer(), right = size.item(1).integer();
  if (size.size() != 2 || !left || right != 0 || *left < -1)
    throw FormatError("argument window_size: expected tokens before, and 0 behind");
  return *left + 1;
}

// An argument that is a field, by its type. None means the default.
struct ArgumentReader {
  Value value;
  ModelSpec& spec;
  bool inverted;

  void operator()(int64_t ModelSpec::*member) const {
    spec.*member = value.integer().value_or(spec.*member);
  }
  void operator()(float ModelSpec::*member) const {
    if (const std::optional<double> x = value.real()) spec.*member = static_cast<float>(*x);
  }
  void operator()(bool ModelSpec::*member) const {
    if (const std::optional<int64_t> x = value.integer()) spec.*member = (*x != 0) != inverted;
  }
  template <class Other>
  void operator()(Other) const {}  // names, which changed over the years
};

}  // namespace

ModelSpec spec_from_arguments(Value args, bool core_layout) {
  ModelSpec spec;
  if (!args) return spec;
  refuse_unknown_models(args);
  for (const trainer::ModelField& field : trainer::model_fields())
    if (field.known == trainer::ModelField::Known::megatron)
      if (const Value value = args.attribute(field.argument))
        std::visit(ArgumentReader{value, spec, field.inverted}, field.member);
  const bool grouped = on(args, "group_query_attention") ||
                       (!args.attribute("group_query_attention") &&
                        number(args, "num_key_value_heads") > 0);  // Megatron-DeepSpeed's name
  spec.num_query_groups =
      grouped ? number(args, "num_query_groups", number(args, "num_key_value_heads"))
              : spec.num_attention_heads;
  spec.vocab_size = number(args, "orig_vocab_size");
  const bool rms = args.attribute("normalization").text() == "RMSNorm" ||
                   args.attribute("normalization").text() == "rmsnorm";
  spec.norm = rms ? ops::Norm::rmsnorm : ops::Norm::layernorm;
  if (!args.attribute("norm_epsilon"))
    spec.norm_epsilon = real(args, "layernorm_epsilon", spec.norm_epsilon);
  if (!args.attribute("rotary_base")) spec.rotary_base = real(args, "rope_theta", spec.rotary_base);
  spec.position = position(args);
  spec.activation = activation(args, core_layout);
  spec.linear_bias = !on(args, "disable_bias_linear") && number(args, "add_bias_linear", 1) != 0;
  spec.sliding_window = window(args);
  const auto within = [](const char* name, float value, float least, float most) {
    if (!(value >= least && value <= most))
      throw FormatError(std::string("argument ") + name + ": " + std::to_string(value) +
                        ", expected a number from " + std::to_string(least) + " to " +
                        std::to_string(most));
  };
  if (!(spec.rotary_base >= 1) || !std::isfinite(spec.rotary_base))
    throw FormatError("argument rotary_base: " + std::to_string(spec.rotary_base) +
                      ", expected a number from 1 up");
  within("rotary_percent", spec.rotary_percent, 0, 1);
  within("norm_epsilon", spec.norm_epsilon, 0, 1);
  if (spec.rotary_scaling && spec.rotary_interpolation != 1)
    throw FormatError("argument use_rope_scaling: not together with interpolated positions");
  trainer::settle_biases(spec);
  return spec;
}

TokenizerHints hints_from_arguments(Value args) {
  TokenizerHints hints;
  if (!args) return hints;
  const auto text = [&](const char* name) {
    const Value value = args.attribute(name);
    return value.is(Kind::text) ? std::string(value.text()) : std::string();
  };
  hints.type = text("tokenizer_type");
  hints.vocab_file = text("vocab_file");
  hints.merge_file = text("merge_file");
  hints.name_or_path = text("tokenizer_name_or_path");
  if (hints.name_or_path.empty()) hints.name_or_path = text("tokenizer_model");
  return hints;
}

}  // namespace convert
