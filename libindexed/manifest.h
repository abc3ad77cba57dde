// SPDX-License-Identifier: MIT
// Manifest: PREFIX.manifest, a JSON file beside a dataset with what the pair does not have:
// checksums of every 16 MiB, which tokenizer and options made it, from which lines of which files.
// Optional: readers work without it, and Megatron's own tools ignore it (the name has the dataset's
// prefix, so its merge script finds the partner .idx). Source: docs/format/manifest.5.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libindexed/dataset.h"
#include "libindexed/mapped_file.h"

namespace indexed {

inline constexpr int64_t kBlockBytes = int64_t{16} << 20;

/// Checksums of a run of bytes, cut into blocks of kBlockBytes, the last one shorter.
struct Segment {
  int64_t bytes = 0;
  std::vector<uint32_t> block_crc32c = {};

  /// Appends bytes; if their own checksum `crc32c` is given, they are read only if a block begins
  /// or ends in them.
  void add(std::span<const std::byte> more);
  void add(std::span<const std::byte> more, uint32_t crc32c);
};

/// Documents that came from consecutive lines of a file, one from each. A skipped line or a new
/// file begins another run.
struct SourceRun {
  std::string path = {};
  int64_t first_document = 0;
  int64_t num_documents = 0;
  int64_t first_line = 0;  ///< of the file, from 1; 0 when documents are not lines
};

/// Which program made a dataset, and from what. Every field may be empty.
struct Provenance {
  std::string tool = {};  ///< "bpe-tokenize 0.1.0"
  std::vector<std::string> command = {};
  std::string tokenizer = {};       ///< for people: "GPT2BPETokenizer gpt2-vocab.json"
  std::string tokenizer_hash = {};  ///< equal hashes mean equal token ids
  int64_t vocab_size = 0;
  std::string configuration_hash = {};  ///< of all options that change tokens
  int64_t eod_token = -1;               ///< appended to each document, or -1
  std::vector<SourceRun> sources = {};
  std::string shuffle_unit =
      {};  ///< "document" or "sequence" when --rewrite permuted the sources, else empty
  int64_t shuffle_seed = 0;
};

/// The contents of a manifest.
struct Manifest {
  std::string dtype = {};
  int64_t num_sequences = 0;
  int64_t num_documents = 0;
  int64_t num_tokens = 0;
  bool multimodal = false;
  int64_t bin_bytes = 0;
  int64_t idx_bytes = 0;
  std::vector<Segment>
      bin;  ///< in file order, together bin_bytes long; empty when the bytes were not read
  std::vector<Segment> idx = {};
  Provenance provenance = {};
};

/// The path of a dataset's manifest.
std::string manifest_path(const std::string& prefix);

/// The manifest as text.
std::string write_manifest(const Manifest& manifest);

/// The manifest of a text. Unknown members are ignored.
/// Errors: FormatError naming `path`, for what is not JSON, lacks a member, or contradicts itself.
Manifest parse_manifest(const std::string& text, const std::string& path);

/// The manifest beside a dataset, or nothing when there is none.
/// Errors: FormatError as parse_manifest; std::system_error when it exists but cannot be read.
std::optional<Manifest> read_manifest(const std::string& prefix);

/// Whether PREFIX.manifest is a manifest: a regular file, not a link, that read_manifest() reads.
bool has_manifest(const std::string& prefix);

/// Whether a manifest's counts are those of `data`, and so not another dataset's.
bool is_of(const Manifest& manifest, const IndexedDataset& data) noexcept;

/// A tokenizer with which those of datasets are compared. NullTokenizer, whose ids are of any
/// vocabulary, counts as not known.
struct KnownTokenizer {
  std::string identity = {};  ///< as in Provenance::tokenizer_hash; empty: none is known
  std::string name = {};      ///< for messages: "this run's (vocab.json merges.txt)"

  /// That a dataset was made with another one: "its tokenizer (tekken.json) differs from NAME: the
  /// same ids may mean other tokens". Empty if it was not, or one of them is not known. Only a
  /// message: tokenizers of other identities may give equal ids, as where only one has a chat's
  /// special tokens.
  std::string other(const Provenance& from) const;

  /// Takes that of the dataset `prefix`, if none is known yet.
  void learn(const std::string& prefix, const Provenance& from);
};

/// The first place where `file` differs from its checksums, or nothing. Reads everything once.
struct Damage {
  int64_t offset;  ///< of the damaged block
  int64_t bytes;   ///< of the damaged block, or of what is missing
};
std::optional<Damage> find_damage(std::span<const std::byte> file,
                                  std::span<const Segment> segments);
std::optional<Damage> find_damage(const MappedFile& file, std::span<const Segment> segments,
                                  const std::function<void(int64_t)>& on_checked = {});

/// Appends the runs of another dataset's sources to `into`, whose dataset had `documents_before`
/// documents.
void append_sources(std::vector<SourceRun>& into, std::span<const SourceRun> more,
                    int64_t documents_before);

/// The run and line from which document `k` came, or nothing.
struct SourceLine {
  std::string path = {};
  int64_t line;           ///< from 1; 0 when unknown
  int64_t document;       ///< of those of the run, from 0
  int64_t num_documents;  ///< of the run
};
std::optional<SourceLine> source_of(std::span<const SourceRun> sources, int64_t k);

}  // namespace indexed
