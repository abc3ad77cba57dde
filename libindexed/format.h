// SPDX-License-Identifier: MIT
// The bytes of an .idx file: header, element types, places of the arrays. Pure arithmetic on bytes
// in memory; no file is opened here (dataset.h reads, builder.h writes). Counts are elements,
// offsets and sizes bytes. Source: docs/format/indexed.5.md; equals
// megatron/core/datasets/indexed_dataset.py and, for TNTIDX, the 2023 Megatron-DeepSpeed fork's
// IndexedDataset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "libindexed/le.h"

namespace indexed {

/// The bytes of a file violate its format. what() is `place: what: why`.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Element type of a .bin file; the values are the codes of the header.
/// Codes 6 and 7 follow Megatron; GPT-NeoX writes them the other way round.
enum class DType : uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  float64 = 6,
  float32 = 7,
  uint16 = 8,
};

/// The type with this header code, or nothing.
std::optional<DType> dtype_from_code(uint64_t code) noexcept;

/// The type with a name such as "uint16", or nothing.
std::optional<DType> dtype_from_name(std::string_view name) noexcept;

/// numpy's name of the type: "uint16".
std::string_view dtype_name(DType dtype) noexcept;

/// Bytes of one element.
int64_t dtype_size(DType dtype) noexcept;

/// Megatron's choice for a vocabulary: uint16 below 65,500 entries, else int32. Zero means unknown:
/// int32.
DType dtype_for_vocab_size(int64_t vocab_size) noexcept;

/// Smallest and largest token id of the type, within the range of int64; for floats, of the
/// integers that they represent exactly.
struct TokenRange {
  int64_t lowest;
  int64_t highest;
};
TokenRange token_range(DType dtype) noexcept;

inline constexpr std::array<char, 9> kIndexMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
inline constexpr std::array<char, 8> kOldIndexMagic = {'T', 'N', 'T', 'I', 'D', 'X', 0, 0};

/// The first 34 bytes of an MMIDIDX file.
struct IndexHeader {
  std::array<char, 9> magic = kIndexMagic;
  Le<uint64_t> version = 1;
  uint8_t dtype_code = 0;
  Le<uint64_t> num_sequences = 0;
  Le<uint64_t> num_document_indices = 0;
};
static_assert(sizeof(IndexHeader) == 34 && alignof(IndexHeader) == 1);

/// The first 56 bytes of a TNTIDX file (the 2023 forks' `lazy` and `cached` datasets).
struct OldIndexHeader {
  std::array<char, 8> magic = kOldIndexMagic;
  Le<uint64_t> version = 1;
  Le<uint64_t> dtype_code = 0;
  Le<uint64_t> element_size = 0;
  Le<uint64_t> num_items = 0;
  Le<uint64_t> num_sizes = 0;
  Le<uint64_t> num_document_indices = 0;
};
static_assert(sizeof(OldIndexHeader) == 56 && alignof(OldIndexHeader) == 1);

/// Where the arrays of an MMIDIDX file begin, and the length of the file.
struct IndexLayout {
  int64_t lengths_offset;           ///< Le<int32_t>[num_sequences]
  int64_t pointers_offset;          ///< Le<int64_t>[num_sequences], bytes in the .bin
  int64_t document_indices_offset;  ///< Le<int64_t>[num_document_indices]
  int64_t modes_offset;             ///< int8_t[num_sequences], multimodal files only
  int64_t file_bytes;
};

/// Layout for these counts; nothing if the file would exceed 2^62 bytes.
std::optional<IndexLayout> index_layout(uint64_t num_sequences, uint64_t num_document_indices,
                                        bool multimodal) noexcept;

/// Views of the arrays of an index.
struct IndexArrays {
  DType dtype = DType::int32;
  bool old_format = false;  ///< TNTIDX: the arrays were converted into memory
  std::span<const Le<int32_t>> sequence_lengths;
  std::span<const Le<int64_t>> sequence_pointers;
  std::span<const Le<int64_t>> document_indices;
  std::span<const int8_t> sequence_modes;  ///< empty unless multimodal
};

/// Views into the bytes of an MMIDIDX file.
/// Errors: FormatError naming `path` for a wrong magic, version, type or size. Does not check the
/// contents of arrays.
IndexArrays parse_index(std::span<const std::byte> file, bool multimodal, const std::string& path);

/// `n` with a comma every three digits, as messages print counts.
std::string with_commas(int64_t n);

}  // namespace indexed
