// Embedding at the front, final norm and vocabulary head at the end of a model.
// Not here: the blocks between (block.h). May include: model/run.h.
// The head takes chunks of rows in turn: logits of a chunk, loss and their gradient in place, then
// both products of backward, so that no more than Run::head_rows rows of logits ever exist.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/block.h"
#include "trainer/model/run.h"

namespace trainer {

/// What the embedding keeps between forward and backward: where it is projected, the rows of the
/// word table held here, (S/tp or S, B, E).
struct EmbeddingKept {
  PoolTensor words;
};
/// The embedded tokens: the residual stream's rows held here.
PoolTensor embedding_forward(const Pass& pass, EmbeddingKept& kept);
/// Adds into the tables' gradients; releases `kept`.
void embedding_backward(const Pass& pass, PoolTensor dx, EmbeddingKept& kept);

/// The first token id of this rank's rows of the vocabulary's tables.
int64_t first_token(const Run& run);
/// The rows of the position table that positions index; empty without one.
Tensor used_positions(const Run& run);
/// Adds into the position table's gradient; dx (S, B, H).
void add_position_gradients(const Pass& pass, const Tensor& dx);
/// Of all S rows.
ops::Dropout embedding_dropout(const Pass& pass);

/// What the head keeps between forward and backward: the gradient of the final norm's output, and
/// the norm's inputs.
struct HeadKept {
  PoolTensor x, mean, rstd, dy;
};
/// Final norm, loss (added to pass.state), and backward down to the norm's output, a chunk at a
/// time.
void head_forward(const Pass& pass, Carry& carry, HeadKept& kept);
/// Through the final norm; leaves the gradient of the last block's output in carry. `place`: of the
/// head's chunk.
void head_backward(const Pass& pass, const Place& place, Carry& carry, HeadKept& kept);
/// The loss alone; releases carry.
void head_evaluate(const Pass& pass, Carry& carry);

}  // namespace trainer
