// SPDX-License-Identifier: MIT
// Room: tools/tokenize. Encoded chunks to datasets, in order: one a key, or a row of shards a key,
// each with the run of source lines for its manifest. All files of a run get their names together.
// Encoding is encode_documents.h's, the format libindexed's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libindexed/builder.h"
#include "tools/tokenize/encode_documents.h"

namespace tokenize {

/// Totals of a run.
struct Totals {
  int64_t documents = 0;
  int64_t empty = 0;
  int64_t tokens = 0;
  int64_t text_bytes = 0;
  int64_t special_tokens = 0;

  void add(const EncodedChunk& chunk);
};

/// Shards that one run may have, all keys together: each keeps three files open until all are
/// whole.
inline constexpr int64_t kMostShards = 1000;

/// What is written, and where.
struct DatasetNames {
  std::string output_prefix;
  std::vector<std::string> endings;  ///< one a key: "_text_document"
  int64_t shard_tokens = 0;          ///< 0: one dataset a key
  /// PREFIX_text_document, or of shard 7 PREFIX_00007_text_document.
  std::string prefix(size_t key, int64_t shard) const;
};

/// The datasets of a run, filled in order by one thread.
class DatasetWriter {
 public:
  /// `trace` records which lines the documents came from; not where empty ones are left out.
  /// Errors: those of IndexedDatasetBuilder; std::system_error (EEXIST) for shards of an earlier
  /// run, unless they are replaced.
  DatasetWriter(DatasetNames names, const indexed::BuilderOptions& options,
                indexed::Provenance provenance, bool trace);

  /// Appends a chunk whose first line is line `first_line` (from 1; 0: its documents are no lines)
  /// of `input`. A shard ends before the document with which it would have more than shard_tokens
  /// tokens; a longer document is the only one of its shard that has tokens.
  /// Errors: indexed::FormatError for more than kMostShards.
  void take(const EncodedChunk& chunk, const std::string& input, int64_t first_line);

  /// Appends bytes that belong to the chunk that take() gets next. Not with shards, whose ends
  /// depend on lengths.
  void take_ahead(size_t key, std::span<const std::byte> bytes) {
    keys_[key].shards.back()->add_encoded_ahead(bytes);
  }

  /// Writes the indices and manifests; then the files get their names, all together.
  void prepare();
  void give_names();

  const Totals& totals() const { return totals_; }
  /// A dataset that was written, and its tokens.
  struct Written {
    std::string prefix;
    int64_t tokens;
  };
  std::vector<Written> written() const;

 private:
  struct Key {
    std::vector<std::unique_ptr<indexed::IndexedDatasetBuilder>> shards;
    int64_t first_document = 0;  ///< of the last shard, among those of the run
    int64_t documents = 0;
  };

  bool was_killed() const;
  void refuse_old_shards() const;
  void remove_old_shards() const;
  void open_shard(size_t key);
  void close_shard(size_t key);
  void add_to_shards(size_t key, const EncodedKey& encoded);
  void add_runs(const EncodedChunk& chunk, const std::string& input, int64_t first_line);
  std::vector<indexed::SourceRun> sources_of(int64_t first, int64_t end) const;

  DatasetNames names_;
  indexed::BuilderOptions options_;
  indexed::Provenance provenance_;
  bool trace_;
  bool killed_ = false;  ///< an earlier run was, while it gave names
  int64_t num_shards_ = 0;
  std::vector<Key> keys_;
  std::vector<indexed::SourceRun> sources_;
  Totals totals_;
};

}  // namespace tokenize
