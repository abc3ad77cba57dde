// The table of a model's fields: one row for each member of ModelSpec. The trainer's flags, its
// checkpoints' meta.json, Megatron's arguments and Hugging Face's config.json are read and written
// by this table, so a new field is a member, a row, and the code that computes with it.
// Not here: which fields a family fixes (families.h). May include: spec/spec.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "trainer/spec/spec.h"

namespace trainer {

/// A field. Its default is ModelSpec's.
struct ModelField {
  /// Which programs have an argument of this name: Megatron and this trainer, or only this trainer.
  enum class Known : uint8_t { megatron, ours };

  std::string_view name;  ///< Its name in ModelSpec and in meta.json.
  std::variant<int64_t ModelSpec::*, float ModelSpec::*, bool ModelSpec::*,
               std::string ModelSpec::*, ops::Norm ModelSpec::*, Position ModelSpec::*,
               ops::Activation ModelSpec::*>
      member;
  std::string_view argument = {};  ///< Megatron's; the flag has dashes instead of underlines.
  std::string_view hf = {};        ///< Key of config.json in most families.
  Known known = Known::megatron;
  bool inverted = false;         ///< The argument means the opposite.
  std::string_view rivals = {};  ///< Other flags that set it, separated by spaces.

  std::string flag() const;
};

/// Every field, in the order of ModelSpec.
std::span<const ModelField> model_fields() noexcept;
/// Errors: std::out_of_range for an unknown name, which is a bug in the caller.
const ModelField& model_field(std::string_view name);

/// The names of an enumeration's value: `record` in meta.json, `flag` in Megatron.
struct FieldWord {
  const char* record;
  const char* flag;
};

/// A field's value as in meta.json, or, with `as_flag`, as for its flag. A number is the shortest
/// text that reads back the same.
std::string field_text(const ModelField& field, const ModelSpec& spec, bool as_flag = false);
/// Sets a field from text; false, with `spec` unchanged, if `text` is not a value of the field.
bool set_field(const ModelField& field, ModelSpec& spec, std::string_view text,
               bool as_flag = false);
/// Whether two models have the same value.
bool same_field(const ModelField& field, const ModelSpec& a, const ModelSpec& b);

/// Every field's text by its name: the "model" part of meta.json.
std::map<std::string, std::string> model_record(const ModelSpec& spec);
/// The reverse. Missing fields have ModelSpec's default, the value from before the field existed.
/// Errors: ShapeError for a text that is not a value of its field.
ModelSpec model_from_record(const std::map<std::string, std::string>& record);

}  // namespace trainer
