// Embedding at the front, final norm and vocabulary head at the end of a model.
// Not here: the blocks between (block.h). May include: model/run.h.
// The head walks over chunks of rows: logits of a chunk, loss and their gradient in place, then
// both products of backward, so that no more than Run::head_rows rows of logits ever exist.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/block.h"
#include "trainer/model/run.h"

namespace trainer {

/// The embedded tokens: the residual stream's rows held here.
PoolTensor embedding_forward(const Pass& pass);
/// Adds into the tables' gradients.
void embedding_backward(const Pass& pass, PoolTensor dx);

/// What the head keeps between forward and backward: the gradient of the final norm's output, and
/// the norm's inputs.
struct HeadKept {
  PoolTensor x, mean, rstd, dy;
};
/// Final norm, loss (added to pass.state), and backward down to the norm's output, in one walk.
void head_forward(const Pass& pass, Carry& carry, HeadKept& kept);
/// Through the final norm; leaves the gradient of the last block's output in carry. `place`: of the
/// head's chunk.
void head_backward(const Pass& pass, const Place& place, Carry& carry, HeadKept& kept);
/// The loss alone; releases carry.
void head_evaluate(const Pass& pass, Carry& carry);

}  // namespace trainer
