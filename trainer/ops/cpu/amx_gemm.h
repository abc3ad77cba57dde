// Products of fp32 rows and a bf16 matrix in AMX's tiles, which multiply bf16 and add in fp32. An
// fp32 number is split into three bf16 numbers that add up to it (24 bits are 3 times 8), so no
// product is rounded, and sums are as accurate as gemm.h's, in two fifths of the time. An element
// is summed in an order that depends on k alone. Unlike fp32 products, AMX takes what is below
// 2^-126 for zero, parts and sums too; an infinity in b gives NaN where a part of a is zero.
// Not here: threads (cpu_ops.h), other processors and matrices (gemm.h). May include: gemm.h.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18
// (AMX), and volume 2, TDPBF16PS.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/ops/cpu/gemm.h"

namespace ops::cpu {

/// Whether this processor multiplies bf16 in tiles, and the system lets this process do so. The
/// first call asks the system; any thread may call.
bool has_amx() noexcept;

/// Rows of a product's left side, split into bf16 and packed in the order in which tiles read them.
/// Only looks at the memory that it is given.
class SplitRows {
 public:
  /// Rows that are packed at a time: a panel. Also the rows of a tile.
  static constexpr int64_t kPanelRows = 16;
  /// Numbers k of a block of the bf16 matrix.
  static constexpr int64_t kDepth = 256;
  /// As many rows as pay: for more, the bf16 matrix is packed again.
  static constexpr int64_t kMostRows = 512;
  /// Columns that are multiplied together at most. The packed rows, which no cache of one processor
  /// holds, are read once for all of them.
  static constexpr int64_t kMostColumns = 512;
  /// Numbers behind a row of sums, so that a tile's rows do not share a cache's few places.
  static constexpr int64_t kPad = 16;
  /// What multiply() needs: a packed block of the bf16 matrix, and sums.
  static constexpr int64_t kScratchBytes =
      2 * kDepth * kMostColumns + 4 * kMostRows * (kMostColumns + kPad) + 64;

  /// What `memory` needs for m rows of k numbers.
  static int64_t bytes(int64_t m, int64_t k) noexcept;

  /// Rows of `a` (m, k), m at most kMostRows, a.column 1. `memory` has bytes(m, k) bytes.
  SplitRows(const Matrix& a, int64_t m, int64_t k, std::byte* memory) noexcept;

  int64_t panels() const noexcept { return (m_ + kPanelRows - 1) / kPanelRows; }
  /// Packs a panel. Panels may be packed by several threads at the same time.
  void pack(int64_t panel) const noexcept;

  /// c = (add ? c : 0) + a b for the product's columns, on the calling thread. `product` has the m
  /// and k and a of this object, which is packed, a b in bf16, alpha 1, and at most kMostColumns
  /// columns. `scratch` has kScratchBytes. Needs has_amx().
  void multiply(const Product& product, std::byte* scratch) const noexcept;

 private:
  uint16_t* panel_at(int64_t from, int64_t panel) const noexcept;

  Matrix a_;
  int64_t m_, k_;
  uint16_t* packed_;
};

/// Whether a product is computed here. Up to three rows are not: they wait for b's memory.
bool takes_amx(const Product& product) noexcept;

}  // namespace ops::cpu
