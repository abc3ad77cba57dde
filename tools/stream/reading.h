// SPDX-License-Identifier: MIT
// Room: tools/stream. The flags that say what is read and how, shared by all tools that read
// documents, and the loop that reads them: chunks in order, documents in parallel, results in
// order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/console.h"
#include "tools/cli/flags.h"
#include "tools/cli/parse.h"
#include "tools/stream/chunks.h"
#include "tools/stream/policy.h"
#include "tools/stream/records.h"

namespace stream {

/// What is read, and in which format; set by the rows of reading_group().
struct ReadingOptions {
  std::vector<std::string> input = {};
  std::vector<std::string> keys = {"text"};
  std::string format = "json";
  int64_t max_line = 64 << 20;
  int64_t max_ratio = 500;
  Range range = {};
};

/// --input, --json-keys, --input-format, --max-line, --max-ratio, --range.
cli::Group<ReadingOptions> reading_group();

/// The format that options.format names.
Format format_of(const ReadingOptions& options);

/// The inputs: --input, then the operands; stdin if there are none. A name that is not a file may
/// be a pattern, as in Megatron, or a comma-separated list, as in gpt-neox. Errors: UsageError for
/// stdin named twice, a key given twice, or a file taken for a value of a flag that takes several.
std::vector<std::string> inputs_of(const ReadingOptions& options, const cli::Parsed& parsed);

/// A chunk in the pipeline, with a tool's result for it.
template <class Result>
struct Work {
  Chunk chunk;
  ChunkReport report;
  Result result;
};

/// What read_documents needs besides the tool's own functions.
struct ReadingJob {
  const ReadingOptions& options;
  std::vector<std::string> inputs;  ///< of inputs_of
  int64_t threads = 1;              ///< of threads_for
  ErrorPolicy& policy;
  cli::Console& console;
  std::string_view item_noun = "document";   ///< for the progress line
  Spelling spelling = Spelling::characters;  ///< of the texts of JSON
  std::optional<Condition> condition = {};   ///< of JSON lines that are wanted
};

}  // namespace stream

#include "tools/stream/reading_loop.h"
