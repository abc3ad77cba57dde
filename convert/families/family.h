// SPDX-License-Identifier: MIT
// A family of Hugging Face models as data: a row per tensor says what it is called there and of
// which canonical tensors it is made, a row per key of config.json which field of the model it is;
// the same rows are walked in both directions. Which models a family can hold is
// trainer/spec/families.h's. Files of a folder are hf_folder.h's.
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
/// then suffixes of layer_name(). A bias that the family always has, and the model lacks, is zeros.
struct NameRow {
  enum class When : uint8_t { always, pre_norm, post_norm };
  std::string_view hf;
  std::vector<std::string_view> canonical;
  Fuse fuse = Fuse::none;
  bool transposed = false;   ///< stored (in, out)
  bool optional = false;     ///< absent where the model has no such tensor
  When when = When::always;  ///< models that have the row: by ModelSpec::post_norm
  /// The canonical names are of the next layer; behind the last one they are the final norm's.
  bool next = false;
};

/// One key of config.json.
struct KeyRow {
  enum class Use : uint8_t {
    both,   ///< written, and read
    write,  ///< written; what a config says is not read
    read,   ///< not written
    equal,  ///< written, and the same as the field's where a config says it
  };
  /// Of trainer/spec/model_fields.h; empty: a key that has one value in models known here.
  std::string_view field;
  /// A field's: its text where a config has no such key, "0" for a count that follows from
  /// others, or of nothing, which null means too; empty: the key is needed. Without a field: the
  /// value, as JSON.
  std::string_view value = {};
  std::string_view own_key = {};  ///< Empty: as model_fields.h has it.
  Use use = Use::both;
  bool inverted = false;  ///< A bool field's: the key says the opposite.

  std::string key() const;
};

/// A family.
struct Family {
  std::string_view name;                  ///< model_type of config.json
  std::string_view architecture;          ///< class that transformers loads
  std::vector<std::string_view> bases;    ///< prefixes that a file may leave out or put in front
  std::vector<std::string_view> ignored;  ///< endings of buffers that are not parameters
  std::vector<KeyRow> keys;               ///< in the order of config.json
  std::vector<NameRow> rows;              ///< once a model
  std::vector<NameRow> layer_rows;        ///< once a layer
};

/// The family of this name (gpt2, opt, gpt_neox, llama, ...), or nullptr.
const Family* find_family(std::string_view name) noexcept;

/// The family that the model says, where that can hold it; else the first that can.
/// Errors: indexed::FormatError listing why none does.
const Family& choose_family(const trainer::ModelSpec& spec);

/// Why a model of these numbers cannot be written as this family; empty when it can.
std::string refusal(const Family& family, const trainer::ModelSpec& spec);

/// The family's own keys of config.json.
nlohmann::ordered_json write_config(const Family& family, const trainer::ModelSpec& spec);
/// The numbers that a config.json gives. Errors: indexed::FormatError naming the key.
trainer::ModelSpec read_config(const Family& family, const nlohmann::json& config);

/// The model's tensors under the family's names, in the order of forward.
std::vector<std::pair<std::string, TensorSource>> export_tensors(const Family& family,
                                                                 const CanonicalModel& model);

/// The other way: canonical tensors from the family's. `tensors` are a folder's, by name.
/// Errors: indexed::FormatError for a tensor that is missing, of a wrong shape, or of no row.
std::map<std::string, TensorSource> import_tensors(
    const Family& family, const trainer::ModelSpec& spec,
    const std::map<std::string, TensorSource>& tensors);

}  // namespace convert
