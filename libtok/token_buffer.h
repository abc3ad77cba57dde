// A growing array of token ids whose memory is not zeroed first: encoding writes each id once.
// Includes: C++ library only.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace tok {

/// Token ids in the order in which they were appended. Owns its memory; keeps it over clear().
class TokenBuffer {
 public:
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  void clear() noexcept { size_ = 0; }
  const int32_t* data() const noexcept { return ids_.get(); }
  std::span<const int32_t> tokens() const noexcept { return {ids_.get(), size_}; }

  void push_back(int32_t id) {
    *reserve_more(1) = id;
    ++size_;
  }
  void append(std::span<const int32_t> ids) {
    if (ids.empty()) return;
    std::memcpy(reserve_more(ids.size()), ids.data(), ids.size_bytes());
    size_ += ids.size();
  }

  /// Room for `more` ids after the last, uninitialised; advance() makes them count.
  int32_t* reserve_more(size_t more) {
    if (size_ + more > capacity_) grow(more);
    return ids_.get() + size_;
  }

  /// Counts `count` ids that were written to the room. Range: no more than were reserved.
  void advance(size_t count) noexcept { size_ += count; }

  /// Forgets the ids from `size` on. Range: size <= size().
  void truncate(size_t size) noexcept { size_ = size; }

 private:
  struct Free {
    void operator()(int32_t* ids) const noexcept { std::free(ids); }
  };

  /// realloc moves pages of large arrays instead of their bytes.
  void grow(size_t more) {
    const size_t capacity = std::max(capacity_ + capacity_ / 2, size_ + more);
    void* ids = std::realloc(ids_.get(), capacity * sizeof(int32_t));
    if (ids == nullptr) throw std::bad_alloc();
    (void)ids_.release();
    ids_.reset(static_cast<int32_t*>(ids));
    capacity_ = capacity;
  }

  std::unique_ptr<int32_t[], Free> ids_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace tok
