// Zeroed memory, from the heap or from new pages. Includes: zeroed_array.h; madvise for huge pages,
// which the system may ignore.
// SPDX-License-Identifier: MIT
#include "libtok/zeroed_array.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tok {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void* make_zeroed_bytes(size_t bytes) {
  if (bytes < kHugePage) {
    void* memory = std::aligned_alloc(64, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    return memory;
  }
  // New pages are zeros. Beginning on a huge page takes room for one more; the unneeded part is
  // returned.
  const size_t mapped = bytes + kHugePage;
  void* const memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  char* const from = static_cast<char*>(memory);
  const size_t before = (0 - reinterpret_cast<uintptr_t>(from)) & (kHugePage - 1);
  if (before > 0) munmap(from, before);
  munmap(from + before + bytes, kHugePage - before);
  (void)madvise(from + before, bytes, MADV_HUGEPAGE);
  return from + before;
}

void free_zeroed_bytes(void* memory, size_t bytes) noexcept {
  if (bytes < kHugePage) {
    std::free(memory);
  } else {
    munmap(memory, bytes);
  }
}

}  // namespace tok
