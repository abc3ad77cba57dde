// SPDX-License-Identifier: MIT
// Room: tools/columns. Selects columns of a file: finds the names given on the command line in the
// file's schema, including members of structs, and checks that their types can be written.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <arrow/type_fwd.h>

namespace columns {

/// A file is damaged or of another kind, or lacks a column. The text begins with the file's name.
struct ColumnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One wanted column.
struct Column {
  std::string name;                ///< as requested: "meta.url"
  std::vector<std::string> steps;  ///< the column, then members of structs: "meta", "url"
};

/// Finds `names` in `schema` of the file `path`: the column of that name or, if there is none,
/// `url` of the struct `meta` for "meta.url". The first must contain texts or lists of texts, the
/// others only types that JSON can represent. Errors: ColumnError that lists the existing columns,
/// or names the type.
std::vector<Column> select_columns(const std::vector<std::string>& names,
                                   const arrow::Schema& schema, const std::string& path);

/// The values of `column` in a batch; null where one of the enclosing structs is null. Errors:
/// ColumnError without the file's name if the batch lacks the column or is damaged.
std::shared_ptr<arrow::Array> values_of(const Column& column, const arrow::RecordBatch& batch);

}  // namespace columns
