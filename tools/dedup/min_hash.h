// SPDX-License-Identifier: MIT
// Room: tools/dedup. MinHash signatures with banding. There are bands * rows random orders of all
// 64-bit hashes, and a document keeps its first shingle in each. Two documents agree in one with a
// probability equal to the Jaccard similarity s of their shingles. A band is `rows` of these
// values; a key is a band's hash. Two documents share at least one key with a probability of 1 - (1
// - s^rows)^bands.
// Source: Broder, "On the resemblance and containment of documents" (1997), for the signature;
// Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", section 3.4, for the bands.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dedup {

/// The key of a document without shingles, which never matches another.
inline constexpr uint64_t kNoKey = 0;

/// The random orders; constant after construction, shared by threads.
class MinHash {
 public:
  /// At least one band and one row. The same seed gives the same keys, everywhere.
  MinHash(int64_t bands, int64_t rows, uint64_t seed);

  int64_t bands() const { return bands_; }

  /// Adds shingles to a document's minima, one for each order; empty before the first.
  void add(std::span<const uint64_t> shingles, std::vector<uint64_t>& minima) const;

  /// Appends the document's `bands` keys; all are kNoKey if it had no shingle.
  void append_keys(std::span<const uint64_t> minima, std::vector<uint64_t>& keys) const;

 private:
  int64_t bands_;
  int64_t rows_;
  std::vector<uint64_t> masks_;        // one per order, padded to whole blocks
  std::vector<uint64_t> multipliers_;  // odd
};

}  // namespace dedup
