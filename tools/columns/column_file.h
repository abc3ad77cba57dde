// SPDX-License-Identifier: MIT
// Room: tools/columns. Files of columns by Apache Arrow's library: Parquet, and Arrow's two IPC
// formats (files, and streams as the `datasets` package keeps them), told by their first bytes. A
// file is parts, row groups or record batches, that several threads may read at once. Memory: what
// a part reads at a time (kBatchBytes), whatever its size; of compressed IPC, a record batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <arrow/type_fwd.h>

#include "tools/columns/selection.h"

namespace columns {

/// About so many bytes of a row group are decoded at a time.
inline constexpr int64_t kBatchBytes = 1 << 20;

/// Takes a batch, and the row of its file, from 0, that is its first.
using EachBatch = std::function<void(const arrow::RecordBatch&, int64_t first_row)>;

/// Rows that are read one after the other. Copies share the file, which stays open with them.
struct Part {
  std::function<void(const EachBatch&)> read;  ///< once, on any thread; Errors: ColumnError
};

/// One open file.
struct ColumnFile {
  std::vector<Column> columns;      ///< as they were asked for
  int64_t num_rows = 0;             ///< of the whole file; 0 where it is not known before the end
  std::function<bool(Part&)> next;  ///< the next part, in order; false at the end
};

/// Opens `path` and finds `columns` in it.
/// Errors: std::system_error; ColumnError for a file of another kind, one that is damaged or cut
/// short, columns that are not there, and types that cannot be written.
ColumnFile open_column_file(const std::string& path, const std::vector<std::string>& columns);

/// The two kinds, for files that are of them.
ColumnFile open_parquet(const std::string& path, const std::vector<std::string>& columns);
ColumnFile open_ipc(const std::string& path, const std::vector<std::string>& columns);

}  // namespace columns
