// SPDX-License-Identifier: MIT
// families.h: the list, activations' names, and reading config.json with one-line errors.
#include "convert/families/families.h"

#include <array>
#include <charconv>

#include "libindexed/format.h"

namespace convert {

std::span<const Family* const> all_families() noexcept {
  static constexpr std::array<const Family*, 4> kAll = {&kGpt2, &kOpt, &kGptNeox, &kLlama};
  return kAll;
}

double shortest(float value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  double result = 0;
  std::from_chars(text, end.ptr, result);
  return result;
}

std::string_view activation_name(ops::Activation activation) {
  switch (activation) {
    case ops::Activation::gelu_tanh:
      return "gelu_new";
    case ops::Activation::gelu_erf:
      return "gelu";
    case ops::Activation::relu:
      return "relu";
    case ops::Activation::none:
    case ops::Activation::swiglu:
      break;
  }
  return {};
}

ops::Activation activation_from_name(const std::string& name) {
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh")
    return ops::Activation::gelu_tanh;
  if (name == "gelu") return ops::Activation::gelu_erf;
  if (name == "relu") return ops::Activation::relu;
  throw indexed::FormatError("activation \"" + name +
                             "\" is not supported, expected gelu_new, gelu_fast, "
                             "gelu_pytorch_tanh, gelu or relu");
}

std::string refusal_of_plain_heads(const trainer::ModelSpec& spec) {
  if (spec.num_query_groups != spec.num_attention_heads) return "query heads are grouped";
  if (spec.kv_channels * spec.num_attention_heads != spec.hidden_size)
    return "heads do not fill the hidden size";
  return {};
}

int64_t config_integer(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) throw indexed::FormatError(std::string("no key \"") + key + "\"");
  if (!found->is_number_integer() || found->get<int64_t>() < 1)
    throw indexed::FormatError(std::string("key \"") + key + "\" is " + found->dump() +
                               ", expected a whole number from 1 up");
  return found->get<int64_t>();
}

int64_t config_integer(const nlohmann::json& config, const char* key, int64_t otherwise) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? otherwise : config_integer(config, key);
}

float config_real(const nlohmann::json& config, const char* key, float otherwise) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return otherwise;
  if (!found->is_number())
    throw indexed::FormatError(std::string("key \"") + key + "\" is " + found->dump() +
                               ", expected a number");
  return found->get<float>();
}

bool config_bool(const nlohmann::json& config, const char* key, bool otherwise) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return otherwise;
  if (!found->is_boolean())
    throw indexed::FormatError(std::string("key \"") + key + "\" is " + found->dump() +
                               ", expected true or false");
  return found->get<bool>();
}

nlohmann::json rope_parameters(const nlohmann::json& config) {
  nlohmann::json rope = nlohmann::json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_object()) continue;
    const std::string type = found->value("rope_type", found->value("type", "default"));
    if (type != "default")
      throw indexed::FormatError(std::string("key \"") + key + "\": rope_type \"" + type +
                                 "\" is not supported, expected default");
    rope = *found;
  }
  return rope;
}

}  // namespace convert
