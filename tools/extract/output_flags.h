// SPDX-License-Identifier: MIT
// Room: tools/extract. The flags of the programs that write text: where it goes, how it is packed,
// and how many threads make it. May include tools/cli and text_output.h.
#pragma once

#include <cstdint>
#include <string>

#include "tools/cli/flags.h"
#include "tools/extract/text_output.h"

namespace extract {

/// Set by the rows of output_group().
struct OutputFlags {
  std::string path = {};  ///< empty or "-": standard output
  std::string compress = "none";
  int64_t level = 3;
  bool force = false;
  int64_t workers = 0;  ///< 0: one for each processor

  /// Errors: cli::UsageError where a terminal would get compressed bytes, or, with `nul`, documents
  /// that end with a NUL byte.
  void refuse_terminal(bool nul) const;
  /// What to do with a file that is there already.
  indexed::Existing existing() const {
    return force ? indexed::Existing::replace : indexed::Existing::refuse;
  }
  /// The output that they name; `existing` is for a file that is there already.
  TextOutputOptions text_output(indexed::Existing existing) const {
    return {.path = path,
            .zstd = compress == "zstd",
            .zstd_level = static_cast<int>(level),
            .existing = existing};
  }
};

/// --output, --compress, --compress-level, --force, --workers.
cli::Group<OutputFlags> output_group();

}  // namespace extract
