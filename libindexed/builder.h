// SPDX-License-Identifier: MIT
// IndexedDatasetBuilder: writes PREFIX.bin, PREFIX.idx and PREFIX.manifest in constant memory.
// Tokens and lengths go to the temporary files at once, runs of documents to an unnamed file beside
// them; finish() writes pointers and document indices and gives the three files their names, the
// .idx last. Without finish() nothing remains. One thread; several builders may be used at once.
// Source: docs/format/indexed.5.md; equals megatron/core/datasets/indexed_dataset.py's
// IndexedDatasetBuilder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "libindexed/dataset.h"
#include "libindexed/format.h"
#include "libindexed/manifest.h"
#include "libindexed/output_file.h"
#include "libindexed/scratch_file.h"

namespace indexed {

/// How a dataset is to be written.
struct BuilderOptions {
  DType dtype = DType::int32;
  Existing existing = Existing::refuse;
  bool multimodal = false;  ///< the .idx ends with a mode byte for each sequence
  int64_t vocab_size = 0;   ///< tokens must be below; 0: only the dtype bounds them
  bool manifest = true;
  /// Called while add_dataset() copies, with the size of the .bin so far.
  std::function<void(int64_t)> on_copied = {};
};

/// Refuses, before any work, what a builder of PREFIX would refuse when it is made, as
/// refuse_bad_target() does for one file. Errors: std::system_error.
void refuse_bad_targets(const std::string& prefix, Existing existing);

/// Appends the bytes of `tokens` in `dtype` to `out`; for workers that encode before the ordered
/// writer. Errors: FormatError for a token outside the type, or not below `vocab_size` when that is
/// not 0.
void encode_tokens(std::span<const int32_t> tokens, DType dtype, int64_t vocab_size,
                   std::vector<std::byte>& out);
void encode_tokens(std::span<const uint32_t> tokens, DType dtype, int64_t vocab_size,
                   std::vector<std::byte>& out);

/// Consecutive documents with the same number of sequences. Usually nearly all have one sequence,
/// and then the indices take no room before they are written.
struct DocumentRun {
  int64_t documents = 0;
  int64_t sequences = 0;
};

/// One dataset being written; it appears, complete, after finish().
class IndexedDatasetBuilder {
 public:
  /// Opens the temporaries. Errors: those of OutputFile; EBUSY where `existing` is replace and
  /// another process writes the same dataset.
  IndexedDatasetBuilder(std::string prefix, const BuilderOptions& options);

  /// Appends one document: its tokens, cut into sequences of these lengths. No lengths: an empty
  /// document, which has no sequence and repeats a document index. Modes: one a sequence,
  /// multimodal datasets only. Errors: FormatError when lengths and tokens differ, a sequence
  /// exceeds 2^31-1 tokens, a token does not fit; std::system_error when the disk refuses. After an
  /// error the builder can only be destroyed.
  void add_document(std::span<const int32_t> tokens, std::span<const int32_t> sequence_lengths,
                    std::span<const int8_t> modes = {});
  void add_document(std::span<const uint32_t> tokens, std::span<const int32_t> sequence_lengths,
                    std::span<const int8_t> modes = {});

  /// Appends a document of one sequence, or an empty document when there are no tokens.
  void add_document(std::span<const int32_t> tokens);
  void add_document(std::span<const uint32_t> tokens);

  /// Appends many documents whose tokens are already bytes in the dataset's dtype (encode_tokens
  /// checked them). Document k has the next sequences_per_document[k] of sequence_lengths; both
  /// together cover everything.
  void add_encoded(std::span<const std::byte> tokens, std::span<const int32_t> sequence_lengths,
                   std::span<const int32_t> sequences_per_document,
                   std::span<const int8_t> modes = {});

  /// The same for bytes whose CRC-32C is known, from which the manifest's is computed.
  void add_encoded(std::span<const std::byte> tokens, uint32_t tokens_crc32c,
                   std::span<const int32_t> sequence_lengths,
                   std::span<const int32_t> sequences_per_document);

  /// Appends bytes of sequences whose lengths come with the next add_encoded(), whose `tokens` are
  /// then only the rest: for a document too large to be held in memory.
  void add_encoded_ahead(std::span<const std::byte> tokens);

  /// Appends all documents of another dataset of the same dtype, a piece at a time.
  /// `checksums` are the .bin's segments when a manifest has them; with `read_all` the bytes are
  /// checksummed here instead. Errors: FormatError when the dtype or multimodal differs.
  void add_dataset(const IndexedDataset& dataset, std::span<const Segment> checksums = {},
                   bool read_all = false);

  /// Appends documents whose tokens are written by place(): lengths as in add_encoded. Every byte
  /// of the .bin must have been placed, in any order, when finish() is called.
  void add_index(std::span<const int32_t> sequence_lengths,
                 std::span<const int32_t> sequences_per_document);

  /// Writes bytes of the .bin at `offset`, reads them back, and adds to the checksum the bytes that
  /// follow those already in it. Only for a builder that otherwise uses only add_index.
  void place(int64_t offset, std::span<const std::byte> bytes);
  void read_back(int64_t offset, std::span<std::byte> bytes);
  void add_checksums(std::span<const std::byte> bytes);

  /// Writes index and manifest and gives the files their names. The builder is empty afterwards.
  /// Errors: std::system_error; then no .idx of that name exists, unless the old one is unchanged.
  void finish(const Provenance& provenance = {});

  /// The steps of finish(), for several datasets that belong together: end_writing() writes index
  /// and manifest; prepare() does so if necessary, and syncs to the disk; give_names() renames the
  /// files of all, indices last. `surplus`: indices of an earlier set that this one does not have,
  /// removed before anything is renamed. An end in between leaves a .bin without its .idx.
  void end_writing(const Provenance& provenance = {});
  void prepare(const Provenance& provenance = {});
  static void give_names(std::span<IndexedDatasetBuilder* const> datasets,
                         std::span<const std::string> surplus = {});

  int64_t num_documents() const noexcept { return num_documents_; }
  int64_t num_sequences() const noexcept { return num_sequences_; }
  int64_t num_tokens() const noexcept { return num_tokens_; }
  int64_t bin_bytes() const noexcept { return bin_.size(); }
  DType dtype() const noexcept { return options_.dtype; }

 private:
  template <class Token>
  void add_tokens(std::span<const Token> tokens, std::span<const int32_t> sequence_lengths,
                  std::span<const int8_t> modes);
  void check_encoded(std::span<const std::byte> tokens, std::span<const int32_t> sequence_lengths,
                     std::span<const int32_t> sequences_per_document);
  void add_sequences(std::span<const int32_t> lengths, std::span<const int8_t> modes);
  void end_document(int64_t end);
  void end_run();
  void add_documents(std::span<const int32_t> sequences_per_document);
  void copy_bin(const IndexedDataset& dataset, std::span<const Segment> checksums, bool read_all);
  void write_bin(std::span<const std::byte> bytes);
  void copy_file(const std::string& path, int64_t bytes, bool checksum);
  void write_idx(std::span<const std::byte> bytes, Segment& segment);
  void write_index();
  void write_document_indices();
  Manifest make_manifest(const Provenance& provenance);

  std::string prefix_;
  BuilderOptions options_;
  OutputFile bin_;
  OutputFile idx_;
  std::optional<ScratchFile> document_runs_;
  std::unique_ptr<ScratchFile> modes_;
  std::unique_ptr<OutputFile> manifest_;
  bool removes_manifest_ = false;  ///< An earlier one, where this dataset has none.
  int64_t num_documents_ = 0;
  int64_t num_sequences_ = 0;
  int64_t document_end_ = 0;  // end of the last document's sequences
  DocumentRun run_;           // of the last documents, not yet in document_runs_
  int64_t num_tokens_ = 0;
  int64_t bytes_ahead_ = 0;  // from add_encoded_ahead, not yet counted in lengths
  std::vector<std::byte> encoded_;
  std::vector<Segment> bin_segments_;
  std::vector<Segment> idx_segments_;
  bool checksums_known_ = true;
  bool ended_ = false;  // all is written
};

}  // namespace indexed
