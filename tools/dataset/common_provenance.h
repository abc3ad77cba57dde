// SPDX-License-Identifier: MIT
// Room: tools/dataset. What several datasets that become one say about themselves: their manifests,
// checked, and what these have in common. For merge-datasets and shuffle-index --rewrite. Not here:
// the text of a manifest (libindexed/manifest).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libindexed/dataset.h"
#include "libindexed/manifest.h"

namespace dataset {

/// The manifest beside a dataset, or nothing when there is none. Errors: as read_manifest();
/// FormatError for one whose counts are not the dataset's.
std::optional<indexed::Manifest> read_own_manifest(const indexed::IndexedDataset& data);

/// A dataset's name and the type of its tokens.
struct TokensOf {
  std::string prefix;
  indexed::DType dtype;
};

/// The message that two datasets cannot become one because their tokens differ in type, with what
/// to do about it.
std::string other_dtype(const TokensOf& data, const TokensOf& first);

/// The fields that are the same in the manifests of all inputs; a field in which they differ, or
/// that one lacks, is empty. The sources are those of all inputs, one after another.
class CommonProvenance {
 public:
  explicit CommonProvenance(bool mixed_tokenizers = false) : mixed_tokenizers_(mixed_tokenizers) {}

  /// Adds the next input. Errors: FormatError where its tokenizer differs from that of an earlier
  /// input, unless tokenizers may be mixed.
  void add(const std::string& prefix, const std::optional<indexed::Manifest>& manifest,
           int64_t documents);

  /// A message about the first input whose documents do not end with the same token as those of the
  /// inputs before it; empty where all manifests agree.
  const std::string& ends_note() const noexcept { return ends_note_; }

  /// The result, as that of `tool` with `command_line`. Nothing may be added afterwards.
  indexed::Provenance finish(const std::string& tool, const std::string& command_line);

 private:
  indexed::Provenance common_ = {};
  indexed::KnownTokenizer known_;  // of the first input that has one
  std::string ended_, ends_note_;  // the first input with documents
  int64_t eod_token_ = -1;         // of that
  int64_t documents_ = 0;
  bool mixed_tokenizers_;
  bool first_ = true;
};

}  // namespace dataset
