// SPDX-License-Identifier: MIT
// Room: tools/columns. The loop over rows.
#include "tools/columns/rows.h"

#include <memory>
#include <utility>
#include <vector>

#include <arrow/array.h>
#include <arrow/record_batch.h>

#include "tools/cli/text.h"
#include "tools/extract/text_output.h"

namespace columns {
namespace {

class RowWriter {
 public:
  RowWriter(const std::string& path, const std::vector<Column>& columns, Form form,
            const stream::GivePiece& give)
      : path_(path), columns_(columns), form_(form), give_(give) {
    for (const Column& column : columns) {
      std::string opening = openings_.empty() ? "{" : ",";
      extract::append_json_string(column.name, opening);
      openings_.push_back(opening + ":");
    }
  }

  void take(const arrow::RecordBatch& batch, int64_t first_row) {
    std::vector<std::shared_ptr<arrow::Array>> values;
    for (const Column& column : columns_) values.push_back(values_of(column, batch));
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      const size_t begin = piece_.bytes.size();
      ++piece_.documents;
      if (!append_row(values, row, first_row)) piece_.bytes.resize(begin);
      if (piece_.bytes.size() >= kPieceBytes) hand_over();
    }
  }

  void hand_over() {
    if (piece_.documents == 0) return;
    give_(std::exchange(piece_, {}));
    piece_.bytes.reserve(kPieceBytes + kPieceBytes / 4);
  }

 private:
  bool append_row(const std::vector<std::shared_ptr<arrow::Array>>& values, int64_t row,
                  int64_t first_row) {
    const size_t count = form_ == Form::bare ? 1 : values.size();
    for (size_t i = 0; i < count; ++i) {
      if (form_ == Form::json) piece_.bytes += openings_[i];
      const Refused refused = i == 0 ? append_text(*values[i], row, form_, piece_.bytes)
                                     : append_json(*values[i], row, piece_.bytes);
      if (!refused) continue;
      piece_.refusals.push_back(
          {cli::concat(path_, ":row ", first_row + row + 1),
           cli::concat("column ", cli::quote(columns_[i].name), " ", refused->what),
           refused->reason});
      return false;
    }
    if (form_ == Form::json) piece_.bytes += "}\n";
    if (form_ == Form::bare) piece_.bytes += '\0';
    return true;
  }

  const std::string& path_;
  const std::vector<Column>& columns_;
  const Form form_;
  const stream::GivePiece& give_;
  std::vector<std::string> openings_;  ///< for each column: the text before its value
  stream::Piece piece_;
};

}  // namespace

void write_rows(const Part& part, const std::string& path, const std::vector<Column>& columns,
                Form form, const stream::GivePiece& give) {
  RowWriter writer(path, columns, form, give);
  part.read([&](const arrow::RecordBatch& batch, int64_t first_row) {
    try {
      writer.take(batch, first_row);
    } catch (const ColumnError& error) {
      throw ColumnError(cli::concat(path, ": rows from ", first_row + 1, ": ", error.what()));
    }
  });
  writer.hand_over();
}

}  // namespace columns
