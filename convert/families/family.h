// SPDX-License-Identifier: MIT
// A family of Hugging Face models as data: a row for each tensor gives its name there and the
// canonical tensors in it, a row for each key of config.json gives its field of the model; the same
// rows are used in both directions. Not here: which models a family can represent
// (trainer/spec/families.h), files of a folder (hf_folder.h).
// Source: docs/format/hf-folder.5.md; transformers/models/<family>/modeling_*.py.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/canonical.h"

namespace convert {

/// How several canonical tensors are combined into one. stacked: concatenated by rows. grouped: q,
/// k, v as in join_qkv.
enum class Fuse : uint8_t { none, stacked, grouped };

/// One tensor of a family. "{}" in `hf` is the layer's number, and the canonical names are then
/// suffixes for layer_name(). A bias that the family always has but the model lacks is zeros.
struct NameRow {
  enum class When : uint8_t { always, pre_norm, post_norm };
  std::string_view hf;
  std::vector<std::string_view> canonical;
  Fuse fuse = Fuse::none;
  bool transposed = false;   ///< stored (in, out)
  bool optional = false;     ///< absent where the model has no such tensor
  When when = When::always;  ///< models that have the row: by ModelSpec::post_norm
  /// The canonical names are of the next layer; after the last one they are the final norm's.
  bool next = false;
};

/// One key of config.json.
struct KeyRow {
  enum class Use : uint8_t {
    both,      ///< written, and read
    write,     ///< written, but not read
    read,      ///< not written
    equal,     ///< written; if a config has it, it must equal the field's value
    training,  ///< written; a real that only training reads: training_note() says if it is another
  };
  /// A field of trainer/spec/model_fields.h; empty: a key with one value in all supported models.
  std::string_view field;
  /// With a field: its value as text if a config has no such key; "0" for a count that follows from
  /// others, or for none, like null; empty: the key is required. Without a field: the value, as
  /// JSON.
  std::string_view value = {};
  std::string_view own_key = {};  ///< Empty: the key in model_fields.h.
  Use use = Use::both;
  bool inverted = false;  ///< A bool field's: the key says the opposite.

  std::string key() const;
};

/// A family.
struct Family {
  std::string_view name;                  ///< model_type of config.json
  std::string_view architecture;          ///< class that transformers loads
  std::vector<std::string_view> bases;    ///< prefixes that a file's names may have or not
  std::vector<std::string_view> ignored;  ///< endings of buffers that are not parameters
  std::vector<KeyRow> keys;               ///< in the order of config.json
  std::vector<NameRow> rows;              ///< outside the layers
  std::vector<NameRow> layer_rows;        ///< for each layer
};

/// The family of this name (gpt2, opt, gpt_neox, llama, ...), or nullptr.
const Family* find_family(std::string_view name) noexcept;

/// The family that the model names, if that can represent it; else the first that can. Errors:
/// indexed::FormatError listing why none can.
const Family& choose_family(const trainer::ModelSpec& spec);

/// Why such a model cannot be written as this family; empty if it can.
std::string refusal(const Family& family, const trainer::ModelSpec& spec);

/// The family's own keys of config.json.
nlohmann::ordered_json write_config(const Family& family, const trainer::ModelSpec& spec);
/// The model's fields from a config.json. Errors: indexed::FormatError naming the key.
trainer::ModelSpec read_config(const Family& family, const nlohmann::json& config);
/// A message naming a key of the config that only training reads and whose value `spec`, which was
/// read from it, cannot hold beside another key's; empty if there is none. Errors: the same.
std::string training_note(const Family& family, const nlohmann::json& config,
                          const trainer::ModelSpec& spec);

/// The model's tensors under the family's names, in the order of forward.
std::vector<std::pair<std::string, TensorSource>> export_tensors(const Family& family,
                                                                 const CanonicalModel& model);

/// The reverse: canonical tensors from the family's. `tensors` are a folder's, by name. Errors:
/// indexed::FormatError for a tensor that is missing, has a wrong shape, or belongs to no row.
std::map<std::string, TensorSource> import_tensors(
    const Family& family, const trainer::ModelSpec& spec,
    const std::map<std::string, TensorSource>& tensors);

}  // namespace convert
