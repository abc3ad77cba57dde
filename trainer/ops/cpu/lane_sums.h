// Products of up to three fp32 rows and a matrix whose rows are contiguous: generation from GPT-2's
// files, whose matrices lie transposed. Such a product waits for memory, which is read fastest from
// one end to the other. So threads do not divide the columns of the matrix but its rows: row k
// belongs to lane k % width, and a thread sums some lanes for all columns. The lanes are added at
// the end, as multiply() of gemm.h adds them: the result is the same, bit for bit.
// Not here: threads (cpu_ops.h). May include: gemm.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/ops/cpu/gemm.h"

namespace ops::cpu {

/// The sums of one product, by lanes. Only looks at the memory that it is given.
class LaneSums {
 public:
  /// Lanes are summed in so many groups, each by one thread.
  static constexpr int64_t kGroups = 4;
  /// Columns that a thread sums at least, and finishes.
  static constexpr int64_t kFewestColumns = 256;

  /// Whether a product is computed here: smaller ones, and those of more rows, are not.
  static bool takes(const Product& product) noexcept;
  /// What `memory` needs for a product that is taken.
  static int64_t bytes(const Product& product) noexcept;

  /// `memory` has bytes(product) bytes. `level` is at most the best one.
  LaneSums(const Product& product, std::byte* memory, GemmLevel level = best_gemm_level()) noexcept;

  /// Sums a group's lanes for columns first .. first + columns - 1, on the calling thread. Each
  /// column of each group is summed once, by any thread, before it is finished.
  void sum(int64_t group, int64_t first, int64_t columns) const noexcept;
  /// Adds the lanes of those columns and writes c.
  void finish(int64_t first, int64_t columns) const noexcept;

 private:
  Product product_;
  GemmLevel level_;
  float* sums_;
};

}  // namespace ops::cpu
