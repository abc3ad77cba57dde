// Packing: whole matrices dealt out to data-parallel ranks, so that each has about as much to do.
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

/// A matrix to be dealt out.
struct MatrixItem {
  int64_t elements = 0;  ///< What it takes up, padding included.
  double cost = 0;       ///< Flops of its update.
};

/// Who has which matrix, and where.
struct MatrixPacking {
  std::vector<int> rank;        ///< By item.
  std::vector<int64_t> offset;  ///< By item: elements before it in its rank's share.
  int64_t share_elements = 0;   ///< Of the rank that has most.
};

/// The costliest first, each to the rank with the least cost here; of equals to the one with the
/// fewest elements here, then to the one with the least in `load`, then to the first. `load` is
/// what ranks have from buckets before, and grows by what they get. Deterministic.
MatrixPacking pack_matrices(std::span<const MatrixItem> items, std::span<double> load);

/// Flops that a step of the Newton-Schulz iteration takes on a matrix.
double orthogonalisation_cost(int64_t rows, int64_t columns) noexcept;

}  // namespace trainer
