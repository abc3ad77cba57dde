// SPDX-License-Identifier: MIT
// Room: tools/columns. Arrow's IPC formats: a part is a record batch, which is used directly in the
// mapped file. A stream must end with its end marker; one without it was not finished by its
// writer.
#include <algorithm>
#include <cstring>
#include <utility>

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include "libindexed/mapped_file.h"
#include "tools/cli/text.h"
#include "tools/columns/column_file.h"

namespace columns {
namespace {

/// An open file: a stream, or a file with a footer.
struct Source {
  std::string path;
  indexed::MappedFile file;
  std::shared_ptr<arrow::io::BufferReader> bytes;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> footed;
  int next_batch = 0;
  int64_t next_row = 0;
};

[[noreturn]] void fail(const std::string& path, std::string_view why) {
  throw ColumnError(cli::concat(path, ": cannot be read as Arrow IPC: ", why));
}

template <class Value>
Value take(const std::string& path, arrow::Result<Value> result) {
  if (!result.ok()) fail(path, result.status().message());
  return std::move(result).ValueUnsafe();
}

/// Errors: ColumnError if the stream does not end with its end marker, or if the file goes on after
/// it: streams that were concatenated, of which a reader sees only the first. Zeros may follow, as
/// where a file was made larger than needed.
void check_end(const Source& source) {
  constexpr unsigned char kEnd[8] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
  const int64_t at = take(source.path, source.bytes->Tell());
  const std::span<const std::byte> bytes = source.file.bytes();
  if (at < 8 || std::memcmp(bytes.data() + at - 8, kEnd, sizeof kEnd) != 0)
    fail(source.path, "it ends without the mark of its end: cut short, or never finished");
  if (std::ranges::any_of(bytes.subspan(static_cast<size_t>(at)),
                          [](std::byte byte) { return byte != std::byte{0}; }))
    fail(source.path, cli::concat(bytes.size() - static_cast<size_t>(at),
                                  " bytes follow the mark of its end: expected one stream in a "
                                  "file"));
}

/// The next record batch; null at the end.
std::shared_ptr<arrow::RecordBatch> next_batch(Source& source) {
  std::shared_ptr<arrow::RecordBatch> batch;
  if (source.footed) {
    if (source.next_batch == source.footed->num_record_batches()) return nullptr;
    batch = take(source.path, source.footed->ReadRecordBatch(source.next_batch++));
  } else {
    const arrow::Status status = source.stream->ReadNext(&batch);
    if (!status.ok()) fail(source.path, status.message());
    if (!batch) check_end(source);
  }
  return batch;
}

bool has_views(const arrow::DataType& type) {
  if (arrow::is_binary_view_like(type.id())) return true;
  return std::ranges::any_of(type.fields(), [](const std::shared_ptr<arrow::Field>& field) {
    return has_views(*field->type());
  });
}

/// Checks all views here, unlike offsets (values.cc).
void check_batch(const arrow::RecordBatch& batch, const std::string& path) {
  arrow::Status status = batch.Validate();
  for (const std::shared_ptr<arrow::Array>& column : batch.columns()) {
    if (status.ok() && has_views(*column->type())) status = column->ValidateFull();
  }
  if (!status.ok()) fail(path, status.message());
}

std::shared_ptr<arrow::Schema> open(Source& source, const arrow::ipc::IpcReadOptions& options) {
  const std::span<const std::byte> bytes = source.file.bytes();
  source.bytes = std::make_shared<arrow::io::BufferReader>(std::make_shared<arrow::Buffer>(
      reinterpret_cast<const uint8_t*>(bytes.data()), static_cast<int64_t>(bytes.size())));
  if (bytes.size() >= 6 && std::memcmp(bytes.data(), "ARROW1", 6) == 0) {
    source.footed =
        take(source.path, arrow::ipc::RecordBatchFileReader::Open(source.bytes.get(), options));
    return source.footed->schema();
  }
  source.stream =
      take(source.path, arrow::ipc::RecordBatchStreamReader::Open(source.bytes.get(), options));
  return source.stream->schema();
}

/// Options for reading only the wanted columns.
arrow::ipc::IpcReadOptions options_for(const std::vector<Column>& columns,
                                       const arrow::Schema& schema) {
  arrow::ipc::IpcReadOptions options;
  options.use_threads = false;
  for (const Column& column : columns) {
    const int field = schema.GetFieldIndex(column.steps[0]);
    if (std::ranges::find(options.included_fields, field) == options.included_fields.end())
      options.included_fields.push_back(field);
  }
  return options;
}

}  // namespace

ColumnFile open_ipc(const std::string& path, const std::vector<std::string>& columns) {
  auto source = std::make_shared<Source>();
  source->path = path;
  source->file = indexed::MappedFile(path, indexed::MappedFile::Access::sequential);
  Source whole{.path = path, .file = indexed::MappedFile(path)};
  const std::shared_ptr<arrow::Schema> schema = open(whole, {});
  ColumnFile opened;
  opened.columns = select_columns(columns, *schema, path);
  open(*source, options_for(opened.columns, *schema));
  opened.next = [source](Part& part) {
    const std::shared_ptr<arrow::RecordBatch> batch = next_batch(*source);
    if (!batch) return false;
    part.read = [source, batch, first_row = source->next_row](const EachBatch& each) {
      check_batch(*batch, source->path);
      each(*batch, first_row);
    };
    source->next_row += batch->num_rows();
    return true;
  };
  return opened;
}

}  // namespace columns
