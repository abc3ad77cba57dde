// SPDX-License-Identifier: MIT
// Memory for tables: zeroed, aligned to a cache line, and, if it is large, untouched until it is
// used, on huge pages if the system has them. Includes: C++ library only.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace tok {

/// Bytes of zeros. Range: `bytes` is a multiple of 64. Errors: std::bad_alloc.
void* make_zeroed_bytes(size_t bytes);
void free_zeroed_bytes(void* memory, size_t bytes) noexcept;

/// How a ZeroedArray is freed.
struct FreeZeroedArray {
  size_t bytes = 0;
  void operator()(void* memory) const noexcept { free_zeroed_bytes(memory, bytes); }
};

/// An array of entries, which are empty when they are zeros.
template <typename Entry>
using ZeroedArray = std::unique_ptr<Entry[], FreeZeroedArray>;

/// Range: `count` entries are a multiple of 64 bytes. Errors: std::bad_alloc.
template <typename Entry>
ZeroedArray<Entry> make_zeroed_array(size_t count) {
  static_assert(std::is_trivially_copyable_v<Entry> && std::is_trivially_destructible_v<Entry>);
  const size_t bytes = count * sizeof(Entry);
  return ZeroedArray<Entry>(static_cast<Entry*>(make_zeroed_bytes(bytes)), FreeZeroedArray{bytes});
}

}  // namespace tok
