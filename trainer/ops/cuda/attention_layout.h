// The layout of a packed q/k/v row, as numbers for kernels and products. Not here: kernels.
// Included by attention.cu and attention_plain.cu. Strides and offsets in elements; see
// ops::AttentionShape.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "trainer/ops/ops.h"

#ifdef __CUDACC__
#define OPS_HOST_DEVICE __host__ __device__
#else
#define OPS_HOST_DEVICE
#endif

namespace ops::cuda {

/// A tensor (S, B, G * (N/G + 2) * D).
struct PackedLayout {
  int64_t length, batch, heads, groups, channels;  ///< S, B, N, G, D.

  OPS_HOST_DEVICE int64_t members() const { return heads / groups; }  ///< Query heads of a group.
  OPS_HOST_DEVICE int64_t group() const {
    return (members() + 2) * channels;
  }  ///< Stride of groups.
  OPS_HOST_DEVICE int64_t row() const { return groups * group(); }
};

inline PackedLayout packed_layout(const AttentionShape& shape, const Tensor& qkv) {
  return {qkv.shape[0], qkv.shape[1], shape.num_attention_heads, shape.num_query_groups,
          shape.kv_channels};
}

/// Scratch bytes of plain attention, the same for forward and backward.
int64_t plain_attention_scratch(const PackedLayout& l, DType dtype);

}  // namespace ops::cuda
#undef OPS_HOST_DEVICE
