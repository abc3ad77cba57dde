// The embedding at the beginning of a model, final norm and vocabulary head at its end. Not here:
// the blocks between (block.h). May include: model/run.h.
// The head works on one chunk of rows at a time: its logits, the loss and the logits' gradient in
// place, then both products of backward. So no more than Run::head_rows rows of logits ever exist.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/block.h"
#include "trainer/model/run.h"

namespace trainer {

/// What the embedding keeps between forward and backward: if it is projected, the looked-up word
/// embeddings of this rank's rows, (S/tp or S, B, E).
struct EmbeddingKept {
  PoolTensor words;
};
/// The embedded tokens: this rank's rows of the residual stream.
PoolTensor embedding_forward(const Pass& pass, EmbeddingKept& kept);
/// Adds into the tables' gradients; releases `kept`.
void embedding_backward(const Pass& pass, PoolTensor dx, EmbeddingKept& kept);

/// The first token id of this rank's rows of the vocabulary's tables.
int64_t first_token(const Run& run);
/// The rows of the position table that positions index; empty without one.
Tensor used_positions(const Run& run);
/// Adds into the position table's gradient; dx (S, B, H).
void add_position_gradients(const Pass& pass, const Tensor& dx);
/// The dropout of the embeddings, for all S rows.
ops::Dropout embedding_dropout(const Pass& pass);

/// What the head keeps between forward and backward: the gradient of the final norm's output, and
/// the norm's inputs.
struct HeadKept {
  PoolTensor x, mean, rstd, dy;
};
/// Final norm, loss (added to pass.state), and backward down to the norm's output, a chunk at a
/// time.
void head_forward(const Pass& pass, Carry& carry, HeadKept& kept);
/// Through the final norm; leaves the gradient of the last block's output in carry. `place`: that
/// of the head's chunk.
void head_backward(const Pass& pass, const Place& place, Carry& carry, HeadKept& kept);
/// Only the loss; releases carry.
void head_evaluate(const Pass& pass, Carry& carry);

}  // namespace trainer
