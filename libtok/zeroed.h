// SPDX-License-Identifier: MIT
// Memory for tables: zeroed, from a line's beginning on, and, where it is much, untouched until it
// is used, on huge pages if the system gives them. Includes: C++ library only.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace tok {

/// Bytes of zeros. Range: `bytes` is a multiple of 64. Errors: std::bad_alloc.
void* make_zeroed_bytes(size_t bytes);
void free_zeroed_bytes(void* memory, size_t bytes) noexcept;

/// How a Zeroed array is given back.
struct FreeZeroed {
  size_t bytes = 0;
  void operator()(void* memory) const noexcept { free_zeroed_bytes(memory, bytes); }
};

/// An array of entries, of which zeros are the empty ones.
template <typename Entry>
using Zeroed = std::unique_ptr<Entry[], FreeZeroed>;

/// Range: `count` entries are a multiple of 64 bytes. Errors: std::bad_alloc.
template <typename Entry>
Zeroed<Entry> make_zeroed(size_t count) {
  static_assert(std::is_trivially_copyable_v<Entry> && std::is_trivially_destructible_v<Entry>);
  const size_t bytes = count * sizeof(Entry);
  return Zeroed<Entry>(static_cast<Entry*>(make_zeroed_bytes(bytes)), FreeZeroed{bytes});
}

}  // namespace tok
