// SPDX-License-Identifier: MIT
// The parameter names of Megatron-LM and its forks, mapped to those of today's Megatron-core, and
// how tensor parallelism divides each. Reads no file.
// Source: docs/format/megatron-checkpoint.5.md, "Names"; Megatron-LM v1.0 to core 0.12.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace convert {

/// Megatron-core's name (local spec) of a parameter of any age: nested dicts' keys joined by dots,
/// "language_model.transformer.layers.0.attention.dense.weight" among them. Nothing for names that
/// are not parameters: rotary tables, masks, extra state.
/// Errors: indexed::FormatError for a name that no known Megatron has.
std::optional<std::string> core_name(std::string_view name);

/// Whether a name, of which core_name() gives nothing, is the copy of the embedding for a tied
/// output layer that the last pipeline stage has.
bool is_head_copy(std::string_view name) noexcept;

/// How the tensor-parallel ranks' shares of a parameter are combined.
enum class Share : uint8_t {
  same,     ///< every rank has all of it
  rows,     ///< concatenated by rows
  columns,  ///< side by side
  qkv,      ///< rows, by heads
  mlp_in,   ///< rows; with a gated MLP each share is gate, then up
};
Share share_of(std::string_view core_name) noexcept;

/// "decoder.layers.12.mlp.linear_fc1.weight" parsed; layer -1 for a name outside the layers.
struct LayerName {
  int64_t layer = -1;
  std::string_view suffix;  ///< "mlp.linear_fc1.weight", or the whole name
};
LayerName split_layer(std::string_view core_name) noexcept;

/// Legacy Megatron's name of a core parameter, as checkpoint_version 3.0 nests it under "model":
/// "language_model.encoder" and "layers.0.attention..." are `folder` and `key`.
struct LegacyName {
  std::string folder;
  std::string key;
};
LegacyName legacy_name(std::string_view core_name);

}  // namespace convert
