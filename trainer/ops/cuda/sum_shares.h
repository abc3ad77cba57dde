// The sum of several ranks' values of one range, once copy engines have brought them to this GPU
// (comm/peer_copies.h). No operation of Ops: comm alone queues it, on a stream of its own.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/ops/tensor.h"

namespace ops::cuda {

/// The most GPUs that one host's group may have.
inline constexpr int kMostPeers = 16;

/// Where the ranks' values of one range are, on this GPU.
struct SharesOfRanks {
  const void* of[kMostPeers] = {};
  int ranks = 0;
};
/// out[i] = scale * (of[0][i] + of[1][i] + ...), added in fp32 in the order of the ranks. f32, bf16
/// or f16; `out` may be one of them. Done: queued on `stream`.
void sum_shares(void* out, const SharesOfRanks& shares, float scale, DType dtype, int64_t elements,
                cudaStream_t stream);

}  // namespace ops::cuda
