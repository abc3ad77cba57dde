// SPDX-License-Identifier: MIT
// Room: tools/dataset. What inspect-dataset prints: facts about a dataset as lines of text. Reads
// datasets, writes nothing. Counts are of documents, sequences and tokens; lengths are tokens per
// document.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libindexed/dataset.h"
#include "libindexed/manifest.h"

namespace dataset {

/// The header and sizes of a pair, found without reading all of it.
struct Sizes {
  std::string dtype;
  int64_t num_sequences = 0;
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
  int64_t bin_bytes = 0;
  int64_t idx_bytes = 0;
};

/// Time independent of the dataset's size: header, the last entry of each array, file sizes,
/// manifest's sizes.
/// Errors: FormatError, std::system_error.
Sizes quick_check(const std::string& prefix, bool multimodal);

/// Everything that can be checked: each pointer and length, each checksum of the manifest, each
/// token against the vocabulary, each document's end. Returns what was checked, for people.
/// Errors: FormatError at the first damage, naming the place.
struct VerifyOptions {
  bool multimodal = false;
  bool permuted = false;
  int64_t vocab_size = 0;                 ///< 0: the manifest's, or unchecked
  std::optional<int64_t> eod_token = {};  ///< else the manifest's, or unchecked
  /// Called with the bytes read so far, and the total.
  std::function<void(int64_t, int64_t)> on_progress = {};
};
std::string verify(const std::string& prefix, const VerifyOptions& options);

/// Counts, percentiles of document lengths and a histogram by powers of two, `columns` wide.
std::string statistics(const indexed::IndexedDataset& data, int64_t columns);

/// A dataset's manifest as lines, or that there is none.
std::string provenance_lines(const std::optional<indexed::Manifest>& manifest);

/// Finds where documents of a dataset came from, through its manifest and the shuffle that the
/// manifest describes. Where documents came from a shuffled dataset, or one that had no manifest,
/// it goes on in the manifest beside that one, if there is one and it is still the same dataset's.
class SourceFinder {
 public:
  /// Reads the manifest beside `prefix`; with a shuffle it computes the permutation, 8 bytes a
  /// document. So do where() and the datasets that it goes through, which are kept.
  explicit SourceFinder(const indexed::IndexedDataset& data);

  /// The source of document `k`, such as "corpus.jsonl:18", or why it is unknown, or where the
  /// record ends. Errors: those of read_manifest().
  std::string where(int64_t k);

 private:
  struct Record {
    std::optional<indexed::Manifest> manifest;
    bool fits;                   ///< the number of documents
    std::vector<int64_t> order;  ///< of a shuffle
  };
  const Record& record_of(const std::string& prefix, int64_t num_documents);

  std::string prefix_;
  std::map<std::string, Record> records_;
};

/// The document that sequence `i` belongs to.
int64_t document_of(const indexed::IndexedDataset& data, int64_t i);

}  // namespace dataset
