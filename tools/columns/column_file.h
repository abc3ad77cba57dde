// SPDX-License-Identifier: MIT
// Room: tools/columns. Files of columns by Apache Arrow's library: Parquet, and Arrow's two IPC
// formats (files, and streams as the `datasets` package keeps them), recognised by their first
// bytes. A file consists of parts, row groups or record batches, that several threads may read at
// once. Memory: what a part reads at a time (kBatchBytes), whatever its size; for compressed IPC, a
// record batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <arrow/type_fwd.h>

#include "tools/columns/selection.h"

namespace columns {

/// About this many bytes of a row group are decoded at a time.
inline constexpr int64_t kBatchBytes = 1 << 20;

/// Receives a batch, and the number of its first row in the file, from 0.
using EachBatch = std::function<void(const arrow::RecordBatch&, int64_t first_row)>;

/// Rows that are read one after another. Copies share the file, which stays open as long as any
/// exists.
struct Part {
  std::function<void(const EachBatch&)> read;  ///< only once, on any thread. Errors: ColumnError
};

/// One open file.
struct ColumnFile {
  std::vector<Column> columns;      ///< in the order requested
  int64_t num_rows = 0;             ///< of the whole file; 0 if not known before the end
  std::function<bool(Part&)> next;  ///< the next part, in order; false at the end
};

/// Opens `path` and finds `columns` in it.
/// Errors: std::system_error; ColumnError for a file of another kind, a damaged or cut file,
/// missing columns, and types that cannot be written.
ColumnFile open_column_file(const std::string& path, const std::vector<std::string>& columns);

/// The same for files known to be of that kind.
ColumnFile open_parquet(const std::string& path, const std::vector<std::string>& columns);
ColumnFile open_ipc(const std::string& path, const std::vector<std::string>& columns);

}  // namespace columns
