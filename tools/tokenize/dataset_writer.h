// SPDX-License-Identifier: MIT
// Room: tools/tokenize. Encoded chunks to datasets, in order: one for each key, or a series of
// shards for each key, each with the runs of source lines for its manifest. All files of a run get
// their names together. Not here: encoding (encode_documents.h), the format (libindexed).
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
/// complete.
inline constexpr int64_t kMostShards = 1000;

/// Which datasets are written, and where.
struct DatasetNames {
  std::string output_prefix;
  std::vector<std::string> endings;  ///< one for each key: "_text_document"
  int64_t shard_tokens = 0;          ///< 0: one dataset for each key
  /// PREFIX_text_document, or PREFIX_00007_text_document for shard 7.
  std::string prefix(size_t key, int64_t shard) const;
  /// Shards that a run has at most: one without shard_tokens.
  int64_t most_shards() const { return shard_tokens == 0 ? 1 : kMostShards; }
  /// The names that the same prefix gives with shards instead of without, or the other way round.
  DatasetNames other_form() const { return {output_prefix, endings, shard_tokens == 0 ? 1 : 0}; }
};

/// The datasets of a run, filled in order by one thread.
class DatasetWriter {
 public:
  /// `trace` records which lines the documents came from; not possible if empty ones are left out.
  /// Errors: those of IndexedDatasetBuilder; std::system_error (EEXIST) for shards of an earlier
  /// run, unless they are replaced; and for its dataset of the other form.
  DatasetWriter(DatasetNames names, const indexed::BuilderOptions& options,
                indexed::Provenance provenance, bool trace);

  /// Appends a chunk whose first line is line `first_line` (from 1; 0: its documents are not lines)
  /// of `input`. A shard ends before the document that would make it longer than shard_tokens; a
  /// document longer than that is the only one with tokens in its shard.
  /// Errors: indexed::FormatError for more than kMostShards.
  void take(const EncodedChunk& chunk, const std::string& input, int64_t first_line);

  /// Appends bytes of the chunk that take() will get next. Not with shards, whose ends depend on
  /// lengths.
  void take_ahead(size_t key, std::span<const std::byte> bytes) {
    keys_[key].shards.back()->add_encoded_ahead(bytes);
  }

  /// Writes the indices and manifests; afterwards the files can get their names, all together: the
  /// old indices, surplus ones too, are gone before the first new name, and new ones come last.
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
  void refuse_other_form() const;
  std::vector<std::string> surplus_shards() const;
  void open_shard(size_t key);
  void close_shard(size_t key);
  void add_to_shards(size_t key, const EncodedKey& encoded);
  void add_runs(const EncodedChunk& chunk, const std::string& input, int64_t first_line);
  std::vector<indexed::SourceRun> sources_of(int64_t first, int64_t end) const;

  DatasetNames names_;
  indexed::BuilderOptions options_;
  indexed::Provenance provenance_;
  bool trace_;
  bool killed_ = false;  ///< an earlier run was killed while renaming
  int64_t num_shards_ = 0;
  std::vector<Key> keys_;
  std::vector<indexed::SourceRun> sources_;
  Totals totals_;
};

}  // namespace tokenize
