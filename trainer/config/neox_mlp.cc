// See neox_mlp.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/config/neox_mlp.h"

#include <utility>

#include "tools/cli/text.h"

namespace trainer::neox {
namespace {

using cli::concat;

int64_t round_up(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

Mlp refused(std::string key, std::string why) {
  return {.activation = {}, .width = 0, .key = std::move(key), .why = std::move(why)};
}
Mlp refused_word(std::string key, const std::string& word, std::string_view why) {
  return refused(std::move(key), concat(" \"", word, "\": ", why));
}

// Releases with mlp_type: w1, w3 and w2. A size that is given is not rounded.
Mlp llama(const MlpKeys& keys) {
  if (keys.activation != "silu")
    return refused_word("activation", keys.activation, "permitted with mlp_type llama is silu");
  for (const auto& [key, there] : {std::pair("mlp_multiple_of", keys.multiple_of > 0),
                                   std::pair("expansion_factor", keys.expansion_factor > 0)})
    if (there)
      return refused(key, ": releases of GPT-NeoX that have it have no mlp_type: one must go");
  const int64_t size = keys.intermediate_size;
  return {.activation = "swiglu",
          .width = size > 0 ? size : round_up(keys.hidden_size * 8 / 3, 256),
          .key = {},
          .why = {}};
}

// Why the keys name no MLP that is known here; without `why`: they do.
Mlp unknown(const MlpKeys& keys) {
  const std::string& name = keys.activation;
  const bool typed = !keys.type.empty(), gated = name == "swiglu";
  if (typed && keys.type != "regular")
    return refused_word("mlp_type", keys.type, "permitted are regular and llama");
  if (name == "geglu")
    return refused_word("activation", name,
                        "its MLP has other widths from one release of GPT-NeoX to another");
  if (name == "silu")
    return refused_word("activation", name,
                        "without mlp_type llama GPT-NeoX's MLP has no gate: swiglu has one");
  if (name != "gelu" && name != "relu" && !gated)
    return refused_word("activation", name,
                        "permitted are gelu, relu and swiglu, and silu with mlp_type llama");
  if (typed && gated)
    return refused_word("activation", name,
                        "releases of GPT-NeoX that have it have no mlp_type: one must go");
  if (keys.intermediate_size > 0 && keys.expansion_factor > 0)
    return refused("expansion_factor", ": intermediate_size says it already: one must go");
  const int64_t usual = 4 * keys.hidden_size;
  if (typed && keys.intermediate_size > 0 && usual > 0 && keys.intermediate_size != usual)
    return refused("intermediate_size", concat(" ", keys.intermediate_size,
                                               ": releases of GPT-NeoX that have mlp_type "
                                               "regular take ",
                                               usual, ", whatever it says: one must go"));
  return {};
}

}  // namespace

Mlp mlp_of(const MlpKeys& keys) {
  if (keys.type == "llama") return llama(keys);
  Mlp out = unknown(keys);
  if (!out.why.empty()) return out;
  const bool gated = keys.activation == "swiglu";
  out.activation = keys.activation != "gelu" ? keys.activation
                   : keys.bias_gelu_fusion   ? "gelu_tanh"  // Megatron's fused GELU
                                             : "gelu_erf";
  if (!gated && keys.intermediate_size == 0 && keys.expansion_factor == 0 && keys.multiple_of == 0)
    return out;
  const int64_t size =
      keys.intermediate_size > 0 ? keys.intermediate_size
      : keys.expansion_factor > 0
          ? static_cast<int64_t>(keys.expansion_factor * static_cast<double>(keys.hidden_size))
          : 4 * keys.hidden_size;
  // Rows of the first linear, of each half with a gate, and columns of the last.
  const int64_t unit = keys.multiple_of > 0 ? keys.multiple_of : 1;
  const int64_t rows = round_up(gated ? size * 2 / 3 : size, 2 * unit) / (gated ? 2 : 1);
  out.width = round_up(gated ? size * 2 / 3 / 2 : size, unit);
  if (rows != out.width)
    return refused(keys.intermediate_size > 0  ? "intermediate_size"
                   : keys.expansion_factor > 0 ? "expansion_factor"
                                               : "mlp_multiple_of",
                   concat(": of ", size, ", with mlp_multiple_of ", unit, ", GPT-NeoX makes ", rows,
                          " in its first linear and takes ", out.width,
                          " in the last: they must "
                          "be equal"));
  return out;
}

}  // namespace trainer::neox
