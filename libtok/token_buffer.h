// A growing array of token ids whose memory is not zeroed first: encoding writes each id once, in
// the width that the reader needs. Includes: C++ library only.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace tok {

/// Bytes of an id in a TokenBuffer. Two hold ids below 65,536.
enum class IdWidth : uint8_t { two = 2, four = 4 };

/// Token ids in the order in which they were appended. Owns its memory; keeps it over clear().
class TokenBuffer {
 public:
  /// Range: with IdWidth::two, whoever appends has only ids below 65,536.
  explicit TokenBuffer(IdWidth width = IdWidth::four) noexcept : width_(width) {}

  IdWidth width() const noexcept { return width_; }
  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  void clear() noexcept { size_ = drained_ = 0; }

  /// Ids appended since clear(): those in the buffer and those passed to a drain.
  size_t total() const noexcept { return drained_ + size_; }

  /// The ids. Range: width() is four.
  std::span<const int32_t> tokens() const noexcept { return {data<int32_t>(), size_}; }

  /// The ids in memory: uint16_t or int32_t in the machine's byte order.
  std::span<const std::byte> bytes() const noexcept {
    return {bytes_.get(), size_ * static_cast<size_t>(width_)};
  }

  /// Id number `i`, at either width. Range: i < size().
  int32_t operator[](size_t i) const noexcept {
    return width_ == IdWidth::four ? data<int32_t>()[i] : int32_t{data<uint16_t>()[i]};
  }

  /// The ids as `Id`, which is uint16_t or int32_t as width() says.
  template <typename Id>
  const Id* data() const noexcept {
    assert(sizeof(Id) == static_cast<size_t>(width_));
    return reinterpret_cast<const Id*>(bytes_.get());
  }

  void push_back(int32_t id) { append({&id, 1}); }
  void append(std::span<const int32_t> ids) {
    if (width_ == IdWidth::two) {
      uint16_t* to = reserve_more<uint16_t>(ids.size());
      for (size_t i = 0; i < ids.size(); ++i) to[i] = static_cast<uint16_t>(ids[i]);
    } else if (!ids.empty()) {
      std::memcpy(reserve_more<int32_t>(ids.size()), ids.data(), ids.size_bytes());
    }
    size_ += ids.size();
  }

  void append_copies(int32_t id, size_t count) {
    if (width_ == IdWidth::two) {
      std::fill_n(reserve_more<uint16_t>(count), count, static_cast<uint16_t>(id));
    } else {
      std::fill_n(reserve_more<int32_t>(count), count, id);
    }
    size_ += count;
  }

  /// Room for `more` ids after the last, uninitialised; advance() makes them count. `Id` as data().
  template <typename Id>
  Id* reserve_more(size_t more) {
    assert(sizeof(Id) == static_cast<size_t>(width_));
    if (size_ + more > capacity_) grow(more);
    return reinterpret_cast<Id*>(bytes_.get()) + size_;
  }

  /// Counts `count` ids that were written to the room. Range: no more than were reserved.
  void advance(size_t count) noexcept { size_ += count; }

  /// Counts the ids that were written up to `end`, which is in the room or at its end.
  template <typename Id>
  void advance_to(const Id* end) noexcept {
    size_ = static_cast<size_t>(end - data<Id>());
  }

  /// From now on encode() of one text passes all bytes() to `drain`, between two pieces, whenever
  /// more than `limit` ids are in the buffer, so that a text of any length takes bounded memory.
  /// State: the drain is not called at the end; an empty one switches draining off.
  void set_drain(size_t limit, std::function<void(std::span<const std::byte>)> drain) {
    limit_ = drain ? limit : SIZE_MAX;
    drain_ = std::move(drain);
  }
  void drain_if_full() {
    if (size_ <= limit_) [[likely]]
      return;
    drain_(bytes());
    drained_ += std::exchange(size_, 0);
  }

  /// Removes the ids from `size` on. Range: size <= size().
  void truncate(size_t size) noexcept { size_ = size; }

 private:
  struct Free {
    void operator()(std::byte* ids) const noexcept { std::free(ids); }
  };

  /// realloc moves pages of large arrays instead of their bytes.
  void grow(size_t more) {
    const size_t capacity = std::max(capacity_ + capacity_ / 2, size_ + more);
    void* ids = std::realloc(bytes_.get(), capacity * static_cast<size_t>(width_));
    if (ids == nullptr) throw std::bad_alloc();
    (void)bytes_.release();
    bytes_.reset(static_cast<std::byte*>(ids));
    capacity_ = capacity;
  }

  std::unique_ptr<std::byte[], Free> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t drained_ = 0;
  size_t limit_ = SIZE_MAX;
  std::function<void(std::span<const std::byte>)> drain_;
  IdWidth width_;
};

}  // namespace tok
