// See families.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/spec/families.h"

#include <algorithm>

namespace trainer {
namespace {

using Names = std::vector<std::string_view>;

ModelFamily family(std::string_view name, ModelSpec defaults, Names free) {
  defaults.family = name;
  return {name, std::move(defaults), std::move(free)};
}

ModelSpec gpt2() { return {}; }

ModelSpec opt() {
  ModelSpec spec;
  spec.activation = ops::Activation::relu;
  spec.position_offset = 2;
  return spec;
}

ModelSpec rotary() {
  ModelSpec spec;
  spec.hidden_dropout = spec.attention_dropout = 0;
  spec.position = Position::rotary;
  spec.tied_embeddings = false;
  return spec;
}

ModelSpec gpt_neox() {
  ModelSpec spec = rotary();
  spec.rotary_percent = 0.25f;
  spec.activation = ops::Activation::gelu_erf;
  spec.parallel_residual = true;
  return spec;
}

ModelSpec llama() {
  ModelSpec spec = rotary();
  spec.norm = ops::Norm::rmsnorm;
  spec.activation = ops::Activation::swiglu;
  spec.linear_bias = false;
  return spec;
}

ModelSpec qwen2() {
  ModelSpec spec = llama();
  spec.qkv_bias = true;
  return spec;
}

ModelSpec qwen3() {
  ModelSpec spec = llama();
  spec.qk_norm = true;
  return spec;
}

Names with(Names names, std::initializer_list<std::string_view> more) {
  names.insert(names.end(), more);
  return names;
}

std::vector<ModelFamily> make_families() {
  // GPT-2, OPT and GPT-NeoX always have biases; biases that a model lacks are written as zeros.
  const Names biases = {"linear_bias", "qkv_bias", "attention_bias", "mlp_bias"};
  const Names like_llama = {"rotary_base",
                            "rotary_interpolation",
                            "rotary_scaling",
                            "rotary_scaling_factor",
                            "rotary_low_freq_factor",
                            "rotary_high_freq_factor",
                            "rotary_original_positions",
                            "num_query_groups"};
  const Names with_heads = with(like_llama, {"kv_channels"});
  return {family("gpt2", gpt2(), with(biases, {"activation", "norm_epsilon"})),
          family("opt", opt(), with(biases, {"activation", "embedding_size", "post_norm"})),
          family("gpt_neox", gpt_neox(),
                 with(biases, {"activation", "norm_epsilon", "parallel_residual", "rotary_percent",
                               "rotary_base"})),
          family("llama", llama(),
                 with(with_heads, {"norm_epsilon", "linear_bias", "attention_bias", "mlp_bias"})),
          family("mistral", llama(), with(with_heads, {"norm_epsilon", "sliding_window"})),
          family("qwen2", qwen2(), with(like_llama, {"norm_epsilon"})),
          family("qwen3", qwen3(), with(with_heads, {"norm_epsilon", "attention_bias"}))};
}

/// Fields in which models of every family differ. All others change how a model computes: a new one
/// keeps a model out of every family that does not list it as free.
constexpr std::string_view kOwn[] = {
    "family",         "num_layers",        "hidden_size",     "ffn_hidden_size",
    "vocab_size",     "padded_vocab_size", "tied_embeddings", "num_attention_heads",
    "hidden_dropout", "attention_dropout", "init_method_std", "max_position_embeddings"};

/// Whether a field has no effect without another one.
bool idle(std::string_view field, const ModelSpec& spec) {
  if (field.starts_with("rotary_") && spec.position != Position::rotary) return true;
  return field.starts_with("rotary_") && field != "rotary_scaling" && field != "rotary_percent" &&
         field != "rotary_base" && field != "rotary_interpolation" && !spec.rotary_scaling;
}

/// The family's values for a model of these sizes.
ModelSpec wanted(const ModelSpec& spec, const ModelFamily& family) {
  ModelSpec out = family.defaults;
  out.num_query_groups = spec.num_attention_heads;
  if (spec.num_attention_heads > 0) out.kv_channels = spec.hidden_size / spec.num_attention_heads;
  return out;
}

bool fits(const ModelField& field, const ModelSpec& spec, const ModelFamily& family,
          const ModelSpec& want) {
  const bool free = std::ranges::find(family.free, field.name) != family.free.end();
  if (field.name == "kv_channels" && family.name == "llama" && spec.num_attention_heads > 0)
    return spec.hidden_size % spec.num_attention_heads == 0;  // transformers 5 loads no other.
  if (field.name == "activation" && free) return spec.gated() == want.gated();
  if (field.name == "kv_channels" && !free)
    return spec.kv_channels * spec.num_attention_heads == spec.hidden_size;
  return free || idle(field.name, spec) || same_field(field, spec, want);
}

/// The flag that gives a field the value of `want`; empty if there is none.
std::string flag_for(const ModelField& field, const ModelSpec& want) {
  const std::string value = field_text(field, want, true), flag = "--" + field.flag();
  if (value == "true") return "with " + flag;
  const bool none = field.name == "sliding_window" || field.name == "embedding_size";
  if (value == "false" || (none && value == "0")) return "without " + flag;
  return "with " + flag + " " + value;
}

}  // namespace

std::span<const ModelFamily> model_families() {
  static const std::vector<ModelFamily> kAll = make_families();
  return kAll;
}

std::vector<const ModelField*> misfits(const ModelSpec& spec, const ModelFamily& family) {
  const ModelSpec want = wanted(spec, family);
  std::vector<const ModelField*> out;
  for (const ModelField& field : model_fields())
    if (std::ranges::find(kOwn, field.name) == std::end(kOwn) && !fits(field, spec, family, want))
      out.push_back(&field);
  return out;
}

const ModelFamily* find_family_of(const ModelSpec& spec) {
  const ModelFamily* first = nullptr;
  for (const ModelFamily& family : model_families()) {
    if ((first != nullptr && family.name != spec.family) || !misfits(spec, family).empty())
      continue;
    if (family.name == spec.family) return &family;
    first = &family;
  }
  return first;
}

std::string why_not(const ModelSpec& spec, const ModelFamily& family) {
  const ModelSpec want = wanted(spec, family);
  std::string out;
  for (const ModelField* field : misfits(spec, family))
    out += (out.empty() ? "" : "; ") + std::string(field->name) + " is " +
           field_text(*field, spec) + ", expected " + field_text(*field, want);
  return out;
}

std::string nearest_family(const ModelSpec& spec) {
  const ModelFamily* nearest = nullptr;
  int64_t least = 0;
  for (const ModelFamily& family : model_families()) {
    int64_t apart = 0;
    for (const ModelField* field : misfits(spec, family))
      apart += field->name == "activation" || field->name == "position" ? 2 : 1;
    if (nearest != nullptr && apart >= least) continue;
    nearest = &family;
    least = apart;
  }
  const ModelSpec want = wanted(spec, *nearest);
  std::string flags;
  for (const ModelField* field : misfits(spec, *nearest))
    flags += (flags.empty() ? "" : " and ") + flag_for(*field, want);
  return flags + " it would be " + std::string(nearest->name);
}

ModelSpec family_defaults(std::string_view name) {
  std::string known;
  for (const ModelFamily& family : model_families()) {
    if (family.name == name) return family.defaults;
    known += (known.empty() ? "" : ", ") + std::string(family.name);
  }
  throw ShapeError("model: family \"" + std::string(name) + "\": expected one of " + known);
}

}  // namespace trainer
