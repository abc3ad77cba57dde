// SPDX-License-Identifier: MIT
// MT19937 and Fisher-Yates from the end. The positions to swap with do not depend on the data, so
// they are drawn one batch ahead, and their cache lines are prefetched while the previous batch is
// swapped: for a large array, memory access takes most of the time.
#include "libindexed/numpy_random.h"

#include <bit>
#include <utility>

namespace indexed {

RandomState::RandomState(uint32_t seed) noexcept {
  state_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
  }
}

void RandomState::refill() noexcept {
  constexpr size_t kShift = 397;
  const auto twist = [](uint32_t high, uint32_t low) {
    const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return y >> 1 ^ ((y & 1) * 0x9908b0dfu);
  };
  for (size_t i = 0; i < kWords - kShift; ++i)
    state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
  for (size_t i = kWords - kShift; i < kWords - 1; ++i) {
    state_[i] = state_[i + kShift - kWords] ^ twist(state_[i], state_[i + 1]);
  }
  state_[kWords - 1] = state_[kShift - 1] ^ twist(state_[kWords - 1], state_[0]);
  for (size_t i = 0; i < kWords; ++i) {
    uint32_t y = state_[i];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    outputs_[i] = y ^ y >> 18;
  }
  used_ = 0;
}

uint32_t RandomState::next() noexcept {
  if (used_ == kWords) refill();
  return outputs_[used_++];
}

uint64_t RandomState::interval(uint64_t highest) noexcept {
  if (highest == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(highest);
  for (;;) {
    uint64_t value = next();
    if (highest > 0xffffffffu) value = value << 32 | next();
    value &= mask;
    if (value <= highest) return value;
  }
}

// Fills `positions` with interval(i), interval(i-1), ..., as long as the mask is the same and there
// is room; returns how many.
size_t RandomState::draw(uint64_t i, std::span<uint64_t> positions) noexcept {
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(i);
  const uint64_t same_mask = i - mask / 2;  // i, i-1, ..., mask/2+1
  const size_t want =
      same_mask < positions.size() ? static_cast<size_t>(same_mask) : positions.size();
  if (i > 0xffffffffu) {
    for (size_t k = 0; k < want; ++k) positions[k] = interval(i - k);
    return want;
  }
  const auto mask32 = static_cast<uint32_t>(mask);
  const auto highest = static_cast<uint32_t>(i);
  for (uint32_t k = 0; k < want;) {
    if (used_ == kWords) refill();
    size_t at = used_;
    // A rejected word is overwritten by the next: no branch to mispredict.
    while (at < kWords && k < want) {
      const uint32_t value = outputs_[at++] & mask32;
      positions[k] = value;
      k += value <= highest - k;
    }
    used_ = at;
  }
  return want;
}

template <class T>
void RandomState::shuffle_any(std::span<T> values) noexcept {
  constexpr size_t kBatch = 128;
  uint64_t batches[2][kBatch];
  T* data = values.data();
  const auto draw_and_fetch = [&](uint64_t i, uint64_t* positions) {
    if (i == 0) return size_t{0};
    const size_t n = draw(i, std::span<uint64_t>(positions, kBatch));
    for (size_t k = 0; k < n; ++k) __builtin_prefetch(data + positions[k], 1);
    return n;
  };
  uint64_t i = values.empty() ? 0 : values.size() - 1;
  size_t current = 0;
  size_t n = draw_and_fetch(i, batches[current]);
  while (n > 0) {
    const uint64_t* positions = batches[current];
    current ^= 1;
    const size_t next_n = draw_and_fetch(i - n, batches[current]);
    for (size_t k = 0; k < n; ++k) std::swap(data[i - k], data[positions[k]]);
    i -= n;
    n = next_n;
  }
}

void RandomState::shuffle(std::span<int32_t> values) noexcept { shuffle_any(values); }
void RandomState::shuffle(std::span<uint32_t> values) noexcept { shuffle_any(values); }
void RandomState::shuffle(std::span<int64_t> values) noexcept { shuffle_any(values); }

}  // namespace indexed
