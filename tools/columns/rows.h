// SPDX-License-Identifier: MIT
// Room: tools/columns. Rows of a file as documents: JSON objects a line, or NUL-ended text, in
// pieces of a bounded size.
#pragma once

#include <cstdint>
#include <string>

#include "tools/columns/column_file.h"
#include "tools/columns/values.h"
#include "tools/stream/ordered_parts.h"

namespace columns {

/// About so many bytes make a piece; one row may be longer.
inline constexpr size_t kPieceBytes = 1 << 20;

/// Reads all rows of `part` of the file `path` and gives them as pieces: in Form::json an object
/// with all `columns` and a line end, bare the first column's text and a NUL. The first column's
/// nulls are refused, as are bytes that are not UTF-8; places are "PATH:row N", N from 1.
/// Errors: those of Part::read; ColumnError naming the file.
void write_rows(const Part& part, const std::string& path, const std::vector<Column>& columns,
                Form form, const stream::GivePiece& give);

}  // namespace columns
