// SPDX-License-Identifier: MIT
// family.h: reads and writes config.json by a family's rows; families.h: names of activations and
// keys for positions. Source of the scaled positions' keys: transformers/modeling_rope_utils.py.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <tuple>

#include "convert/families/families.h"
#include "libindexed/format.h"
#include "trainer/spec/families.h"

namespace convert {
namespace {

using indexed::FormatError;
using nlohmann::json;
using nlohmann::ordered_json;
using trainer::ModelField;
using trainer::ModelSpec;

[[noreturn]] void refuse(std::string_view key, const json& value, const std::string& expected) {
  throw FormatError("key \"" + std::string(key) + "\" is " + value.dump() + expected);
}

int64_t whole_number(std::string_view key, const json& value) {
  if (!value.is_number_integer() || value.get<int64_t>() < 1)
    refuse(key, value, ", expected a whole number from 1 up");
  return value.get<int64_t>();
}

// The numbers that a field may have are those of its flag in training.
float real_number(std::string_view key, const json& value, float ModelSpec::*member = nullptr) {
  if (!value.is_number()) refuse(key, value, ", expected a number");
  const float number = value.get<float>();
  const bool share = member == &ModelSpec::norm_epsilon || member == &ModelSpec::rotary_percent ||
                     member == &ModelSpec::hidden_dropout ||
                     member == &ModelSpec::attention_dropout;
  if (share && !(number >= 0 && number <= 1)) refuse(key, value, ", expected a number from 0 to 1");
  if (member == &ModelSpec::init_method_std && !(number >= 0))
    refuse(key, value, ", expected a number from 0 up");
  if (member == &ModelSpec::rotary_base && !(number >= 1))
    refuse(key, value, ", expected a number from 1 up");
  if (!std::isfinite(number)) refuse(key, value, ", which is no fp32 number");
  return number;
}

constexpr std::string_view kGate = "silu";

bool is_activation(std::string_view name) {
  constexpr std::string_view kNames[] = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh",
                                         "gelu",     "relu",      kGate};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// A field from JSON, by its type.
struct FieldReader {
  std::string key;
  const json& value;
  ModelSpec& spec;
  bool inverted;

  void operator()(int64_t ModelSpec::*member) const { spec.*member = whole_number(key, value); }
  void operator()(float ModelSpec::*member) const {
    spec.*member = real_number(key, value, member);
  }
  void operator()(bool ModelSpec::*member) const {
    if (!value.is_boolean()) refuse(key, value, ", expected true or false");
    spec.*member = value.get<bool>() != inverted;
  }
  void operator()(ops::Activation ModelSpec::*member) const {
    if (!value.is_string()) refuse(key, value, ", expected an activation's name");
    const std::string name = value.get<std::string>();
    // A gated family names the gate's activation, and is always gated.
    if (!is_activation(name) || (name == kGate) != spec.gated())
      refuse(key, value,
             spec.gated() ? ", which is not supported: expected silu"
                          : ", which is not supported: expected gelu_new, gelu_fast, "
                            "gelu_pytorch_tanh, gelu or relu");
    spec.*member = activation_from_name(name);
  }
  template <class Other>
  void operator()(Other) const {}  // the same in all models of a family
};

struct FieldWriter {
  const ModelSpec& spec;
  bool inverted = false;

  ordered_json operator()(int64_t ModelSpec::*member) const {
    return spec.*member > 0 ? ordered_json(spec.*member) : ordered_json();
  }
  ordered_json operator()(float ModelSpec::*member) const { return shortest(spec.*member); }
  ordered_json operator()(bool ModelSpec::*member) const { return spec.*member != inverted; }
  ordered_json operator()(ops::Activation ModelSpec::*member) const {
    return activation_name(spec.*member);
  }
  template <class Other>
  ordered_json operator()(Other) const {
    return {};
  }
};

void read_key(const KeyRow& row, const json& config, ModelSpec& spec) {
  const auto found = config.find(row.key());
  const bool said = found != config.end() && !found->is_null();
  if (row.field.empty()) {
    const json wanted = json::parse(row.value);
    if (said && *found != wanted)
      refuse(row.key(), *found, ", which is not supported: expected " + wanted.dump());
    return;
  }
  const ModelField& field = trainer::model_field(row.field);
  if (row.use == KeyRow::Use::equal) {
    const json wanted = std::visit(FieldWriter{spec}, field.member);
    if (said && *found != wanted)
      refuse(row.key(), *found, ", which is not supported: expected " + wanted.dump());
    return;
  }
  if (said || row.value.empty()) {
    if (found == config.end()) throw FormatError("no key \"" + row.key() + "\"");
    std::visit(FieldReader{row.key(), *found, spec, row.inverted}, field.member);
  } else {
    // For a count, null means none.
    const bool none =
        found != config.end() && std::holds_alternative<int64_t ModelSpec::*>(field.member);
    trainer::set_field(field, spec, none ? "0" : row.value);
  }
}

// Fills in what a config may leave out because it follows from the rest.
void fill(ModelSpec& spec) {
  if (spec.ffn_hidden_size == 0) spec.ffn_hidden_size = 4 * spec.hidden_size;
  if (spec.embedding_size == spec.hidden_size) spec.embedding_size = 0;
  if (spec.num_query_groups == 0) spec.num_query_groups = spec.num_attention_heads;
  if (spec.num_attention_heads % spec.num_query_groups != 0)
    throw FormatError("num_key_value_heads does not divide num_attention_heads");
  if (spec.kv_channels == 0) {
    if (spec.hidden_size % spec.num_attention_heads != 0)
      throw FormatError(std::to_string(spec.num_attention_heads) + " heads do not divide " +
                        std::to_string(spec.hidden_size));
    spec.kv_channels = spec.hidden_size / spec.num_attention_heads;
  }
  trainer::settle_biases(spec);
}

// A number of `from`, or `otherwise` where it is not there or null.
float number_of(const json& from, const char* key, float otherwise,
                float ModelSpec::*member = nullptr) {
  const auto found = from.find(key);
  return found == from.end() || found->is_null() ? otherwise : real_number(key, *found, member);
}

// The positions that llama3's scaling starts from. transformers prefers the config's own key.
int64_t original_positions(const json& config, const json& rope) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const int64_t positions = whole_number(kOriginal, rope.value(kOriginal, json()));
  const json own = config.value(kOriginal, json());
  if (!own.is_null() && own != positions)
    refuse(kOriginal, own, ", but " + std::to_string(positions) + " where the scaling is");
  return positions;
}

// One of the two keys for scaled positions, an object.
void read_scaling(const json& config, const char* key, ModelSpec& spec) {
  const json& rope = config[key];
  for (const auto& [kind, values] : rope.items())
    if (values.is_object())
      throw FormatError(std::string("key \"") + key + "\": \"" + kind +
                        "\" has positions of its own for some layers, which is not supported");
  spec.rotary_base = number_of(rope, "rope_theta", spec.rotary_base, &ModelSpec::rotary_base);
  spec.rotary_percent =
      number_of(rope, "partial_rotary_factor", spec.rotary_percent, &ModelSpec::rotary_percent);
  const std::string type = rope.value("rope_type", rope.value("type", "default"));
  if (type == "linear") {
    spec.rotary_interpolation = number_of(rope, "factor", 1);
  } else if (type == "llama3") {
    spec.rotary_scaling = true;
    spec.rotary_scaling_factor = number_of(rope, "factor", 1);
    spec.rotary_low_freq_factor = number_of(rope, "low_freq_factor", 1);
    spec.rotary_high_freq_factor = number_of(rope, "high_freq_factor", 4);
    spec.rotary_original_positions = original_positions(config, rope);
  } else if (type != "default") {
    throw FormatError(std::string("key \"") + key + "\": rope_type \"" + type +
                      "\" is not supported, expected default, linear or llama3");
  }
  if (!(spec.rotary_interpolation > 0) || !(spec.rotary_scaling_factor > 0) ||
      !(spec.rotary_high_freq_factor > spec.rotary_low_freq_factor))
    throw FormatError(std::string("key \"") + key + "\": " + rope.dump() +
                      " has no factor above 0, or frequencies in no order");
}

// Whether two models have the same rotary positions.
bool same_rope(const ModelSpec& a, const ModelSpec& b) {
  const auto numbers = [](const ModelSpec& s) {
    return std::tuple(s.rotary_base, s.rotary_percent, s.rotary_interpolation, s.rotary_scaling,
                      s.rotary_scaling_factor, s.rotary_low_freq_factor, s.rotary_high_freq_factor,
                      s.rotary_original_positions);
  };
  return numbers(a) == numbers(b);
}

}  // namespace

std::string KeyRow::key() const {
  return std::string(own_key.empty() ? trainer::model_field(field).hf : own_key);
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
    case ops::Activation::swiglu:
      return "silu";
    case ops::Activation::none:
      break;
  }
  return {};
}

ops::Activation activation_from_name(const std::string& name) {
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh")
    return ops::Activation::gelu_tanh;
  if (name == "gelu") return ops::Activation::gelu_erf;
  if (name == "relu") return ops::Activation::relu;
  if (name == "silu") return ops::Activation::swiglu;
  throw FormatError("activation \"" + name + "\" is not supported");
}

bool same_activation(const std::string& a, const std::string& b) noexcept {
  try {
    return activation_from_name(a) == activation_from_name(b);
  } catch (const FormatError&) {
    return false;
  }
}

void read_rope(const Family& family, const json& config, ModelSpec& spec) {
  const bool own_key = std::ranges::any_of(
      family.keys, [](const KeyRow& row) { return row.key() == "rotary_emb_base"; });
  if (!own_key)
    spec.rotary_base = number_of(config, "rope_theta", spec.rotary_base, &ModelSpec::rotary_base);
  const ModelSpec bare = spec;
  const auto said = [&](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && found->is_object() && !found->empty();
  };
  if (said("rope_scaling")) read_scaling(config, "rope_scaling", spec);
  if (!said("rope_parameters")) return;
  ModelSpec other = bare;
  read_scaling(config, "rope_parameters", other);
  if (said("rope_scaling") && !same_rope(spec, other))
    throw FormatError("key \"rope_scaling\" is " + config["rope_scaling"].dump() +
                      ", which does not mean what key \"rope_parameters\" says: " +
                      config["rope_parameters"].dump());
  spec = other;
}

ordered_json rope_scaling(const ModelSpec& spec) {
  if (spec.rotary_scaling)
    return {{"rope_type", "llama3"},
            {"factor", shortest(spec.rotary_scaling_factor)},
            {"low_freq_factor", shortest(spec.rotary_low_freq_factor)},
            {"high_freq_factor", shortest(spec.rotary_high_freq_factor)},
            {"original_max_position_embeddings", spec.rotary_original_positions}};
  if (spec.rotary_interpolation != 1)
    return {{"rope_type", "linear"}, {"factor", shortest(spec.rotary_interpolation)}};
  return {};
}

ordered_json write_config(const Family& family, const ModelSpec& spec) {
  // A family's keys give all biases of a linear, whichever field has them.
  ModelSpec said = spec;
  said.attention_bias = spec.has_proj_bias();
  said.mlp_bias = spec.has_mlp_bias();
  said.embedding_size = spec.embedding_columns();
  ordered_json out;
  for (const KeyRow& row : family.keys) {
    if (row.use == KeyRow::Use::read) continue;
    out[row.key()] = row.field.empty() ? ordered_json::parse(row.value)
                                       : std::visit(FieldWriter{said, row.inverted},
                                                    trainer::model_field(row.field).member);
    if (row.field != "rotary_base") continue;
    if (const ordered_json scaling = rope_scaling(spec); !scaling.is_null())
      out["rope_scaling"] = scaling;
  }
  return out;
}

ModelSpec read_config(const Family& family, const json& config) {
  ModelSpec spec = trainer::family_defaults(family.name);
  for (const KeyRow& row : family.keys)
    if (row.use != KeyRow::Use::write && row.use != KeyRow::Use::training)
      read_key(row, config, spec);
  read_key({"vocab_size"}, config, spec);
  read_key({"tied_embeddings", spec.tied_embeddings ? "true" : "false"}, config, spec);
  spec.padded_vocab_size = spec.vocab_size;
  if (spec.position == trainer::Position::rotary) read_rope(family, config, spec);
  const auto types = config.find("layer_types");
  if (types != config.end() && types->is_array() && !types->empty()) {
    for (const json& type : *types)
      if (type != "full_attention") refuse("layer_types", *types, ", which is not supported");
    spec.sliding_window = 0;  // with this key AutoModel takes another class, which heeds it
  }
  read_key({.field = {}, .value = "null", .own_key = "transformers_weights"}, config, spec);
  if (const auto causal = config.find("is_causal"); causal != config.end() && *causal == false)
    refuse("is_causal", *causal, ", which is not supported: expected true");
  check_numbers(spec);
  fill(spec);
  if (const std::string reason = trainer::rotary_refusal(spec); !reason.empty())
    throw FormatError(reason);
  if (const std::string reason = refusal(family, spec); !reason.empty())
    throw FormatError("not a " + std::string(family.name) + " model known here: " + reason);
  return spec;
}

std::string training_note(const Family& family, const json& config, const ModelSpec& spec) {
  for (const KeyRow& row : family.keys) {
    if (row.use != KeyRow::Use::training) continue;
    const auto member = std::get<float ModelSpec::*>(trainer::model_field(row.field).member);
    const json value = config.value(row.key(), json::parse(row.value));
    const float kept = spec.*member;
    if (real_number(row.key(), value, member) != kept)
      return "key \"" + row.key() + "\" is " + value.dump() + ", but a model has one " +
             std::string(row.field) + ": training on, and an export, will have " +
             json(shortest(kept)).dump() + " here, too";
  }
  return {};
}

}  // namespace convert
