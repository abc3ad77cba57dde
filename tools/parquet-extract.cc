// SPDX-License-Identifier: MIT
// parquet-extract: rows of Parquet and Arrow IPC files to loose JSON or to NUL-ended text. Every
// row is written, or rejected with its place; the closing line adds up. Here: flags, the order of
// files, counts. Not here: reading (tools/columns), the order of output (tools/stream).
#include <algorithm>
#include <memory>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"
#include "tools/cli/output_path.h"
#include "tools/cli/run.h"
#include "tools/cli/same_file.h"
#include "tools/cli/text.h"
#include "tools/columns/column_file.h"
#include "tools/columns/rows.h"
#include "tools/extract/output_flags.h"
#include "tools/stream/ordered_parts.h"
#include "tools/stream/pipeline.h"
#include "tools/stream/reading.h"

namespace {

constexpr int64_t kDefaultMemory = int64_t{512} << 20;

struct Options {
  std::vector<std::string> input;
  std::vector<std::string> columns;
  stream::PolicyOptions policy;
  extract::OutputFlags output;
  bool nul = false;
  int64_t memory = kDefaultMemory;
};

cli::Group<Options> input_group() {
  using O = Options;
  return {"Input",
          {{.name = "input",
            .value = "FILE",
            .help = "Files to read, before the operands.",
            .field = cli::list(&O::input)},
           {.name = "columns",
            .letter = 'c',
            .value = "NAME",
            .help = "A column to write; once for each. The first is the text: a string or a list "
                    "of strings, and its nulls are bad rows. The others go along with it as JSON. "
                    "meta.url is a member of the struct meta. Required.",
            .field = cli::repeated(&O::columns)}}};
}

cli::Group<Options> output_group() {
  using O = Options;
  cli::Group<Options> group = cli::lift(extract::output_group(), &O::output);
  group.flags.push_back(
      {.name = "null",
       .letter = '0',
       .help = "Write the bare text of the one column, ended by a NUL byte; a list's strings are "
               "joined by line ends.",
       .field = cli::on(&O::nul)});
  group.flags.push_back(
      {.name = "memory",
       .value = "SIZE",
       .help = "Text that may wait for its turn. Row groups are read at once as far as their text "
               "fits.",
       .field = cli::size(&O::memory, 1 << 20)});
  return group;
}

const cli::Table<Options>& flags() {
  static const cli::Table<Options> table = {
      input_group(), output_group(),
      cli::lift(stream::stop_or_skip_group("Bad rows"), &Options::policy)};
  return table;
}

/// The parts of all files, in order.
class Parts {
 public:
  Parts(std::vector<std::string> paths, const Options& options)
      : paths_(std::move(paths)), options_(options) {}

  /// Opens all files, so that missing or wrong columns are reported before any file is read.
  void check() {
    for (const std::string& path : paths_) {
      const columns::ColumnFile file = columns::open_column_file(path, options_.columns);
      num_rows_ = file.num_rows == 0 || num_rows_ < 0 ? -1 : num_rows_ + file.num_rows;
    }
  }

  stream::PartWork next() {
    columns::Part part;
    while (!file_ || !file_->next(part)) {
      if (opened_ == paths_.size()) return nullptr;
      file_ = std::make_shared<columns::ColumnFile>(
          columns::open_column_file(paths_[opened_++], options_.columns));
    }
    return [part = std::move(part), &path = paths_[opened_ - 1], file = file_,
            form = options_.nul ? columns::Form::bare
                                : columns::Form::json](const stream::GivePiece& give) {
      columns::write_rows(part, path, file->columns, form, give);
    };
  }

  /// 0 if it is not known for some file.
  int64_t num_rows() const { return std::max<int64_t>(num_rows_, 0); }

 private:
  const std::vector<std::string> paths_;
  const Options& options_;
  size_t opened_ = 0;
  std::shared_ptr<columns::ColumnFile> file_;
  int64_t num_rows_ = 0;  // -1: not known
};

void check_options(const Options& options, bool any_file) {
  if (options.columns.empty()) {
    const cli::Needed needed[] = {{false, "--columns NAME"}, {any_file, "FILE"}};
    cli::require_all(needed);
  }
  for (size_t i = 0; i < options.columns.size(); ++i) {
    if (std::ranges::count(options.columns, options.columns[i]) > 1)
      throw cli::UsageError(
          cli::concat("--columns names ", cli::quote(options.columns[i]), " twice"));
  }
  if (options.nul && options.columns.size() != 1) {
    throw cli::UsageError(
        cli::concat("-0 writes one column's text, --columns names ", options.columns.size()));
  }
  options.output.refuse_terminal(options.nul);
}

int extract_rows(Options& options, cli::Invocation& call) {
  options.output.path = cli::output_path(options.output.path);
  check_options(options, !options.input.empty() || !call.parsed.operands.empty());
  std::vector<std::string> paths = stream::inputs_of({.input = options.input}, call.parsed);
  if (std::ranges::find(paths, "-") != paths.end())
    throw cli::UsageError(
        "standard input cannot be read, Parquet is read from both ends: name files");
  cli::refuse_input_as_output("--output", options.output.path, paths);
  options.policy.noun = "row";
  stream::ErrorPolicy policy(options.policy, call.console);
  Parts parts(std::move(paths), options);
  parts.check();
  extract::TextOutput output(options.output.text_output(options.output.existing()));
  stream::run_ordered_parts({.threads = stream::threads_for(options.output.workers),
                             .memory = options.memory,
                             .source = [&] { return parts.next(); },
                             .sink =
                                 [&](const stream::Piece& piece) {
                                   policy.take(piece.documents, piece.refusals);
                                   output.write(piece.bytes);
                                   call.console.progress({.done = policy.documents(),
                                                          .total = parts.num_rows(),
                                                          .item_noun = "row",
                                                          .in_items = true});
                                 }});
  call.console.clear_progress();
  policy.finish();
  output.finish();
  call.console.note(cli::concat(cli::counted(policy.documents(), "row"),
                                " in = ", cli::with_commas(policy.documents() - policy.skipped()),
                                " out + ", cli::with_commas(policy.skipped()), " rejected"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const cli::Program program = {
      .name = "parquet-extract",
      .summary = "rows of Parquet and Arrow files to loose JSON or NUL-ended text",
      .operands = "FILE...",
      .at_signal = indexed::remove_temporaries,
      .at_fault = indexed::describe_fault,
      .at_end = indexed::check_mapped_files};
  return cli::run(program, flags(), argc, argv, extract_rows);
}
