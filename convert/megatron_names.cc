// SPDX-License-Identifier: MIT
// megatron_names.h: the tables. Legacy files are written with the first row of a core name.
#include "convert/megatron_names.h"

#include <charconv>

#include "libindexed/format.h"

namespace convert {
namespace {

constexpr int64_t kMaxLayer = int64_t{1} << 30;

struct Alias {
  std::string_view old;
  std::string_view core;
};

// Below "layers.N.". Longer names come before their prefixes.
constexpr Alias kLayerAliases[] = {
    {"input_layernorm.", "input_layernorm."},
    {"input_norm.", "input_layernorm."},
    {"self_attention.layernorm_qkv.layer_norm_", "input_layernorm."},
    {"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
    {"self_attention.query_key_value.", "self_attention.linear_qkv."},
    {"attention.query_key_value.", "self_attention.linear_qkv."},
    {"self_attention.layernorm_qkv.", "self_attention.linear_qkv."},
    {"self_attention.linear_qkv.", "self_attention.linear_qkv."},
    {"self_attention.q_layernorm.", "self_attention.q_layernorm."},
    {"self_attention.k_layernorm.", "self_attention.k_layernorm."},
    {"self_attention.dense.", "self_attention.linear_proj."},
    {"attention.dense.", "self_attention.linear_proj."},
    {"self_attention.proj.", "self_attention.linear_proj."},
    {"self_attention.linear_proj.", "self_attention.linear_proj."},
    {"post_attention_layernorm.", "pre_mlp_layernorm."},
    {"post_attention_norm.", "pre_mlp_layernorm."},
    {"layernorm_mlp.layer_norm_", "pre_mlp_layernorm."},
    {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."},
    {"pre_mlp_layernorm.", "pre_mlp_layernorm."},
    {"mlp.dense_h_to_4h.", "mlp.linear_fc1."},
    {"layernorm_mlp.fc1_", "mlp.linear_fc1."},
    {"mlp.linear_fc1.", "mlp.linear_fc1."},
    {"mlp.dense_4h_to_h.", "mlp.linear_fc2."},
    {"layernorm_mlp.fc2_", "mlp.linear_fc2."},
    {"mlp.linear_fc2.", "mlp.linear_fc2."},
};

// Below "transformer.", "encoder." or "decoder.", outside the layers.
constexpr Alias kStackAliases[] = {
    {"final_layernorm.", "decoder.final_layernorm."},
    {"final_norm.", "decoder.final_layernorm."},
};

constexpr Alias kTopAliases[] = {
    {"embedding.word_embeddings.", "embedding.word_embeddings."},
    {"embedding.position_embeddings.", "embedding.position_embeddings."},
    {"output_layer.", "output_layer."},
};

constexpr std::string_view kWrappers[] = {"module.", "model.", "language_model.",
                                          "float16_module."};
constexpr std::string_view kStacks[] = {"transformer.", "encoder.", "decoder."};
constexpr std::string_view kNoParameters[] = {"_extra_state", ".inv_freq", ".attention.bias",
                                              ".masked_bias", "rotary_pos_emb.inv_freq"};

// The copy of the embedding for a tied output layer, on the last pipeline stage.
constexpr std::string_view kHeadCopy = "word_embeddings_for_head.";

std::string_view without(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

std::string_view unwrapped(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (std::string_view wrapper : kWrappers)
      if (name.starts_with(wrapper)) {
        name.remove_prefix(wrapper.size());
        again = true;
      }
  }
  return name;
}

template <size_t N>
std::optional<std::string> replace_head(const Alias (&table)[N], std::string_view name) {
  for (const Alias& alias : table) {
    if (!name.starts_with(alias.old)) continue;
    const std::string_view last = name.substr(alias.old.size());
    if (last == "weight" || last == "bias") return std::string(alias.core) + std::string(last);
  }
  return std::nullopt;
}

}  // namespace

LayerName split_layer(std::string_view core_name) noexcept {
  LayerName result{-1, core_name};
  const std::string_view rest = without(core_name, "decoder.layers.");
  if (rest.size() == core_name.size()) return result;
  const std::from_chars_result end =
      std::from_chars(rest.data(), rest.data() + rest.size(), result.layer);
  const size_t digits = static_cast<size_t>(end.ptr - rest.data());
  if (end.ec != std::errc() || result.layer < 0 || result.layer > kMaxLayer ||
      digits == rest.size() || rest[digits] != '.')
    return {-1, core_name};
  result.suffix = rest.substr(digits + 1);
  return result;
}

bool is_head_copy(std::string_view name) noexcept { return unwrapped(name).starts_with(kHeadCopy); }

std::optional<std::string> core_name(std::string_view name) {
  for (std::string_view end : kNoParameters)
    if (name.ends_with(end)) return std::nullopt;
  std::string_view rest = unwrapped(name);
  if (rest.starts_with(kHeadCopy)) return std::nullopt;
  if (std::optional<std::string> top = replace_head(kTopAliases, rest)) return top;
  for (std::string_view stack : kStacks) rest = without(rest, stack);
  if (std::optional<std::string> norm = replace_head(kStackAliases, rest)) return norm;
  const std::string in_stack = "decoder." + std::string(rest);
  const LayerName layer = split_layer(in_stack);
  if (layer.layer >= 0)
    if (std::optional<std::string> suffix = replace_head(kLayerAliases, layer.suffix))
      return "decoder.layers." + std::to_string(layer.layer) + "." + *suffix;
  throw indexed::FormatError("parameter " + std::string(name) + " is not one of a GPT model");
}

Share share_of(std::string_view core_name) noexcept {
  const std::string_view name = split_layer(core_name).suffix;
  if (name.starts_with("self_attention.linear_qkv.")) return Share::qkv;
  if (name.starts_with("mlp.linear_fc1.")) return Share::mlp_in;
  if (name == "self_attention.linear_proj.weight" || name == "mlp.linear_fc2.weight")
    return Share::columns;
  if (name == "embedding.word_embeddings.weight" || name == "output_layer.weight")
    return Share::rows;
  return Share::same;
}

LegacyName legacy_name(std::string_view core_name) {
  const LayerName layer = split_layer(core_name);
  if (layer.layer >= 0) {
    for (const Alias& alias : kLayerAliases)
      if (layer.suffix.starts_with(alias.core))
        return {"language_model.encoder", "layers." + std::to_string(layer.layer) + "." +
                                              std::string(alias.old) +
                                              std::string(layer.suffix.substr(alias.core.size()))};
  }
  for (const Alias& alias : kStackAliases)
    if (core_name.starts_with(alias.core))
      return {"language_model.encoder",
              std::string(alias.old) + std::string(core_name.substr(alias.core.size()))};
  const size_t dot = core_name.rfind('.');
  return {"language_model." + std::string(core_name.substr(0, dot)),
          std::string(core_name.substr(dot + 1))};
}

}  // namespace convert
