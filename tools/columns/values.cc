// SPDX-License-Identifier: MIT
// Room: tools/columns. One value at a time, by type.
#include "tools/columns/values.h"

#include <charconv>

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/util/float16.h>

#include "libindexed/json.h"
#include "tools/cli/text.h"
#include "tools/columns/selection.h"
#include "tools/extract/text_output.h"

namespace columns {
namespace {

using arrow::Type;

[[noreturn]] void fail_damaged() {
  throw ColumnError("damaged: an offset points outside its data");
}

/// Item `row` of an array of strings with offsets. Validate() has checked that there are offsets
/// and that the first and the last fit; those in between are checked here.
template <class Strings>
std::string_view string_of(const arrow::Array& values, int64_t row) {
  const auto& strings = static_cast<const Strings&>(values);
  const auto begin = static_cast<int64_t>(strings.value_offset(row));
  const auto end = static_cast<int64_t>(strings.value_offset(row + 1));
  const std::shared_ptr<arrow::Buffer>& data = strings.value_data();
  if (begin < 0 || end < begin || end > (data ? data->size() : 0)) fail_damaged();
  return end == begin ? std::string_view()
                      : std::string_view(data->template data_as<char>() + begin,
                                         static_cast<size_t>(end - begin));
}

/// A list's items: an array and the rows of it.
struct Items {
  const arrow::Array& values;
  int64_t begin;
  int64_t end;
};

template <class List>
Items items_in(const arrow::Array& values, int64_t row) {
  const auto& list = static_cast<const List&>(values);
  const auto begin = static_cast<int64_t>(list.value_offset(row));
  const int64_t end = begin + static_cast<int64_t>(list.value_length(row));
  if (begin < 0 || end < begin || end > list.values()->length()) fail_damaged();
  return {*list.values(), begin, end};
}

Items items_of(const arrow::Array& values, int64_t row) {
  switch (values.type_id()) {
    case Type::LIST:
      return items_in<arrow::ListArray>(values, row);
    case Type::LARGE_LIST:
      return items_in<arrow::LargeListArray>(values, row);
    default:
      return items_in<arrow::FixedSizeListArray>(values, row);
  }
}

bool is_list(const arrow::Array& values) {
  return values.type_id() == Type::LIST || values.type_id() == Type::LARGE_LIST ||
         values.type_id() == Type::FIXED_SIZE_LIST;
}

/// A value without dictionaries and extension types; `values` is null for a null.
struct Plain {
  const arrow::Array* values;
  int64_t row;
};

Plain plain(const arrow::Array& values, int64_t row) {
  const arrow::Array* array = &values;
  while (!array->IsNull(row)) {
    if (array->type_id() == Type::EXTENSION) {
      array = static_cast<const arrow::ExtensionArray*>(array)->storage().get();
    } else if (array->type_id() == Type::DICTIONARY) {
      const auto* coded = static_cast<const arrow::DictionaryArray*>(array);
      row = coded->GetValueIndex(row);
      array = coded->dictionary().get();
      if (row < 0 || row >= array->length()) fail_damaged();
    } else {
      return {array, row};
    }
  }
  return {nullptr, 0};
}

/// The bytes of a string or binary value.
std::string_view bytes_of(const Plain& value) {
  switch (value.values->type_id()) {
    case Type::STRING:
    case Type::BINARY:
      return string_of<arrow::BinaryArray>(*value.values, value.row);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return string_of<arrow::LargeBinaryArray>(*value.values, value.row);
    default:
      return static_cast<const arrow::BinaryViewArray&>(*value.values).GetView(value.row);
  }
}

bool is_string(const arrow::Array& values) {
  return arrow::is_base_binary_like(values.type_id()) ||
         arrow::is_binary_view_like(values.type_id());
}

Refused check_utf8(std::string_view text) {
  if (stream::is_utf8(text)) return std::nullopt;
  return stream::Complaint{stream::Reason::utf8, 0,
                           cli::concat("has bytes that are not UTF-8 at byte ",
                                       stream::find_bad_utf8(text) + 1, " of the text")};
}

Refused append_string(std::string_view text, Form form, std::string& out) {
  if (Refused refused = check_utf8(text)) return refused;
  if (form == Form::json) {
    extract::append_json_string(text, out);
    return std::nullopt;
  }
  if (text.find('\0') != std::string_view::npos) {
    return stream::Complaint{stream::Reason::nul_in_text, 0,
                             "has a NUL character, which ends documents with -0"};
  }
  out += text;
  return std::nullopt;
}

template <class Numbers>
void append_integer(const Plain& value, std::string& out) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits,
                                 static_cast<const Numbers&>(*value.values).Value(value.row));
  out.append(digits, end.ptr);
}

/// False if the value is not a number.
bool append_number(const Plain& value, std::string& out) {
  const auto real = [&](double number) { out += indexed::python_float(number); };
  switch (value.values->type_id()) {
    case Type::INT8:
      return append_integer<arrow::Int8Array>(value, out), true;
    case Type::INT16:
      return append_integer<arrow::Int16Array>(value, out), true;
    case Type::INT32:
      return append_integer<arrow::Int32Array>(value, out), true;
    case Type::INT64:
      return append_integer<arrow::Int64Array>(value, out), true;
    case Type::UINT8:
      return append_integer<arrow::UInt8Array>(value, out), true;
    case Type::UINT16:
      return append_integer<arrow::UInt16Array>(value, out), true;
    case Type::UINT32:
      return append_integer<arrow::UInt32Array>(value, out), true;
    case Type::UINT64:
      return append_integer<arrow::UInt64Array>(value, out), true;
    case Type::HALF_FLOAT: {
      const auto& halves = static_cast<const arrow::HalfFloatArray&>(*value.values);
      return real(arrow::util::Float16::FromBits(halves.Value(value.row)).ToDouble()), true;
    }
    case Type::FLOAT:
      return real(static_cast<const arrow::FloatArray&>(*value.values).Value(value.row)), true;
    case Type::DOUBLE:
      return real(static_cast<const arrow::DoubleArray&>(*value.values).Value(value.row)), true;
    default:
      return false;
  }
}

Refused append_list(const Items& items, std::string& out) {
  out += '[';
  for (int64_t i = items.begin; i < items.end; ++i) {
    if (i > items.begin) out += ',';
    if (Refused refused = append_json(items.values, i, out)) return refused;
  }
  out += ']';
  return std::nullopt;
}

Refused append_struct(const Plain& value, std::string& out) {
  const auto& members = static_cast<const arrow::StructArray&>(*value.values);
  out += '{';
  for (int i = 0; i < members.num_fields(); ++i) {
    if (i > 0) out += ',';
    extract::append_json_string(members.struct_type()->field(i)->name(), out);
    out += ':';
    if (Refused refused = append_json(*members.field(i), value.row, out)) return refused;
  }
  out += '}';
  return std::nullopt;
}

Refused refuse_null(std::string_view what) {
  return stream::Complaint{stream::Reason::wrong_type, 0, std::string(what)};
}

}  // namespace

Refused append_json(const arrow::Array& values, int64_t row, std::string& out) {
  const Plain value = plain(values, row);
  if (value.values == nullptr) return out += "null", std::nullopt;
  if (is_string(*value.values)) return append_string(bytes_of(value), Form::json, out);
  if (is_list(*value.values)) return append_list(items_of(*value.values, value.row), out);
  if (value.values->type_id() == Type::STRUCT) return append_struct(value, out);
  if (append_number(value, out)) return std::nullopt;
  out += static_cast<const arrow::BooleanArray&>(*value.values).Value(value.row) ? "true" : "false";
  return std::nullopt;
}

Refused append_text(const arrow::Array& values, int64_t row, Form form, std::string& out) {
  const Plain value = plain(values, row);
  if (value.values == nullptr) return refuse_null("is null, expected a string");
  if (!is_list(*value.values)) return append_string(bytes_of(value), form, out);
  const Items items = items_of(*value.values, value.row);
  if (form == Form::json) out += '[';
  for (int64_t i = items.begin; i < items.end; ++i) {
    if (i > items.begin) out += form == Form::json ? ',' : '\n';
    const Plain item = plain(items.values, i);
    if (item.values == nullptr) return refuse_null("holds a null, expected a list of strings");
    if (Refused refused = append_string(bytes_of(item), form, out)) return refused;
  }
  if (form == Form::json) out += ']';
  return std::nullopt;
}

}  // namespace columns
