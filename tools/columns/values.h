// SPDX-License-Identifier: MIT
// Room: tools/columns. Values of Arrow's arrays as JSON, byte for byte as Python's json.dumps
// writes what pyarrow's to_pylist() gives (ensure_ascii=False, no spaces), or as bare text.
// Offsets, which may be wrong in a damaged file, are checked when they are used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <arrow/type_fwd.h>

#include "tools/stream/json_scan.h"

namespace columns {

/// How a text is written.
enum class Form { json, bare };

/// Why a value is refused; its offset is unused. `what` continues a sentence that begins with the
/// column's name.
using Refused = std::optional<stream::Complaint>;

/// Appends value `row` of a column of texts: a string, or a list of strings, which becomes a JSON
/// list or, with Form::bare, strings separated by line ends. Refused: a null, bytes that are not
/// UTF-8, and with Form::bare a NUL. `out` may then contain a part of the value. Errors:
/// ColumnError for offsets out of range.
Refused append_text(const arrow::Array& values, int64_t row, Form form, std::string& out);

/// Appends value `row`, of any type that select_columns() accepts, as JSON; a null is `null`.
/// Refused: bytes that are not UTF-8. Errors: as append_text.
Refused append_json(const arrow::Array& values, int64_t row, std::string& out);

}  // namespace columns
