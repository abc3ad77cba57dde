// SPDX-License-Identifier: MIT
// IndexedDataset: PREFIX.bin and PREFIX.idx, checked once at open and then only read, by any number
// of threads. MMIDIDX is read in place through two mappings; TNTIDX (2023 forks' lazy and cached)
// is converted in memory, 20 bytes per item. Units: lengths in tokens, pointers in bytes of the
// .bin. A *document* is a run of sequences; GPT training shuffles sequences
// (libindexed/sample_index.h). Source: docs/format/indexed.5.md; equals
// megatron/core/datasets/indexed_dataset.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libindexed/format.h"
#include "libindexed/mapped_file.h"

namespace indexed {

/// A view of tokens in a file: a pointer, a count, an element type. Never owns.
class TokenView {
 public:
  TokenView() = default;
  TokenView(const std::byte* data, int64_t size, DType dtype) noexcept
      : data_(data), size_(size), dtype_(dtype) {}

  int64_t size() const noexcept { return size_; }
  DType dtype() const noexcept { return dtype_; }
  std::span<const std::byte> bytes() const noexcept {
    return {data_, static_cast<size_t>(size_ * dtype_size(dtype_))};
  }

  /// Token `i` as an integer; floats are truncated.
  int64_t operator[](int64_t i) const noexcept;

  /// The first out.size() tokens as int32; those outside of its range become its nearest end.
  /// `out` is no longer than size().
  void copy_to(std::span<int32_t> out) const noexcept;

 private:
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
  DType dtype_ = DType::int32;
};

/// Variants that open() accepts.
struct OpenOptions {
  /// The .idx ends with one mode byte for each sequence; the file itself does not say so.
  bool multimodal = false;
  /// Pointers may be in any order and leave gaps: an index-only shuffle. All must be inside the
  /// .bin.
  bool permuted = false;
  /// Accept a .bin that is longer than its sequences (never a shorter one).
  bool longer_bin = false;
  /// Map the .bin; without it sequence() must not be called and only the .bin's size is checked.
  bool tokens = true;
  /// Which changes of the files no output of this process may follow.
  MappedFile::Refuse refuse = MappedFile::Refuse::changes;
};

/// One dataset, open for reading; move-only.
class IndexedDataset {
 public:
  /// Maps and checks both files in one pass over the index: magic, version, type, sizes against
  /// counts, lengths not negative, pointers contiguous from 0 (or, if permuted, inside the .bin),
  /// document indices rising from 0 to the number of sequences, .bin as long as the lengths say. A
  /// .bin of 0 bytes is fine. Errors: FormatError naming file and place; std::system_error for
  /// errors of the operating system.
  static IndexedDataset open(const std::string& prefix, const OpenOptions& options = {});

  const std::string& prefix() const noexcept { return prefix_; }
  DType dtype() const noexcept { return arrays_.dtype; }
  bool old_format() const noexcept { return arrays_.old_format; }
  bool multimodal() const noexcept { return !arrays_.sequence_modes.empty(); }

  int64_t num_sequences() const noexcept {
    return static_cast<int64_t>(arrays_.sequence_lengths.size());
  }
  int64_t num_documents() const noexcept {
    return static_cast<int64_t>(arrays_.document_indices.size()) - 1;
  }
  int64_t num_tokens() const noexcept { return num_tokens_; }
  int64_t bin_bytes() const noexcept { return bin_bytes_; }

  std::span<const Le<int32_t>> sequence_lengths() const noexcept {
    return arrays_.sequence_lengths;
  }
  std::span<const Le<int64_t>> sequence_pointers() const noexcept {
    return arrays_.sequence_pointers;
  }
  /// num_documents()+1 entries; document k is sequences [k] to [k+1]-1.
  std::span<const Le<int64_t>> document_indices() const noexcept {
    return arrays_.document_indices;
  }
  std::span<const int8_t> sequence_modes() const noexcept { return arrays_.sequence_modes; }

  /// Tokens of sequence `i`, 0 <= i < num_sequences(); valid as long as this dataset.
  TokenView sequence(int64_t i) const noexcept {
    const auto at = static_cast<size_t>(i);
    return {bin_.bytes().data() + arrays_.sequence_pointers[at], arrays_.sequence_lengths[at],
            arrays_.dtype};
  }

  /// `length` tokens of sequence `i` from token `offset` on; the range lies inside the sequence.
  TokenView sequence(int64_t i, int64_t offset, int64_t length) const noexcept {
    const auto at = static_cast<size_t>(i);
    const int64_t pointer = arrays_.sequence_pointers[at] + offset * dtype_size(arrays_.dtype);
    return {bin_.bytes().data() + pointer, length, arrays_.dtype};
  }

  /// All tokens of document `k`, 0 <= k < num_documents(). Its sequences must be consecutive in the
  /// .bin, as they are unless OpenOptions::permuted was given.
  TokenView document(int64_t k) const noexcept;

  /// The files; for release() during a long sequential read.
  const MappedFile& bin() const noexcept { return bin_; }
  const MappedFile& idx() const noexcept { return idx_; }

 private:
  IndexedDataset() = default;
  void read_old_index(const std::string& path);
  void check(const std::string& idx_path, const std::string& bin_path, const OpenOptions& options);

  std::string prefix_;
  MappedFile idx_;
  MappedFile bin_;
  IndexArrays arrays_;
  int64_t num_tokens_ = 0;
  int64_t bin_bytes_ = 0;
  std::vector<Le<int32_t>> old_lengths_;
  std::vector<Le<int64_t>> old_pointers_;
  std::vector<Le<int64_t>> old_documents_;
};

/// `length` tokens of `view` converted and written to `out`; the conversion behind
/// TokenView::copy_to, for callers that assemble a sample from pieces. Returns the number written,
/// min(view.size(), out.size()).
int64_t copy_tokens(TokenView view, std::span<int32_t> out) noexcept;

/// Refuses a dataset of floats, whose values are no token ids: as integers they would be cut.
/// Errors: FormatError naming the .idx and the dtype.
void refuse_floats(const IndexedDataset& dataset);

}  // namespace indexed
