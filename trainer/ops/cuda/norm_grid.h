// How the backward pass of a norm is cut into blocks: plain arithmetic without CUDA, so that every
// card's grid can be tested without the card. Not here: the kernels (norm_backward.cu). Included by
// norm_backward.cu and tests/trainer/ops/gpus_test.cc. Memory in bytes.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>

namespace ops::cuda {

/// Static shared memory per row: two stages of two sums of each of 32 warps.
constexpr int kNormStaticBytes = 2 * 32 * 2 * 4;

/// The fast kernel's grid, a function of H and the card only, because it decides the order of the
/// sums. Rows at once and blocks on a multiprocessor are what shared memory and registers allow.
struct NormBackwardGrid {
  int threads, rows;
  int64_t blocks;

  /// Two stages of three tensors, 16 bytes per thread and row.
  int dynamic_bytes() const noexcept { return 2 * 3 * rows * 16 * threads; }
  int static_bytes() const noexcept { return rows * kNormStaticBytes; }
};

/// Rows of `hidden` values, `pack` of them in 16 bytes; `shared_bytes` is what a block may have.
inline NormBackwardGrid norm_backward_grid(int64_t hidden, int64_t pack, int multiprocessors,
                                           int shared_bytes) noexcept {
  constexpr int64_t kWarpSize = 32;
  const int64_t packs = (hidden + pack - 1) / pack;
  const int threads = static_cast<int>((packs + kWarpSize - 1) / kWarpSize * kWarpSize);
  // Measured on an H200 from 768 to 2048 wide: fewer rows and more blocks are faster at 1024 and
  // 1280.
  const bool medium = threads > 96 && threads <= 160;
  const int per_sm = medium ? 672 / threads : std::clamp(640 / threads, 1, 5);
  NormBackwardGrid grid{threads, medium || threads > 512 ? 2 : 4,
                        static_cast<int64_t>(multiprocessors) * per_sm};
  while (grid.rows > 1 && grid.dynamic_bytes() + grid.static_bytes() > shared_bytes) grid.rows /= 2;
  return grid;
}

}  // namespace ops::cuda
