// Packing of matrices: the largest first.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/matrix_packing.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace trainer {

MatrixPacking pack_matrices(std::span<const MatrixItem> items, std::span<double> load) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return std::tie(items[x].cost, items[x].elements) > std::tie(items[y].cost, items[y].elements);
  });
  MatrixPacking out{.rank = std::vector<int>(items.size()),
                    .offset = std::vector<int64_t>(items.size())};
  std::vector<int64_t> elements(load.size(), 0);
  std::vector<double> cost(load.size(), 0);
  for (const size_t i : order) {
    size_t least = 0;
    for (size_t rank = 1; rank < load.size(); ++rank)
      if (std::tie(cost[rank], elements[rank], load[rank]) <
          std::tie(cost[least], elements[least], load[least]))
        least = rank;
    out.rank[i] = static_cast<int>(least);
    out.offset[i] = elements[least];
    elements[least] += items[i].elements;
    cost[least] += items[i].cost;
    load[least] += items[i].cost;
    out.share_elements = std::max(out.share_elements, elements[least]);
  }
  return out;
}

double orthogonalisation_cost(int64_t rows, int64_t columns) noexcept {
  const double q = static_cast<double>(std::min(rows, columns));
  const double p = static_cast<double>(std::max(rows, columns));
  // X X^T and B X take 2 q^2 p each, A A takes 2 q^3.
  return 4 * q * q * p + 2 * q * q * q;
}

}  // namespace trainer
