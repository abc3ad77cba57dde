// SPDX-License-Identifier: MIT
// Room: tools/extract. The file that --on-error quarantine fills with bad records.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "libindexed/output_file.h"

namespace extract {

/// Keeps bad records as they were. The file is made at the first of them, and has its name only
/// when the run has succeeded.
class Quarantine {
 public:
  /// "": nothing is ever kept. `format`: the --input-format, whose mark ends each record. Errors:
  /// at once those of OutputFile for a `path` that must not be replaced; cli::UsageError for "-".
  Quarantine(std::string path, indexed::Existing existing, std::string_view format);

  /// Appends a piece of a record; `ends`: its last. Errors: those of OutputFile.
  void keep(std::string_view piece, bool ends);

  /// The file, to be named together with others; null where nothing was kept.
  indexed::OutputFile* file() noexcept { return file_ ? &*file_ : nullptr; }

  /// Where nothing was kept, but an earlier file may be replaced, removes it: its records are not
  /// this run's. Call when the run's outputs get their names.
  void remove_earlier() const;

  /// Gives the file its name, or removes an earlier one.
  void finish();

 private:
  std::string path_;
  indexed::Existing existing_;
  char mark_;
  std::optional<indexed::OutputFile> file_;
};

}  // namespace extract
