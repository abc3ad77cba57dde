// SPDX-License-Identifier: MIT
// Header and layout arithmetic of MMIDIDX. Every size is checked before a view is made, in
// arithmetic that cannot overflow: the counts of a damaged header are any 64-bit number.
#include "libindexed/format.h"

#include <cstring>
#include <limits>

#include "libindexed/message.h"

namespace indexed {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  TokenRange range;
};

template <class T>
constexpr TokenRange range_of() {
  return {static_cast<int64_t>(std::numeric_limits<T>::min()),
          static_cast<int64_t>(std::numeric_limits<T>::max())};
}

constexpr DTypeRow kDTypes[] = {
    {DType::uint8, "uint8", 1, range_of<uint8_t>()},
    {DType::int8, "int8", 1, range_of<int8_t>()},
    {DType::int16, "int16", 2, range_of<int16_t>()},
    {DType::int32, "int32", 4, range_of<int32_t>()},
    {DType::int64, "int64", 8, range_of<int64_t>()},
    {DType::float64, "float64", 8, {-(1LL << 53), 1LL << 53}},
    {DType::float32, "float32", 4, {-(1 << 24), 1 << 24}},
    {DType::uint16, "uint16", 2, range_of<uint16_t>()},
};

const DTypeRow& row_of(DType dtype) noexcept { return kDTypes[static_cast<size_t>(dtype) - 1]; }

constexpr int64_t kVocabSizeOfInt32 = 65500;  // Megatron's DType.optimal_dtype

}  // namespace

std::optional<DType> dtype_from_code(uint64_t code) noexcept {
  if (code < 1 || code > std::size(kDTypes)) return std::nullopt;
  return kDTypes[code - 1].dtype;
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::string_view dtype_name(DType dtype) noexcept { return row_of(dtype).name; }
int64_t dtype_size(DType dtype) noexcept { return row_of(dtype).bytes; }
TokenRange token_range(DType dtype) noexcept { return row_of(dtype).range; }

DType dtype_for_vocab_size(int64_t vocab_size) noexcept {
  return vocab_size > 0 && vocab_size < kVocabSizeOfInt32 ? DType::uint16 : DType::int32;
}

std::optional<IndexLayout> index_layout(uint64_t num_sequences, uint64_t num_document_indices,
                                        bool multimodal) noexcept {
  constexpr uint64_t kMost = uint64_t{1} << 57;  // 21 bytes each stay below 2^62
  if (num_sequences > kMost || num_document_indices > kMost) return std::nullopt;
  const auto sequences = static_cast<int64_t>(num_sequences);
  const auto documents = static_cast<int64_t>(num_document_indices);
  IndexLayout layout{};
  layout.lengths_offset = sizeof(IndexHeader);
  layout.pointers_offset = layout.lengths_offset + 4 * sequences;
  layout.document_indices_offset = layout.pointers_offset + 8 * sequences;
  layout.modes_offset = layout.document_indices_offset + 8 * documents;
  layout.file_bytes = layout.modes_offset + (multimodal ? sequences : 0);
  return layout;
}

IndexArrays parse_index(std::span<const std::byte> file, bool multimodal, const std::string& path) {
  const auto size = static_cast<int64_t>(file.size());
  if (file.size() < sizeof(IndexHeader)) {
    throw FormatError(
        message(path, ": ", size, " bytes: shorter than the 34 bytes of an index header"));
  }
  IndexHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  if (header.magic != kIndexMagic) {
    throw FormatError(message(path, ": does not begin with MMIDIDX: not an index file"));
  }
  if (header.version != 1) {
    throw FormatError(message(path, ": version ", uint64_t{header.version}, ", expected 1"));
  }
  const std::optional<DType> dtype = dtype_from_code(header.dtype_code);
  if (!dtype) {
    throw FormatError(message(path, ": dtype code ", int{header.dtype_code}, ", expected 1 to 8"));
  }
  const std::optional<IndexLayout> layout =
      index_layout(header.num_sequences, header.num_document_indices, multimodal);
  if (!layout || size < layout->file_bytes) {
    throw FormatError(message(path, ": ", size, " bytes, but its header counts ",
                              uint64_t{header.num_sequences}, " sequences and ",
                              uint64_t{header.num_document_indices},
                              " document indices: cut short or damaged"));
  }
  const int64_t extra = size - layout->file_bytes;
  if (extra > 0) {
    const bool modes = !multimodal && extra == static_cast<int64_t>(header.num_sequences);
    throw FormatError(message(path, ": ", extra,
                              " bytes longer than its header says: unfinished or foreign file",
                              modes ? ", or multimodal" : ""));
  }
  const auto sequences = static_cast<size_t>(uint64_t{header.num_sequences});
  const auto documents = static_cast<size_t>(uint64_t{header.num_document_indices});
  const std::byte* base = file.data();
  IndexArrays arrays;
  arrays.dtype = *dtype;
  arrays.sequence_lengths = {reinterpret_cast<const Le<int32_t>*>(base + layout->lengths_offset),
                             sequences};
  arrays.sequence_pointers = {reinterpret_cast<const Le<int64_t>*>(base + layout->pointers_offset),
                              sequences};
  arrays.document_indices = {
      reinterpret_cast<const Le<int64_t>*>(base + layout->document_indices_offset), documents};
  if (multimodal) {
    arrays.sequence_modes = {reinterpret_cast<const int8_t*>(base + layout->modes_offset),
                             sequences};
  }
  return arrays;
}

std::string with_commas(int64_t n) {
  std::string digits = std::to_string(n);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

}  // namespace indexed
