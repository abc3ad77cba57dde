// SPDX-License-Identifier: MIT
// RandomState: the part of numpy's legacy generator, numpy.random.RandomState(seed), that Megatron
// uses: 32-bit outputs of MT19937, bounded integers by masked rejection, shuffle from the end. The
// same seed gives the same permutation on every machine. Not for secrets, and not the generator of
// weights (trainer/model). Source: numpy/random/mtrand.pyx and _mt19937 (legacy seeding); equals
// std::mt19937 in its raw outputs.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace indexed {

/// One stream of random numbers; a value that can be copied to repeat a part.
class RandomState {
 public:
  /// The stream of RandomState(seed); seed is any 32-bit number.
  explicit RandomState(uint32_t seed) noexcept;

  /// The next raw output.
  uint32_t next() noexcept;

  /// Uniform on 0..highest; draws nothing when highest is 0.
  uint64_t interval(uint64_t highest) noexcept;

  /// Permutes `values` in place, exactly as RandomState.shuffle does for a one-dimensional array of
  /// this length; the stream does not depend on the element type. About 3 ns an element in cache.
  void shuffle(std::span<int32_t> values) noexcept;
  void shuffle(std::span<uint32_t> values) noexcept;
  void shuffle(std::span<int64_t> values) noexcept;

 private:
  static constexpr size_t kWords = 624;

  void refill() noexcept;
  template <class T>
  void shuffle_any(std::span<T> values) noexcept;
  size_t draw(uint64_t i, std::span<uint64_t> positions) noexcept;

  std::array<uint32_t, kWords> state_;
  std::array<uint32_t, kWords> outputs_;  // state_ tempered
  size_t used_ = kWords;
};

}  // namespace indexed
