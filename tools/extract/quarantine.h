// SPDX-License-Identifier: MIT
// Room: tools/extract. The file that --on-error quarantine fills with bad records.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "libindexed/output_file.h"
#include "tools/cli/console.h"

namespace extract {

/// Which file, and what happens to an earlier one.
struct QuarantineOptions {
  std::string path = {};  ///< "": nothing is ever kept
  bool named = false;     ///< by --quarantine; else the name was derived from the output's
  indexed::Existing existing = indexed::Existing::refuse;
  std::string_view format = "json";  ///< the --input-format, whose mark ends each record
};

/// Keeps bad records as they were. The file is made at the first of them, and has its name only
/// when the run has succeeded.
class Quarantine {
 public:
  /// Errors: at once those of OutputFile for a path that must not be replaced; cli::UsageError for
  /// "-".
  explicit Quarantine(QuarantineOptions options);

  /// Appends a piece of a record; `ends`: its last. Errors: those of OutputFile.
  void keep(std::string_view piece, bool ends);

  /// The file, to be named together with others; null where nothing was kept. Errors:
  /// std::system_error (EEXIST) where nothing was kept, but there is a file that a killed run of
  /// this command would have made: it is another run's.
  indexed::OutputFile* file();

  /// Gives the file, if there is one, its name. Call before the run's outputs get theirs. Errors:
  /// those of file() and of OutputFile.
  void finish();

  /// Where nothing was kept, but an earlier file may be replaced: removes one whose name comes from
  /// the output's, because its records are not this run's. Where a link leads to it, the link stays
  /// and the file becomes empty. One that --quarantine names may be another run's: it stays,
  /// with a note. Call when the outputs have their names; a file that was not there at the start is
  /// left alone. Errors: std::system_error.
  void remove_earlier(cli::Console& console);

 private:
  /// What a file is, whatever its name.
  struct Identity {
    dev_t device;
    ino_t inode;
    bool operator==(const Identity&) const = default;
  };
  static std::optional<Identity> identity_of(const std::string& path);

  QuarantineOptions options_;
  std::string target_;               // the path with links resolved
  std::optional<Identity> earlier_;  // the target at the start
  std::optional<indexed::OutputFile> file_;
};

}  // namespace extract
