// SPDX-License-Identifier: MIT
// Room: tools/dataset. Writes a dataset with its documents in shuffled order. Memory: 8 bytes for
// each unit and the caller's limit; the disk needs room for the output only, because the output's
// .bin is the scratch space. The order is numpy's: RandomState(seed).shuffle(arange(units)).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "libindexed/output_file.h"

namespace dataset {

/// What to shuffle, and into what.
struct RewriteOptions {
  std::vector<std::string> prefixes = {};  ///< read one after another, as one dataset
  std::string output_prefix = {};
  bool sequences =
      false;  ///< shuffle sequences, each of which becomes a document; else documents with their
              ///< sequences
  int64_t seed = 1234;
  int64_t memory_bytes = int64_t{1} << 30;  ///< for tokens in flight
  bool permuted = false;                    ///< inputs may be index-only shuffles
  indexed::Existing existing = indexed::Existing::refuse;
  std::string tool = {};
  std::string command_line = {};
};

/// What was written.
struct RewriteCounts {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t bin_bytes = 0;
  int64_t passes = 1;     ///< 1: gathered at once; 2: through buckets
  std::string note = {};  ///< CommonProvenance::ends_note() of the inputs
};

/// Writes the dataset. `progress` is called with the bytes done and the total.
/// Errors: FormatError for inputs of different dtypes or tokenizers, damaged ones, and a manifest
/// that is another dataset's; std::system_error. Nothing is left on failure.
RewriteCounts rewrite_shuffled(const RewriteOptions& options,
                               const std::function<void(int64_t, int64_t)>& progress);

}  // namespace dataset
