// SPDX-License-Identifier: MIT
// Room: tools/dedup. A random order is (hash ^ mask) * multiplier modulo 2^64 with an odd
// multiplier. That is a permutation, and its high bits, which decide the minimum, depend on all
// bits of the hash.
#include "tools/dedup/min_hash.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tools/dedup/shingles.h"

namespace dedup {
namespace {

/// The number of orders that are computed at once, so that their minima stay in registers.
constexpr size_t kBlock = 16;

/// splitmix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
uint64_t next_random(uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The C library's ifunc selects the version. Sanitizers run before it can, so they get the plain
// one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
void minima_of_block(std::span<const uint64_t> shingles, const uint64_t* masks,
                     const uint64_t* multipliers, uint64_t* minima) {
  uint64_t least[kBlock];
  for (size_t i = 0; i < kBlock; ++i) least[i] = minima[i];
  for (const uint64_t shingle : shingles) {
    for (size_t i = 0; i < kBlock; ++i) {
      const uint64_t value = (shingle ^ masks[i]) * multipliers[i];
      least[i] = value < least[i] ? value : least[i];
    }
  }
  for (size_t i = 0; i < kBlock; ++i) minima[i] = least[i];
}

}  // namespace

MinHash::MinHash(int64_t bands, int64_t rows, uint64_t seed) : bands_(bands), rows_(rows) {
  const auto orders = static_cast<size_t>(bands * rows);
  const size_t filled = (orders + kBlock - 1) / kBlock * kBlock;
  for (size_t i = 0; i < filled; ++i) {
    masks_.push_back(next_random(seed));
    multipliers_.push_back(next_random(seed) | 1);
  }
}

void MinHash::add(std::span<const uint64_t> shingles, std::vector<uint64_t>& minima) const {
  if (shingles.empty()) return;
  if (minima.empty()) minima.resize(masks_.size(), std::numeric_limits<uint64_t>::max());
  for (size_t at = 0; at < masks_.size(); at += kBlock) {
    minima_of_block(shingles, &masks_[at], &multipliers_[at], &minima[at]);
  }
}

void MinHash::append_keys(std::span<const uint64_t> minima, std::vector<uint64_t>& keys) const {
  if (minima.empty()) {
    keys.insert(keys.end(), static_cast<size_t>(bands_), kNoKey);
    return;
  }
  for (int64_t band = 0; band < bands_; ++band) {
    uint64_t key = 0x9E3779B97F4A7C15u;
    for (int64_t row = 0; row < rows_; ++row) {
      key = fold(key ^ minima[static_cast<size_t>(band * rows_ + row)], 0xA0761D6478BD642Fu);
    }
    keys.push_back(key == kNoKey ? 1 : key);
  }
}

}  // namespace dedup
