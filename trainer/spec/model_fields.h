// The table of a model's fields: one row a member of ModelSpec. The trainer's flags, meta.json of
// its checkpoints, Megatron's arguments and Hugging Face's config.json are read and written by
// walking it, so that a new field is a member, a row, and the code that computes with it.
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
  /// Who has an argument of this name: Megatron and this trainer, or this trainer alone.
  enum class Known : uint8_t { megatron, ours };

  std::string_view name;  ///< ModelSpec's, and meta.json's.
  std::variant<int64_t ModelSpec::*, float ModelSpec::*, bool ModelSpec::*,
               std::string ModelSpec::*, ops::Norm ModelSpec::*, Position ModelSpec::*,
               ops::Activation ModelSpec::*>
      member;
  std::string_view argument = {};  ///< Megatron's; the flag has dashes instead of underlines.
  std::string_view hf = {};        ///< Key of config.json in most families.
  Known known = Known::megatron;
  bool inverted = false;         ///< The argument says the opposite.
  std::string_view rivals = {};  ///< Other flags that decide it, a space between.

  std::string flag() const;
};

/// Every field, in the order of ModelSpec.
std::span<const ModelField> model_fields() noexcept;
/// Errors: std::out_of_range for a name of no field: a mistake of ours.
const ModelField& model_field(std::string_view name);

/// The words of an enumeration: a value is called `record` in meta.json and `flag` by Megatron.
struct FieldWord {
  const char* record;
  const char* flag;
};

/// A field's value: as meta.json has it, or, with `as_flag`, as its flag is given. A number is the
/// shortest text that reads back as itself.
std::string field_text(const ModelField& field, const ModelSpec& spec, bool as_flag = false);
/// The other way; false where `text` is no value of the field, and `spec` is as it was.
bool set_field(const ModelField& field, ModelSpec& spec, std::string_view text,
               bool as_flag = false);
/// Whether two models have the same value.
bool same_field(const ModelField& field, const ModelSpec& a, const ModelSpec& b);

/// Every field's text by its name: the "model" part of meta.json.
std::map<std::string, std::string> model_record(const ModelSpec& spec);
/// The other way. What the record lacks has ModelSpec's default, as before there was such a field.
/// Errors: ShapeError for a text that is no value of its field.
ModelSpec model_from_record(const std::map<std::string, std::string>& record);

}  // namespace trainer
