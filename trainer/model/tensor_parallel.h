// Collectives among tensor-parallel ranks within a layer: sums after row-parallel linears, gathered
// rows before column-parallel ones. Not here: the linears (block.h, head.h).
// May include: model/run.h. "rows" are positions. With sequence parallelism the residual stream is
// (S/tp, B, H) and the linears see (S, B, H); without it both are whole.
// Source: Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022, "Reducing activation
// recomputation in large transformer models", figure 5 (sequence parallelism).
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/run.h"

namespace trainer {

/// A tensor that a collective may still be writing; arrived() makes it readable.
struct PendingTensor {
  PoolTensor tensor;
  PoolTensor source;  ///< Read by the collective until then.
  ops::Mark done;
  bool pending = false;
};

/// All ranks' rows of x (S/tp, B, H); without sequence parallelism x itself, borrowed. Completion:
/// queued on run.tp; x must stay valid until arrived().
PendingTensor gather_rows(const Run& run, const Tensor& x);
/// The sum over ranks of `partial` (S, B, H): with sequence parallelism only this rank's rows of
/// it, otherwise in place.
PendingTensor sum_rows(const Run& run, PoolTensor partial);
/// Makes the compute stream wait for it.
PoolTensor arrived(const Run& run, PendingTensor pending);

}  // namespace trainer
