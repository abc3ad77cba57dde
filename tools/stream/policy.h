// SPDX-License-Identifier: MIT
// Room: tools/stream. What happens to refused records: stop at the first, skip them, or skip them
// and keep them in a file. Called in the order of the input, by one thread, so that messages and
// counts are the same for any number of workers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tools/cli/console.h"
#include "tools/cli/flags.h"
#include "tools/stream/records.h"

namespace stream {

/// A record was refused and the policy is to stop, or too many were. The text is `path:line:byte:
/// what`.
struct RecordError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// --on-error, --max-errors, --quarantine.
struct PolicyOptions {
  std::string on_error = "stop";
  std::string max_errors = {};  ///< a count, or a share as 0.1%; empty: any number
  std::string quarantine = {};
  std::string_view noun = "document";  ///< what the program counts; no flag
};

/// The rows of PolicyOptions.
cli::Group<PolicyOptions> policy_group();

/// The same without quarantine, for tools that keep no bad record apart. `title` heads it.
cli::Group<PolicyOptions> stop_or_skip_group(std::string_view title);

/// A document that lies in no text of records, as a row of a table does, and was refused.
struct PlacedRefusal {
  std::string place;  ///< as messages name it: "FILE:row 12"
  std::string what;
  Reason reason = Reason::wrong_type;
};

/// Counts documents, reports refusals, decides.
class ErrorPolicy {
 public:
  /// With --on-error quarantine, `keep` gets the bytes of each refused record, in order; a record
  /// over the cap comes in pieces, the last with `ends` true. Errors: UsageError for options that
  /// contradict each other.
  ErrorPolicy(const PolicyOptions& options, cli::Console& console,
              std::function<void(std::string_view piece, bool ends)> keep = nullptr);

  /// Takes one chunk's report. `name` is its input's name. Errors: RecordError for the first
  /// refusal under `stop`, else when --max-errors is exceeded.
  void take(const Chunk& chunk, const std::string& name, const ChunkReport& report);

  /// The same for `documents` more that lie in no text; those that were refused are in their order.
  void take(int64_t documents, std::span<const PlacedRefusal> refusals);

  /// Checks --max-errors once more and, if anything was skipped, prints `skipped 12 of 90,114
  /// documents: ...`.
  void finish();

  int64_t documents() const { return documents_; }
  /// The number, from 1, of the first line of the last chunk taken; 0 if its input was not read
  /// from the front, so that lines were not counted.
  int64_t first_line() const { return begin_ > 0 ? 0 : lines_before_ + 1; }
  int64_t skipped() const { return skipped_; }

 private:
  void refuse(const std::string& place, std::string_view what, Reason reason);
  void check_limit(bool at_end) const;
  std::string place(const Chunk& chunk, const std::string& name, int64_t line, size_t offset);
  void take_long(const Chunk& chunk, const std::string& name);

  std::string_view noun_;
  bool stop_;
  bool quarantine_;
  int64_t max_count_ = -1;  // -1: no limit
  double max_share_ = -1;
  cli::Console& console_;
  std::function<void(std::string_view, bool)> keep_;
  int64_t documents_ = 0;
  int64_t skipped_ = 0;
  int64_t line_ = 0;    // of the open input: lines before the next chunk, from begin_ on
  int64_t begin_ = 0;   // of the open input: the byte where reading began
  int64_t unread_ = 0;  // lines before begin_; -1: not counted, since not needed yet
  int64_t lines_before_ = 0;
  bool in_long_record_ = false;
  std::array<int64_t, kNumReasons> by_reason_{};
};

}  // namespace stream
