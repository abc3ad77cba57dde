// Memory for tests that nothing is read or written behind a matrix.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <span>

/// Memory that ends where a page begins that no one may touch.
class Guarded {
 public:
  explicit Guarded(std::span<const std::byte> bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    pages_ = (bytes.size() + page - 1) / page * page;
    block_ = static_cast<std::byte*>(
        mmap(nullptr, pages_ + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    size_ = pages_ + page;
    EXPECT_EQ(mprotect(block_, pages_, PROT_READ | PROT_WRITE), 0);
    data_ = block_ + pages_ - bytes.size();
    std::ranges::copy(bytes, data_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(block_, size_); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte *block_, *data_;
  size_t pages_, size_;
};
