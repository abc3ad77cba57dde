// SPDX-License-Identifier: MIT
// Room: tools/columns. Rows of a file as documents: one JSON object per line, or NUL-ended text, in
// pieces of a bounded size.
#pragma once

#include <cstdint>
#include <string>

#include "tools/columns/column_file.h"
#include "tools/columns/values.h"
#include "tools/stream/ordered_parts.h"

namespace columns {

/// Approximate bytes per piece; a single row may be longer.
inline constexpr size_t kPieceBytes = 1 << 20;

/// Reads all rows of `part` of the file `path` and passes them on as pieces. With Form::json a row
/// is an object with all `columns` and a line end; with Form::bare it is the first column's text
/// and a NUL. The first column's nulls are refused, as are bytes that are not UTF-8; places are
/// "PATH:row N", N from 1.
/// Errors: those of Part::read; ColumnError naming the file.
void write_rows(const Part& part, const std::string& path, const std::vector<Column>& columns,
                Form form, const stream::GivePiece& give);

}  // namespace columns
