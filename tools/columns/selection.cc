// SPDX-License-Identifier: MIT
// Room: tools/columns. Finds names in schemas, and checks that JSON can represent their types.
#include "tools/columns/selection.h"

#include <algorithm>
#include <span>
#include <string_view>

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include "tools/cli/text.h"

namespace columns {
namespace {

using arrow::Type;
using TypePointer = std::shared_ptr<arrow::DataType>;

bool is_text(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::STRING:
    case Type::LARGE_STRING:
    case Type::STRING_VIEW:
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
      return true;
    case Type::DICTIONARY:
      return is_text(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case Type::EXTENSION:
      return is_text(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    default:
      return false;
  }
}

bool is_list(const arrow::DataType& type) {
  return type.id() == Type::LIST || type.id() == Type::LARGE_LIST ||
         type.id() == Type::FIXED_SIZE_LIST;
}

/// The part of `type` that JSON cannot represent; null if it can represent all of it.
const arrow::DataType* without_json(const arrow::DataType& type) {
  const bool plain = type.id() == Type::NA || type.id() == Type::BOOL ||
                     arrow::is_integer(type.id()) || arrow::is_floating(type.id());
  if (plain || is_text(type)) return nullptr;
  if (type.id() == Type::DICTIONARY)
    return without_json(*static_cast<const arrow::DictionaryType&>(type).value_type());
  if (type.id() == Type::EXTENSION)
    return without_json(*static_cast<const arrow::ExtensionType&>(type).storage_type());
  if (!is_list(type) && type.id() != Type::STRUCT) return &type;
  for (const std::shared_ptr<arrow::Field>& field : type.fields()) {
    if (const arrow::DataType* found = without_json(*field->type())) return found;
  }
  return nullptr;
}

/// Whether a row can be a text: strings, lists of them, and what a writer makes of a column in
/// which it found no value.
bool is_texts(const arrow::DataType& type) {
  const arrow::DataType& items = is_list(type) ? *type.field(0)->type() : type;
  return is_text(items) || items.id() == Type::NA;
}

/// The first name that two members of one struct have; null if there is none. JSON keeps one.
const std::string* name_twice(const arrow::DataType& type) {
  for (int i = 0; i < type.num_fields(); ++i) {
    if (const std::string* found = name_twice(*type.field(i)->type())) return found;
    for (int other = 0; type.id() == Type::STRUCT && other < i; ++other) {
      if (type.field(other)->name() == type.field(i)->name()) return &type.field(i)->name();
    }
  }
  return nullptr;
}

/// What `type` would have to be stored as to be read; null if its layout is one that is.
const char* readable_layout(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::LIST_VIEW:
    case Type::LARGE_LIST_VIEW:
      return "a list";
    case Type::RUN_END_ENCODED:
      return "its values, or as a dictionary";
    default:
      break;
  }
  for (const std::shared_ptr<arrow::Field>& field : type.fields())
    if (const char* found = readable_layout(*field->type())) return found;
  return nullptr;
}

/// The first of `steps`, a path that exists, whose name two fields of its level have; null if there
/// is none. Only one of them would be read.
const std::string* step_twice(std::span<const std::shared_ptr<arrow::Field>> fields,
                              const std::vector<std::string>& steps) {
  for (const std::string& step : steps) {
    const auto named = [&](const std::shared_ptr<arrow::Field>& field) {
      return field->name() == step;
    };
    if (std::ranges::count_if(fields, named) > 1) return &step;
    fields = (*std::ranges::find_if(fields, named))->type()->fields();
  }
  return nullptr;
}

/// Fills `steps` with the path to `name`; returns its type, null if it does not exist.
TypePointer find(std::span<const std::shared_ptr<arrow::Field>> fields, std::string_view name,
                 std::vector<std::string>& steps) {
  const auto field_of = [&](std::string_view wanted) {
    const auto found = std::ranges::find_if(
        fields,
        [&](const std::shared_ptr<arrow::Field>& field) { return field->name() == wanted; });
    return found == fields.end() ? nullptr : (*found)->type();
  };
  if (TypePointer type = field_of(name)) {
    steps.emplace_back(name);
    return type;
  }
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const TypePointer outer = field_of(name.substr(0, dot));
    if (!outer || outer->id() != Type::STRUCT) continue;
    steps.emplace_back(name.substr(0, dot));
    if (TypePointer type = find(outer->fields(), name.substr(dot + 1), steps)) return type;
    steps.pop_back();
  }
  return nullptr;
}

/// The columns that there are; of a struct that `wanted` enters, its members.
void add_names(std::span<const std::shared_ptr<arrow::Field>> fields, const std::string& before,
               std::string_view wanted, std::vector<std::string>& names) {
  for (const std::shared_ptr<arrow::Field>& field : fields) {
    const std::string name = before + field->name();
    if (field->type()->id() == Type::STRUCT && wanted.starts_with(name + "."))
      add_names(field->type()->fields(), name + ".", wanted, names);
    else
      names.push_back(cli::quote(name));
  }
}

std::string names_of(const arrow::Schema& schema, std::string_view wanted) {
  constexpr size_t kMostNames = 40;
  std::vector<std::string> names;
  add_names(schema.fields(), "", wanted, names);
  if (names.size() > kMostNames) {
    names.resize(kMostNames);
    names.push_back("...");
  }
  if (names.empty()) return "there are none";
  return cli::concat(names.size() == 1 ? "there is only " : "there are ", cli::join(names, ", "));
}

}  // namespace

std::vector<Column> select_columns(const std::vector<std::string>& names,
                                   const arrow::Schema& schema, const std::string& path) {
  std::vector<Column> columns;
  for (const std::string& name : names) {
    Column column{name, {}};
    const TypePointer type = find(schema.fields(), name, column.steps);
    const std::string place = cli::concat(path, ": column ", cli::quote(name));
    if (!type)
      throw ColumnError(
          cli::concat(path, ": no column ", cli::quote(name), ": ", names_of(schema, name)));
    if (const std::string* twice = step_twice(schema.fields(), column.steps)) {
      if (twice == &column.steps[0])
        throw ColumnError(cli::concat(path, ": two columns are named ", cli::quote(*twice)));
      throw ColumnError(cli::concat(place, ": two members are named ", cli::quote(*twice)));
    }
    if (const char* layout = readable_layout(*type))
      throw ColumnError(cli::concat(place, " is ", type->ToString(),
                                    ": this layout is not read: store the column as ", layout));
    if (columns.empty() && !is_texts(*type))
      throw ColumnError(
          cli::concat(place, " is ", type->ToString(), ", expected a string or a list of strings"));
    if (const std::string* twice = name_twice(*type))
      throw ColumnError(cli::concat(place, ": two members are named ", cli::quote(*twice)));
    if (const arrow::DataType* bad = without_json(*type))
      throw ColumnError(
          cli::concat(place, " is ", type->ToString(), ": JSON has no form for ", bad->ToString()));
    columns.push_back(std::move(column));
  }
  return columns;
}

std::shared_ptr<arrow::Array> values_of(const Column& column, const arrow::RecordBatch& batch) {
  std::shared_ptr<arrow::Array> values = batch.GetColumnByName(column.steps[0]);
  for (size_t i = 1; values && i < column.steps.size(); ++i) {
    if (values->type_id() != Type::STRUCT) {
      values = nullptr;
      break;
    }
    const auto& outer = static_cast<const arrow::StructArray&>(*values);
    const int index =
        static_cast<const arrow::StructType&>(*outer.type()).GetFieldIndex(column.steps[i]);
    if (index < 0) {
      values = nullptr;
      break;
    }
    values = outer.GetFlattenedField(index).ValueOr(nullptr);
  }
  if (!values) throw ColumnError(cli::concat("a batch has no column ", cli::quote(column.name)));
  return values;
}

}  // namespace columns
