// SPDX-License-Identifier: MIT
// A family of Hugging Face models as data: a row per tensor says what it is called there and of
// which canonical tensors it is made; the same rows are walked in both directions. What config.json
// holds is the family's too. Files of a folder are hf_folder.h's.
// Source: docs/format/hf-folder.5.md; transformers/models/<family>/modeling_*.py.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/canonical.h"

namespace convert {

/// How several canonical tensors make one. stacked: one under the other. grouped: q, k, v as
/// join_qkv.
enum class Fuse : uint8_t { none, stacked, grouped };

/// One tensor of a family. "{}" in `hf` stands for the layer's number, and the canonical names are
/// then suffixes of layer_name().
struct NameRow {
  std::string_view hf;
  std::vector<std::string_view> canonical;
  Fuse fuse = Fuse::none;
  bool transposed = false;  ///< stored (in, out)
};

/// A family.
struct Family {
  std::string_view name;                  ///< model_type of config.json
  std::string_view architecture;          ///< class that transformers loads
  std::vector<std::string_view> bases;    ///< prefixes that a file may leave out or put in front
  std::vector<std::string_view> ignored;  ///< endings of buffers that are not parameters
  std::vector<NameRow> rows;              ///< once a model
  std::vector<NameRow> layer_rows;        ///< once a layer
  /// Why a model of these numbers cannot be written as this family; empty when it can.
  std::string (*refusal)(const trainer::ModelSpec& spec);
  /// The family's own keys of config.json.
  nlohmann::ordered_json (*config)(const trainer::ModelSpec& spec);
  /// The numbers that a config.json gives. Errors: indexed::FormatError, nlohmann::json::exception.
  trainer::ModelSpec (*spec)(const nlohmann::json& config);
};

/// The family of this name (gpt2, opt, gpt_neox, llama, ...), or nullptr.
const Family* find_family(std::string_view name) noexcept;

/// The family that can hold such a model; the first that fits.
/// Errors: indexed::FormatError listing why none does.
const Family& choose_family(const trainer::ModelSpec& spec);

/// The model's tensors under the family's names, in the order of forward.
std::vector<std::pair<std::string, TensorSource>> export_tensors(const Family& family,
                                                                 const CanonicalModel& model);

/// The other way: canonical tensors from the family's. `tensors` are a folder's, by name.
/// Errors: indexed::FormatError for a tensor that is missing, of a wrong shape, or of no row.
std::map<std::string, TensorSource> import_tensors(
    const Family& family, const trainer::ModelSpec& spec,
    const std::map<std::string, TensorSource>& tensors);

}  // namespace convert
