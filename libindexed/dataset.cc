// SPDX-License-Identifier: MIT
// IndexedDataset: parse_index() gives views with checked sizes; check() then reads the arrays once.
// Everything that is read later without a bounds check (sequence, document) depends on this.
#include "libindexed/dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>

#include "libindexed/message.h"

namespace indexed {
namespace {

// The nearest int32: an id past 2^31 must not become a small one, which a vocabulary may have.
int32_t nearest_int32(int64_t value) noexcept {
  return static_cast<int32_t>(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}

template <class T>
void copy_as(const std::byte* from, std::span<int32_t> out) noexcept {
  const auto* values = reinterpret_cast<const Le<T>*>(from);
  for (size_t i = 0; i < out.size(); ++i) out[i] = nearest_int32(static_cast<T>(values[i]));
}

// A float outside the range of integers cannot be converted; such a file does not contain tokens,
// but the behaviour must not be undefined.
template <class T>
int64_t truncated(T value) noexcept {
  constexpr T kBound = static_cast<T>(9.2e18);
  return value > -kBound && value < kBound ? static_cast<int64_t>(value) : 0;
}

template <class T>
void copy_floats(const std::byte* from, std::span<int32_t> out) noexcept {
  const auto* values = reinterpret_cast<const Le<T>*>(from);
  for (size_t i = 0; i < out.size(); ++i) out[i] = nearest_int32(truncated<T>(values[i]));
}

template <class T>
T value_at(const std::byte* data, int64_t i) noexcept {
  return reinterpret_cast<const Le<T>*>(data)[i];
}

int64_t file_bytes(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw std::system_error(errno, std::generic_category(), path);
  return info.st_size;
}

}  // namespace

int64_t TokenView::operator[](int64_t i) const noexcept {
  switch (dtype_) {
    case DType::uint8:
      return value_at<uint8_t>(data_, i);
    case DType::int8:
      return value_at<int8_t>(data_, i);
    case DType::int16:
      return value_at<int16_t>(data_, i);
    case DType::uint16:
      return value_at<uint16_t>(data_, i);
    case DType::int32:
      return value_at<int32_t>(data_, i);
    case DType::int64:
      return value_at<int64_t>(data_, i);
    case DType::float32:
      return truncated(value_at<float>(data_, i));
    case DType::float64:
      return truncated(value_at<double>(data_, i));
  }
  return 0;
}

void TokenView::copy_to(std::span<int32_t> out) const noexcept {
  switch (dtype_) {
    case DType::uint8:
      return copy_as<uint8_t>(data_, out);
    case DType::int8:
      return copy_as<int8_t>(data_, out);
    case DType::int16:
      return copy_as<int16_t>(data_, out);
    case DType::uint16:
      return copy_as<uint16_t>(data_, out);
    case DType::int32:
      return copy_as<int32_t>(data_, out);
    case DType::int64:
      return copy_as<int64_t>(data_, out);
    case DType::float32:
      return copy_floats<float>(data_, out);
    case DType::float64:
      return copy_floats<double>(data_, out);
  }
}

int64_t copy_tokens(TokenView view, std::span<int32_t> out) noexcept {
  const int64_t n = std::min(view.size(), static_cast<int64_t>(out.size()));
  view.copy_to(out.first(static_cast<size_t>(n)));
  return n;
}

IndexedDataset IndexedDataset::open(const std::string& prefix, const OpenOptions& options) {
  IndexedDataset dataset;
  dataset.prefix_ = prefix;
  const std::string idx_path = prefix + ".idx";
  const std::string bin_path = prefix + ".bin";
  dataset.idx_ = MappedFile(idx_path, MappedFile::Access::normal, options.refuse);
  const std::span<const std::byte> file = dataset.idx_.bytes();
  if (file.size() >= kOldIndexMagic.size() &&
      std::memcmp(file.data(), kOldIndexMagic.data(), kOldIndexMagic.size()) == 0) {
    dataset.read_old_index(idx_path);
  } else {
    dataset.arrays_ = parse_index(file, options.multimodal, idx_path);
  }
  if (options.tokens) {
    dataset.bin_ = MappedFile(bin_path, MappedFile::Access::normal, options.refuse);
    dataset.bin_bytes_ = static_cast<int64_t>(dataset.bin_.bytes().size());
  } else {
    dataset.bin_bytes_ = file_bytes(bin_path);
  }
  dataset.check(idx_path, bin_path, options);
  return dataset;
}

void IndexedDataset::read_old_index(const std::string& path) {
  const std::span<const std::byte> file = idx_.bytes();
  OldIndexHeader header;
  if (file.size() < sizeof header) {
    throw FormatError(
        message(path, ": ", file.size(), " bytes: shorter than the 56 bytes of a TNTIDX header"));
  }
  std::memcpy(&header, file.data(), sizeof header);
  if (header.version != 1) {
    throw FormatError(message(path, ": version ", uint64_t{header.version}, ", expected 1"));
  }
  const std::optional<DType> dtype = dtype_from_code(header.dtype_code);
  if (!dtype || static_cast<uint64_t>(dtype_size(*dtype)) != header.element_size) {
    throw FormatError(message(path, ": dtype code ", uint64_t{header.dtype_code},
                              " with elements of ", uint64_t{header.element_size}, " bytes"));
  }
  const uint64_t items = header.num_items;
  const uint64_t documents = header.num_document_indices;
  const uint64_t words = (file.size() - sizeof header) / 8;
  if (items >= words || documents > words || header.num_sizes != items ||
      2 * (items + 1) + items + documents != words || file.size() % 8 != 0) {
    throw FormatError(message(path, ": ", file.size(), " bytes, but its header counts ", items,
                              " items, ", uint64_t{header.num_sizes}, " sizes and ", documents,
                              " document indices: damaged, or items of several dimensions"));
  }
  const auto* word = reinterpret_cast<const Le<int64_t>*>(file.data() + sizeof header);
  const auto* data_offsets = word + (items + 1);
  const auto* sizes = data_offsets + (items + 1);
  old_lengths_.resize(items);
  old_pointers_.resize(items);
  for (uint64_t i = 0; i < items; ++i) {
    const int64_t length = sizes[i];
    const int64_t offset = data_offsets[i];
    if (length < 0 || length > INT32_MAX || word[i] != static_cast<int64_t>(i) || offset < 0 ||
        offset > (int64_t{1} << 60) || data_offsets[i + 1] != offset + length) {
      throw FormatError(
          message(path, ": item ", i, ": offset ", offset, " and size ", length, " do not fit"));
    }
    old_lengths_[i] = static_cast<int32_t>(length);
    old_pointers_[i] = offset * dtype_size(*dtype);
  }
  old_documents_.assign(sizes + items, sizes + items + documents);
  arrays_.dtype = *dtype;
  arrays_.old_format = true;
  arrays_.sequence_lengths = old_lengths_;
  arrays_.sequence_pointers = old_pointers_;
  arrays_.document_indices = old_documents_;
}

void IndexedDataset::check(const std::string& idx_path, const std::string& bin_path,
                           const OpenOptions& options) {
  const int64_t element = dtype_size(arrays_.dtype);
  const int64_t sequences = num_sequences();
  constexpr int64_t kReleaseEvery = int64_t{1} << 20;
  int64_t next = 0;  // place of the next sequence in a contiguous .bin; below 2^34 * 2^31 * 8
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t length = arrays_.sequence_lengths[static_cast<size_t>(i)];
    const int64_t pointer = arrays_.sequence_pointers[static_cast<size_t>(i)];
    if (length < 0) throw FormatError(message(idx_path, ": sequence ", i, ": length ", length));
    if (pointer != next && !options.permuted) {
      throw FormatError(message(idx_path, ": sequence ", i, ": pointer ", pointer, " where ", next,
                                " is expected: damaged, or an index-only shuffle"));
    }
    if (pointer < 0 || pointer > bin_bytes_ || length * element > bin_bytes_ - pointer) {
      throw FormatError(message(bin_path, ": ", with_commas(bin_bytes_), " bytes, but sequence ", i,
                                " of the index has ", length, " tokens from byte ", pointer,
                                ": cut short, or another dataset's"));
    }
    next += length * element;
    num_tokens_ += length;
    if (i % kReleaseEvery == kReleaseEvery - 1) idx_.release();
  }
  if (bin_bytes_ != next && !options.longer_bin && !options.permuted) {
    int64_t non_empty = 0;
    for (size_t k = 0; k + 1 < arrays_.document_indices.size(); ++k) {
      non_empty += arrays_.document_indices[k] != arrays_.document_indices[k + 1];
    }
    const bool uncounted_eod = bin_bytes_ - next == non_empty * element;
    throw FormatError(message(
        bin_path, ": ", with_commas(bin_bytes_), " bytes, but the index counts ", with_commas(next),
        !uncounted_eod   ? ": damaged, or another dataset's"
        : non_empty == 1 ? ": one token more; inspect-dataset --repair corrects it if that is the "
                           "end-of-document token of the preprocess_data of 2023"
                         : ": one token more per document, as the preprocess_data of 2023 left it; "
                           "inspect-dataset --repair corrects it"));
  }
  const std::span<const Le<int64_t>> documents = arrays_.document_indices;
  if (documents.empty())
    throw FormatError(message(idx_path, ": no document indices, expected at least one"));
  int64_t last = 0;
  for (size_t k = 0; k < documents.size(); ++k) {
    const int64_t index = documents[k];
    if (index < last || (k == 0 && index != 0) || index > sequences) {
      throw FormatError(message(idx_path, ": document index ", k, " is ", index, ", expected ",
                                k == 0 ? "0" : message(last, " to ", sequences)));
    }
    last = index;
    if (k % kReleaseEvery == kReleaseEvery - 1) idx_.release();
  }
  if (last != sequences) {
    throw FormatError(message(idx_path, ": the last document index is ", last, ", but there are ",
                              sequences, " sequences"));
  }
}

TokenView IndexedDataset::document(int64_t k) const noexcept {
  const auto at = static_cast<size_t>(k);
  const auto begin = static_cast<size_t>(arrays_.document_indices[at]);
  const auto end = static_cast<size_t>(arrays_.document_indices[at + 1]);
  if (begin == end) return {bin_.bytes().data(), 0, arrays_.dtype};
  const int64_t pointer = arrays_.sequence_pointers[begin];
  const int64_t stop = arrays_.sequence_pointers[end - 1] +
                       arrays_.sequence_lengths[end - 1] * dtype_size(arrays_.dtype);
  return {bin_.bytes().data() + pointer, (stop - pointer) / dtype_size(arrays_.dtype),
          arrays_.dtype};
}

void refuse_floats(const IndexedDataset& dataset) {
  const DType dtype = dataset.dtype();
  if (dtype != DType::float32 && dtype != DType::float64) return;
  throw FormatError(message(dataset.prefix(), ".idx: dtype ", dtype_name(dtype),
                            ": token ids are integers, expected an integer type"));
}

}  // namespace indexed
