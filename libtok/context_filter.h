// SPDX-License-Identifier: MIT
// A set of contexts, each a few bytes on either side of a position inside a token, as a Bloom
// filter: false positives are possible, false negatives are not. ExactCut and the masks query it.
// Not here: which contexts exist (merge.cc). Includes: C++ library only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tok {

/// Bytes on one side of a position, the nearest lowest.
struct ContextSide {
  uint32_t bytes;
  size_t size;  ///< 1..ContextFilter::kBytes
};

/// The set. Read-only once filled; any number of threads may read.
class ContextFilter {
 public:
  /// The most bytes of a context on either side of a position.
  static constexpr size_t kBytes = 3;

  /// Room for this many: 16 bits per context, of which 3 are set, so one query in 200 is a false
  /// positive.
  explicit ContextFilter(size_t num_contexts = 0)
      : words_(std::bit_ceil(std::max<size_t>(16, num_contexts / 4)), 0) {}

  void add(ContextSide left, ContextSide right) noexcept {
    const uint64_t hash = hash_of(left, right);
    words_[hash & (words_.size() - 1)] |= bits_of(hash);
  }
  bool has(ContextSide left, ContextSide right) const noexcept {
    const uint64_t hash = hash_of(left, right);
    const uint64_t bits = bits_of(hash);
    return (words_[hash & (words_.size() - 1)] & bits) == bits;
  }

 private:
  static uint64_t hash_of(ContextSide left, ContextSide right) noexcept {
    uint64_t key = static_cast<uint64_t>(left.bytes) << 32 | right.bytes;
    key |= static_cast<uint64_t>(left.size) << 60 | static_cast<uint64_t>(right.size) << 28;
    key *= 0x9E3779B97F4A7C15u;
    key ^= key >> 29;
    key *= 0xBF58476D1CE4E5B9u;
    return key ^ (key >> 32);
  }
  static uint64_t bits_of(uint64_t hash) noexcept {
    return uint64_t{1} << (hash >> 58) | uint64_t{1} << (hash >> 52 & 63) |
           uint64_t{1} << (hash >> 46 & 63);
  }

  std::vector<uint64_t> words_;
};

}  // namespace tok
