// SPDX-License-Identifier: MIT
// Room: tools/columns. Parquet: a part is a row group, whose pages are read and decompressed when
// needed. Each part has its own reader; all share the file and its footer.
#include <algorithm>
#include <exception>
#include <utility>

#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/size_statistics.h>

#include "libindexed/mapped_file.h"
#include "tools/cli/text.h"
#include "tools/columns/column_file.h"

namespace columns {
namespace {

/// Bytes of a column's pages that are read at a time.
constexpr int64_t kReadBytes = 256 << 10;

/// The maximum number of rows per batch.
constexpr int64_t kMostRows = 16384;

/// What the parts of a file share; constant.
struct Shared {
  std::string path;
  std::shared_ptr<arrow::io::ReadableFile> file;
  indexed::MappedFile watched;  ///< for indexed::check_mapped_files(); read through `file`
  std::shared_ptr<parquet::FileMetaData> footer;
  std::vector<int> leaves;  ///< of the wanted columns, as the footer numbers them
};

[[noreturn]] void fail(const std::string& path, std::string_view why) {
  throw ColumnError(cli::concat(path, ": cannot be read as Parquet: ", why));
}

/// Runs `call()` and turns Arrow's and Parquet's exceptions into ours.
template <class Call>
auto guarded(const std::string& path, const Call& call) {
  try {
    return call();
  } catch (const parquet::ParquetException& error) {
    fail(path, error.what());
  }
}

void check(const std::string& path, const arrow::Status& status) {
  if (!status.ok()) fail(path, status.message());
}

template <class Value>
Value take(const std::string& path, arrow::Result<Value> result) {
  check(path, result.status());
  return std::move(result).ValueUnsafe();
}

/// `memory`: for pages and their dictionaries.
std::unique_ptr<parquet::arrow::FileReader> reader_of(const Shared& shared, int64_t batch_rows,
                                                      arrow::MemoryPool* memory) {
  parquet::ReaderProperties pages(memory);
  pages.enable_buffered_stream();
  pages.set_buffer_size(kReadBytes);
  pages.set_page_checksum_verification(true);
  parquet::ArrowReaderProperties batches(/*use_threads=*/false);
  batches.set_batch_size(batch_rows);
  batches.set_pre_buffer(false);
  return take(shared.path,
              parquet::arrow::FileReader::Make(
                  arrow::default_memory_pool(),
                  parquet::ParquetFileReader::Open(shared.file, pages, shared.footer), batches));
}

/// Adds the leaves under `field`.
void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const parquet::arrow::SchemaField& child : field.children) add_leaves(child, leaves);
}

std::vector<int> leaves_of(const std::vector<Column>& columns,
                           const parquet::arrow::SchemaManifest& manifest) {
  std::vector<int> leaves;
  for (const Column& column : columns) {
    const std::vector<parquet::arrow::SchemaField>* fields = &manifest.schema_fields;
    const parquet::arrow::SchemaField* field = nullptr;
    for (const std::string& step : column.steps) {
      const auto found = std::ranges::find_if(*fields, [&](const parquet::arrow::SchemaField& one) {
        return one.field->name() == step;
      });
      field = &*found;  // exists: select_columns() found it in the same schema
      fields = &field->children;
    }
    add_leaves(*field, leaves);
  }
  std::ranges::sort(leaves);
  leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
  return leaves;
}

/// More memory than the pages of a row group take: a damaged page could ask for gigabytes. All
/// sizes are the footer's; a dictionary's entry takes 16 bytes in memory, whatever it takes in the
/// file.
int64_t most_memory(const parquet::RowGroupMetaData& group, const std::vector<int>& leaves) {
  constexpr int64_t kBytesOfValue = 32, kAtLeast = 64 << 20, kAtMost = int64_t{1} << 42;
  int64_t bytes = kAtLeast;
  for (const int leaf : leaves) {
    const std::unique_ptr<parquet::ColumnChunkMetaData> chunk = group.ColumnChunk(leaf);
    for (const int64_t part :
         {chunk->total_compressed_size(), chunk->total_uncompressed_size(),
          std::clamp<int64_t>(chunk->num_values(), 0, kAtMost) * kBytesOfValue})
      bytes += std::clamp<int64_t>(part, 0, kAtMost);
  }
  return bytes;
}

/// The number of rows in about kBatchBytes, by the sizes in the footer: decompressed and, if given,
/// without the dictionary.
int64_t rows_at_a_time(const parquet::RowGroupMetaData& group, const std::vector<int>& leaves) {
  int64_t bytes = 0;
  for (const int leaf : leaves) {
    const std::unique_ptr<parquet::ColumnChunkMetaData> chunk = group.ColumnChunk(leaf);
    const std::shared_ptr<parquet::SizeStatistics> sizes = chunk->size_statistics();
    const int64_t plain = sizes ? sizes->unencoded_byte_array_data_bytes.value_or(0) : 0;
    bytes += std::max(chunk->total_uncompressed_size(), plain);
  }
  const int64_t a_row = bytes / std::max<int64_t>(group.num_rows(), 1) + 1;
  return std::clamp<int64_t>(kBatchBytes / a_row, 1, kMostRows);
}

void read_group(const Shared& shared, int group, int64_t first_row, const EachBatch& each) {
  const std::unique_ptr<parquet::RowGroupMetaData> facts = shared.footer->RowGroup(group);
  arrow::ProxyMemoryPool counted(arrow::default_memory_pool());
  arrow::CappedMemoryPool memory(&counted, most_memory(*facts, shared.leaves));
  const auto reader = reader_of(shared, rows_at_a_time(*facts, shared.leaves), &memory);
  const auto batches = take(shared.path, reader->GetRecordBatchReader({group}, shared.leaves));
  int64_t rows = 0;
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(shared.path, batches->ReadNext(&batch));
    if (!batch) break;
    each(*batch, first_row + rows);
    rows += batch->num_rows();
  }
  if (rows != facts->num_rows()) {
    fail(shared.path, cli::concat("row group ", group, " has ", rows, " rows, its footer says ",
                                  facts->num_rows()));
  }
}

/// Where the last of what the footer names ends: column chunks, page indexes, bloom filters.
int64_t end_of_parts(const parquet::FileMetaData& footer, int64_t file_bytes) {
  int64_t end = 0;
  const auto add = [&](int64_t offset, int64_t length) {
    const int64_t begin = std::clamp<int64_t>(offset, 0, file_bytes);
    end = std::max(end, begin + std::clamp<int64_t>(length, 0, file_bytes - begin));
  };
  for (int i = 0; i < footer.num_row_groups(); ++i) {
    const std::unique_ptr<parquet::RowGroupMetaData> group = footer.RowGroup(i);
    for (int leaf = 0; leaf < group->num_columns(); ++leaf) {
      const std::unique_ptr<parquet::ColumnChunkMetaData> chunk = group->ColumnChunk(leaf);
      const int64_t dictionary = chunk->has_dictionary_page() ? chunk->dictionary_page_offset() : 0;
      const int64_t data = chunk->data_page_offset();
      add(dictionary > 0 ? std::min(dictionary, data) : data, chunk->total_compressed_size());
      for (const auto& index : {chunk->GetColumnIndexLocation(), chunk->GetOffsetIndexLocation()})
        if (index) add(index->offset, index->length);
      add(chunk->bloom_filter_offset().value_or(0), chunk->bloom_filter_length().value_or(0));
    }
  }
  return end;
}

/// Refuses files that were concatenated: the last one's footer is all that a reader sees, and its
/// offsets lead into the first. Between what they name and the footer then lie as many bytes as
/// the files before the last have; and where the last begins, one ends.
void check_is_one_file(const Shared& shared) {
  constexpr std::string_view kJoint = "PAR1PAR1";
  const auto bytes = shared.watched.bytes();
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t tail = size_t{8} + shared.footer->size();
  if (all.size() < tail) return;
  const size_t footer = all.size() - tail;
  const auto parts =
      static_cast<size_t>(end_of_parts(*shared.footer, static_cast<int64_t>(all.size())));
  if (parts >= footer) return;
  // In a file without row groups, only its first four bytes stand before the footer.
  const size_t before = footer - std::max<size_t>(parts, std::min<size_t>(footer, 4));
  size_t joint = before >= 4 && all.substr(before - 4).starts_with(kJoint)
                     ? before - 4
                     : all.substr(0, footer).find(kJoint, parts);
  if (joint == std::string_view::npos) return;
  joint += 4;
  fail(shared.path, cli::concat("at byte ", joint,
                                " another file begins: files that were concatenated, of which only "
                                "the last one's footer is read"));
}

}  // namespace

ColumnFile open_parquet(const std::string& path, const std::vector<std::string>& columns) {
  return guarded(path, [&] {
    auto shared = std::make_shared<Shared>();
    shared->path = path;
    shared->file = take(path, arrow::io::ReadableFile::Open(path));
    shared->watched = indexed::MappedFile(path);
    shared->footer = parquet::ReadMetaData(shared->file);
    check_is_one_file(*shared);
    const auto reader = reader_of(*shared, 1, arrow::default_memory_pool());
    std::shared_ptr<arrow::Schema> schema;
    check(path, reader->GetSchema(&schema));
    ColumnFile opened;
    opened.columns = select_columns(columns, *schema, path);
    opened.num_rows = shared->footer->num_rows();
    shared->leaves = leaves_of(opened.columns, reader->manifest());
    opened.next = [shared, group = 0, first_row = int64_t{0}](Part& part) mutable {
      if (group == shared->footer->num_row_groups()) return false;
      part.read = [shared, group, first_row](const EachBatch& each) {
        guarded(shared->path, [&] { read_group(*shared, group, first_row, each); });
      };
      first_row += shared->footer->RowGroup(group)->num_rows();
      ++group;
      return true;
    };
    return opened;
  });
}

}  // namespace columns
