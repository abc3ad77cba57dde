// SPDX-License-Identifier: MIT
// IndexArray: an array of integers as the sample indices have them (int16, int32, int64, uint8,
// uint32), in memory or mapped from a .npy file; and the .npy files themselves, byte for byte as
// numpy.save writes them. Fortran order, objects and other types are refused. Source: numpy's NEP
// 1; docs/format/sample-index.5.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "libindexed/mapped_file.h"
#include "libindexed/output_file.h"

namespace indexed {

/// Element types, by the names numpy gives them in a .npy header.
enum class IndexType : uint8_t { u1, i2, i4, u4, i8 };

/// rows x columns integers in row order; move-only. Any number of threads may read.
class IndexArray {
 public:
  IndexArray() = default;

  /// An array in memory, not initialised. `columns` 0 makes it one-dimensional.
  IndexArray(IndexType type, int64_t rows, int64_t columns = 0);

  /// Maps a .npy file. Errors: FormatError if it is not an array of one of these types;
  /// std::system_error.
  static IndexArray open(const std::string& path);

  /// Appends the .npy bytes of this array to a file.
  void write(OutputFile& file) const;

  /// Whether the file at `path` is exactly what write() would write.
  bool equals_file(const std::string& path) const;

  IndexType type() const noexcept { return type_; }
  int64_t rows() const noexcept { return rows_; }
  int64_t columns() const noexcept { return columns_; }
  int64_t size() const noexcept { return rows_ * (columns_ == 0 ? 1 : columns_); }
  std::span<const std::byte> bytes() const noexcept;

  /// Element `i` in row order, 0 <= i < size().
  int64_t operator[](int64_t i) const noexcept {
    switch (type_) {
      case IndexType::u1:
        return reinterpret_cast<const uint8_t*>(data_)[i];
      case IndexType::i2:
        return reinterpret_cast<const int16_t*>(data_)[i];
      case IndexType::i4:
        return reinterpret_cast<const int32_t*>(data_)[i];
      case IndexType::u4:
        return reinterpret_cast<const uint32_t*>(data_)[i];
      case IndexType::i8:
        return reinterpret_cast<const int64_t*>(data_)[i];
    }
    return 0;
  }

  /// The elements of an array in memory, for filling; T matches type().
  template <class T>
  std::span<T> fill() noexcept {
    return {reinterpret_cast<T*>(owned_.get()), static_cast<size_t>(size())};
  }

 private:
  std::string header() const;

  IndexType type_ = IndexType::i4;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  const std::byte* data_ = nullptr;
  std::unique_ptr<std::byte[]> owned_;
  MappedFile file_;
};

/// Bytes of one element.
int64_t index_type_size(IndexType type) noexcept;

}  // namespace indexed
