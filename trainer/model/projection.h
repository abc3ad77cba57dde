// Embeddings narrower than the model (ModelSpec::embedding_size): tokens looked up in E columns and
// projected to H before the layers, and back to E after the final norm, before the output layer.
// Both projections are whole on each tensor-parallel rank and work on that rank's rows; with
// sequence parallelism their gradients are summed over these ranks, together with those of the
// norms.
// Not here: models without projections (head.h). May include: model/head.h.
// Source: Zhang et al. 2022 (OPT); transformers modeling_opt.py, project_in and project_out.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/head.h"

namespace trainer {

/// x = dropout(words project_in^T + positions), (S/tp or S, B, H). kept.words: the projection's
/// input.
PoolTensor projected_embedding_forward(const Pass& pass, EmbeddingKept& kept);
/// Adds to the gradients of both tables and of project_in; releases `kept`.
void projected_embedding_backward(const Pass& pass, PoolTensor dx, EmbeddingKept& kept);

/// z (S/tp or S, B, E) = y project_out^T.
PoolTensor project_out(const Run& run, const Tensor& y);
/// The gradient of y (S/tp or S, B, H), in its memory; adds project_out's gradient.
PoolTensor project_out_backward(const Run& run, const Tensor& dz, PoolTensor y);

}  // namespace trainer
