// SPDX-License-Identifier: MIT
// targets.h: rows of Parquet and Arrow IPC files, in both forms. Arrow's own code has no counters
// of libFuzzer; what is tested is what this project makes of the arrays that Arrow lets through.
#include "tests/fuzz/targets.h"
#include "tools/columns/column_file.h"
#include "tools/columns/rows.h"

namespace fuzz {
namespace {

void columns_file(Bytes input) {
  const Folder folder({{"f", {reinterpret_cast<const char*>(input.data()), input.size()}}});
  const std::string path = folder.path() + "/f";
  for (const std::vector<std::string>& names : std::vector<std::vector<std::string>>{
           {"text"}, {"parts"}, {"text", "parts", "meta", "a.b"}, {"doc.body", "doc.n"}}) {
    try {
      const columns::ColumnFile file = columns::open_column_file(path, names);
      columns::Part part;
      const auto form = names.size() == 1 ? columns::Form::bare : columns::Form::json;
      while (file.next(part)) {
        columns::write_rows(part, path, file.columns, form, [](stream::Piece&&) {});
      }
    } catch (const std::runtime_error&) {
    }
  }
}

constexpr Target kColumns[] = {{"columns", columns_file, nullptr}};

}  // namespace

std::span<const Target> column_targets() { return kColumns; }

}  // namespace fuzz
