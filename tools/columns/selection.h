// SPDX-License-Identifier: MIT
// Room: tools/columns. Which columns of a file are wanted: names of the command line found in the
// file's schema, members of structs among them, and checked to be of types that can be written.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <arrow/type_fwd.h>

namespace columns {

/// A file is not what it should be, or lacks what is wanted. The text opens with the file.
struct ColumnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One wanted column.
struct Column {
  std::string name;                ///< as it was asked for: "meta.url"
  std::vector<std::string> steps;  ///< the column, then members of structs: "meta", "url"
};

/// Finds `names` in `schema` of the file `path`: the column of that name or, where there is none,
/// `url` of the struct `meta` for "meta.url". The first must hold texts or lists of texts, the
/// others what JSON has a form for.
/// Errors: ColumnError that lists the columns that are there, or names the type.
std::vector<Column> select_columns(const std::vector<std::string>& names,
                                   const arrow::Schema& schema, const std::string& path);

/// The values of `column` in a batch that has it; null where one of the structs around it is.
/// Errors: ColumnError without the file's name where the batch lacks it, or is damaged.
std::shared_ptr<arrow::Array> values_of(const Column& column, const arrow::RecordBatch& batch);

}  // namespace columns
