// SPDX-License-Identifier: MIT
// Room: tools/stream. The shared reading flags and the list of inputs.
// Not here: the loop (reading_loop.h).
#include "tools/stream/reading.h"

#include <algorithm>

#include <glob.h>
#include <unistd.h>

#include "tools/cli/fields.h"
#include "tools/cli/text.h"

namespace stream {
namespace {

/// Appends the inputs that `name` means: itself if it is a file, else the files that match a
/// pattern, sorted by name, else the names of a comma-separated list.
void append_inputs(const std::string& name, std::vector<std::string>& inputs) {
  if (access(name.c_str(), F_OK) == 0 || name.find_first_of("*?[,") == std::string::npos) {
    inputs.push_back(name);
    return;
  }
  glob_t found{};
  if (name.find_first_of("*?[") != std::string::npos &&
      glob(name.c_str(), 0, nullptr, &found) == 0) {
    inputs.insert(inputs.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    return;
  }
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find(',', at), name.size());
    if (end > at) inputs.push_back(name.substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace

cli::Group<ReadingOptions> reading_group() {
  using R = ReadingOptions;
  return {
      "Input",
      {{.name = "input",
        .letter = 'i',
        .value = "FILE",
        .help = "Files to read, one after another; - or none is standard input. gzip, bzip2, "
                "xz, lzma and zstd are recognised by their first bytes.",
        .field = cli::list(&R::input)},
       {.name = "json-keys",
        .letter = 'k',
        .aliases = "jsonl-keys",
        .value = "KEY",
        .help = "Keys of the JSON object to read; each value is a string or a list of strings. "
                "raw.text is the key of that name, or else text in the object raw.",
        .field = cli::list(&R::keys)},
       {.name = "input-format",
        .value = "FORM",
        .help = "What a document is: an object on a line (json), an object of the one JSON array "
                "that a file is (array), a line (lines), NUL-ended text (nul), or a whole file "
                "(file; an empty one is an empty document).",
        .field = cli::choice(&R::format, {"json", "array", "lines", "nul", "file"})},
       {.name = "max-line",
        .value = "SIZE",
        .help =
            "Longest document that is read, in bytes, at least 512K; a longer one is a bad record.",
        .field = cli::size(&R::max_line, 512 << 10, 1 << 30)},
       {.name = "max-ratio",
        .value = "N",
        .help =
            "Compressed input may grow by 1 GiB and beyond that N times; more counts as a bomb.",
        .field = cli::integer(&R::max_ratio, 1, 1 << 30)},
       {.name = "range",
        .value = "K/N",
        .help = "Read the documents that begin in part K of N equal parts of the input's bytes. "
                "Parts 1 to N together are the whole, for any N. Needs plain files.",
        .field = range_field(&R::range)}}};
}

Format format_of(const ReadingOptions& options) {
  if (options.format == "lines") return Format::lines;
  if (options.format == "nul") return Format::nul;
  return options.format == "file" ? Format::file : Format::json;
}

std::vector<std::string> inputs_of(const ReadingOptions& options, const cli::Parsed& parsed) {
  if (options.format == "array" && !options.range.whole())
    throw cli::UsageError("--range needs lines: a JSON array is read from its front");
  for (size_t i = 0; i < options.keys.size(); ++i) {
    if (std::find(options.keys.begin(), options.keys.begin() + static_cast<std::ptrdiff_t>(i),
                  options.keys[i]) != options.keys.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw cli::UsageError(
          cli::concat("--json-keys names ", cli::quote(options.keys[i]), " twice"));
    }
  }
  std::vector<std::string> named = options.input;
  named.insert(named.end(), parsed.operands.begin(), parsed.operands.end());
  std::vector<std::string> inputs;
  for (const std::string& name : named) append_inputs(name, inputs);
  for (const auto& [flag, last] : parsed.list_ends) {
    if (!inputs.empty() || access(last.c_str(), F_OK) != 0) continue;
    throw cli::UsageError(cli::concat("--", flag, " takes the file ", last,
                                      " for one of its values: name files with --input, or "
                                      "after --"));
  }
  if (inputs.empty()) inputs.push_back("-");
  if (std::count(inputs.begin(), inputs.end(), "-") > 1) {
    throw cli::UsageError("standard input is named twice");
  }
  return inputs;
}

}  // namespace stream
