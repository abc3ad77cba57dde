// Packing: distributes whole matrices over data-parallel ranks, so that each has about the same
// work.
// Not here: where the flat memories have them (flat_layout.h). May include: the C++ library.
// Source: Graham 1969, "Bounds on multiprocessing timing anomalies" (the largest first, each to the
// rank with the least); Megatron-LM core/optimizer/layer_wise_optimizer.py does so by size.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainer {

/// A matrix to be assigned to a rank.
struct MatrixItem {
  int64_t elements = 0;  ///< Its size, including padding.
  double cost = 0;       ///< Flops of its update.
};

/// The rank and place of each matrix.
struct MatrixPacking {
  std::vector<int> rank;        ///< By item.
  std::vector<int64_t> offset;  ///< By item: elements before it in its rank's share.
  int64_t share_elements = 0;   ///< Of the rank with most elements.
};

/// Assigns the most expensive matrix first, each to the rank with the least cost here; among equals
/// to the one with the fewest elements here, then to the one with the least `load`, then to the
/// first. `load` is the ranks' cost from earlier buckets, and is increased. Deterministic.
MatrixPacking pack_matrices(std::span<const MatrixItem> items, std::span<double> load);

/// Flops of a step of the Newton-Schulz iteration on a matrix.
double orthogonalisation_cost(int64_t rows, int64_t columns) noexcept;

}  // namespace trainer
