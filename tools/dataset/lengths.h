// SPDX-License-Identifier: MIT
// Room: tools/dataset. How long documents are: counts by length, percentiles, and their picture in
// a terminal. Units: tokens a document.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "libindexed/dataset.h"

namespace dataset {

/// Tokens of document `k`.
int64_t document_length(const indexed::IndexedDataset& data, int64_t k);

/// Document lengths in classes of an eighth of a power of two: precise enough for percentiles, and
/// 8 KB for any dataset.
class LengthCounts {
 public:
  void add(int64_t length);

  int64_t documents() const { return documents_; }
  int64_t least() const { return least_; }
  int64_t most() const { return most_; }

  /// Upper end of the class that contains the percentile; exact below 16. `share` in 0..1.
  int64_t percentile(double share) const;

  /// Documents of lengths `begin` to `end`.
  struct Bin {
    int64_t begin, end, documents;
  };
  /// The powers of two between the shortest and the longest document: bins() of them, of which
  /// bin(i) is one.
  int64_t bins() const;
  Bin bin(int64_t i) const;

  /// The bins as lines with bars, `columns` wide.
  std::string histogram(int64_t columns) const;

 private:
  size_t first_power() const;

  int64_t documents_ = 0, least_ = 0, most_ = 0;
  std::array<int64_t, 16 + 64 * 8> classes_{};
  std::array<int64_t, 65> powers_{};
};

}  // namespace dataset
