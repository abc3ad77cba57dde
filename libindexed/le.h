// SPDX-License-Identifier: MIT
// Le<T>: an integer or float in a file: little-endian, alignment 1. The header of an .idx file has
// 34 bytes, so the arrays after it are not aligned; a span of Le<T> over the mapping reads them
// without a copy and without undefined behaviour. On a little-endian machine a read is one load.
// Includes nothing else of the room.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

namespace indexed {

/// One little-endian value at any address; converts to and from T.
template <class T>
class Le {
  static_assert(std::is_arithmetic_v<T>);

 public:
  Le() = default;
  Le(T value) noexcept { *this = value; }  // NOLINT: implicit on purpose, it is the same number

  Le& operator=(T value) noexcept {
    std::memcpy(bytes_, &value, sizeof(T));
    reverse_on_big_endian();
    return *this;
  }

  operator T() const noexcept {  // NOLINT
    Le copy = *this;
    copy.reverse_on_big_endian();
    T value;
    std::memcpy(&value, copy.bytes_, sizeof(T));
    return value;
  }

 private:
  void reverse_on_big_endian() noexcept {
    if constexpr (std::endian::native == std::endian::big) {
      for (size_t i = 0; i < sizeof(T) / 2; ++i) std::swap(bytes_[i], bytes_[sizeof(T) - 1 - i]);
    }
  }

  unsigned char bytes_[sizeof(T)];
};

static_assert(sizeof(Le<double>) == 8 && alignof(Le<double>) == 1);

}  // namespace indexed
