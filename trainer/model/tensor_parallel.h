// How the parts of a layer that are divided among tensor-parallel ranks meet: sums after
// row-parallel linears, rows of all ranks before column-parallel ones. Not here: the linears
// (block.h, head.h).
// May include: model/run.h. "rows" are positions; with sequence parallelism the residual stream
// holds (S/tp, B, H) and the linears see (S, B, H), without it both are whole.
// Source: Shoeybi et al. 2019 (Megatron-LM); Korthikanti et al. 2022, "Reducing activation
// recomputation in large transformer models", figure 5 (sequence parallelism).
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/run.h"

namespace trainer {

/// A tensor that a collective may still be writing. arrived() before it is read.
struct Travelling {
  Tensor tensor;
  Tensor source;  ///< Given back on arrival.
  ops::Mark done;
  bool under_way = false;
};

/// All ranks' rows of x (S/tp, B, H) in new Pool memory; without sequence parallelism x itself.
/// Done: queued on run.tp; x must stay until arrived().
Travelling gather_rows(Run& run, const Tensor& x);
/// The sum over ranks of `partial` (S, B, H), which is taken over: with sequence parallelism this
/// rank's rows of it in new Pool memory, without it in place.
Travelling sum_rows(Run& run, Tensor& partial);
/// Makes compute wait for it; returns the tensor.
Tensor arrived(Run& run, Travelling& travelling);
/// Gives back what gather_rows made of x: nothing when it is x itself.
void give_gathered(Run& run, Tensor& gathered, const Tensor& x);

}  // namespace trainer
