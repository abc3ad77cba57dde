// Reductions of several ranks' elements in host memory, in rank order. Not here: communication
// (tcp.cc). May include: comm/comm.h, ops/number.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "trainer/comm/comm.h"

namespace comm {

/// dst[i] = the reduction of parts[0][i], parts[1][i], and so on, in this order; dst may be one of
/// the parts.
/// Shapes: `elements` of `dtype` each. fp32 adds in fp32; bf16 and fp16 add in fp32 and round once.
/// Because the order is that of the parts, an element's bits do not depend on which rank reduced
/// it. Errors: ShapeError for the mean of integers.
void reduce_parts(void* dst, std::span<const void* const> parts, int64_t elements, ops::DType dtype,
                  Reduce reduce);

}  // namespace comm
