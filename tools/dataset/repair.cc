// SPDX-License-Identifier: MIT
// Room: tools/dataset. One traversal of the documents is used for the proof and for the repair.
#include "tools/dataset/repair.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "libindexed/dataset.h"
#include "libindexed/manifest.h"
#include "libindexed/output_file.h"
#include "tools/cli/text.h"

namespace dataset {
namespace {

using indexed::IndexedDataset;
using indexed::Le;

// Calls use(sequence, real length) for every sequence in order; the last of each non-empty document
// is one longer than stored.
template <class Use>
void for_each_true_length(const IndexedDataset& data, Use use) {
  const auto documents = data.document_indices();
  for (size_t k = 0; k + 1 < documents.size(); ++k) {
    for (int64_t i = documents[k]; i < documents[k + 1]; ++i) {
      const int64_t length = data.sequence_lengths()[static_cast<size_t>(i)];
      use(i, length + (i + 1 == documents[k + 1] ? 1 : 0));
    }
  }
}

template <class T>
class ArrayWriter {
 public:
  explicit ArrayWriter(indexed::OutputFile& file) : file_(file) {}
  ~ArrayWriter() = default;
  void add(T value) {
    piece_[n_++] = value;
    if (n_ == piece_.size()) flush();
  }
  void flush() {
    file_.write(std::as_bytes(std::span(piece_).first(n_)));
    n_ = 0;
  }

 private:
  indexed::OutputFile& file_;
  std::array<Le<T>, 8192> piece_;
  size_t n_ = 0;
};

}  // namespace

std::optional<UncountedEod> find_uncounted_eod(const std::string& prefix,
                                               std::optional<int64_t> eod_token) {
  const IndexedDataset data = IndexedDataset::open(prefix, {.longer_bin = true});
  const int64_t element = indexed::dtype_size(data.dtype());
  const int64_t extra = data.bin_bytes() - data.num_tokens() * element;
  UncountedEod found{.num_documents = data.num_documents(), .non_empty = 0, .eod_token = -1};
  const auto documents = data.document_indices();
  for (size_t k = 0; k + 1 < documents.size(); ++k)
    found.non_empty += documents[k] != documents[k + 1];
  if (extra == 0 || extra != found.non_empty * element || data.old_format()) return std::nullopt;
  const indexed::TokenView all(data.bin().bytes().data(), data.bin_bytes() / element, data.dtype());
  int64_t end = 0;
  size_t document = 0;
  for_each_true_length(data, [&](int64_t sequence, int64_t length) {
    end += length;
    while (documents[document + 1] <= sequence) ++document;
    if (documents[document + 1] != sequence + 1) return;
    const int64_t last = all[end - 1];
    if (found.eod_token < 0) found.eod_token = last;
    if (last != found.eod_token) {
      throw indexed::FormatError(
          cli::concat(prefix, ".bin: one token more per document, but document ", document,
                      " would end with ", last, " and others with ", found.eod_token,
                      ": not the end-of-document tokens of 2023; nothing was changed"));
    }
  });
  if (found.non_empty == 1 && !eod_token) {
    throw indexed::FormatError(
        cli::concat(prefix, ".bin: ends with token ", found.eod_token,
                    ", which the index does not count: one document does not show that it is the "
                    "end-of-document token of 2023, --eod-token ",
                    found.eod_token, " says so; nothing was changed"));
  }
  if (found.eod_token != eod_token.value_or(found.eod_token)) {
    throw indexed::FormatError(cli::concat(prefix, ".bin: one token more per document, ",
                                           found.eod_token, ", expected ", *eod_token,
                                           " by --eod-token; nothing was changed"));
  }
  return found;
}

void mend_uncounted_eod(const std::string& prefix, const UncountedEod& found) {
  indexed::OutputFile file(prefix + ".idx", indexed::Existing::replace);
  file.refuse_second_writer();
  // One that was writing it before may have given it another dataset.
  if (find_uncounted_eod(prefix, found.eod_token) != found)
    throw indexed::FormatError(prefix + ": replaced while it was read; nothing was changed");
  const IndexedDataset data = IndexedDataset::open(prefix, {.longer_bin = true});
  indexed::IndexHeader header;
  header.dtype_code = static_cast<uint8_t>(data.dtype());
  header.num_sequences = static_cast<uint64_t>(data.num_sequences());
  header.num_document_indices = static_cast<uint64_t>(found.num_documents) + 1;
  file.write(std::as_bytes(std::span(&header, 1)));
  ArrayWriter<int32_t> lengths(file);
  for_each_true_length(data,
                       [&](int64_t, int64_t length) { lengths.add(static_cast<int32_t>(length)); });
  lengths.flush();
  ArrayWriter<int64_t> pointers(file);
  int64_t pointer = 0;
  for_each_true_length(data, [&](int64_t, int64_t length) {
    pointers.add(pointer);
    pointer += length * indexed::dtype_size(data.dtype());
  });
  pointers.flush();
  file.write(std::as_bytes(data.document_indices()));
  file.sync();
  if (indexed::has_manifest(prefix)) ::unlink(indexed::manifest_path(prefix).c_str());
  file.commit();
}

}  // namespace dataset
