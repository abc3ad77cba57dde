// See projection.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/projection.h"

#include <utility>

#include "trainer/model/tensor_parallel.h"

namespace trainer {
namespace {

PoolTensor take(Run& run, const char* purpose, int64_t rows, int64_t columns) {
  return run.pool.take(purpose, run.model_dtype, {rows, run.micro_batch_size, columns});
}

/// The embedding's dropout on the rows held here.
ops::Dropout dropout_of_rows(const Run& run, const MicroBatch& batch) {
  ops::Dropout dropout = embedding_dropout(run, batch);
  dropout.first_position = run.first_position();
  return dropout;
}

void project(Run& run, const Tensor& y, const Tensor& x, int64_t layer, Role role) {
  run.ops.run(ops::LinearForward{.y = y,
                                 .pre_activation = {},
                                 .x = x,
                                 .weight = run.weights.get(layer, role),
                                 .bias = {},
                                 .addend = {}});
}

void project_backward(Run& run, const Tensor& dx, const Tensor& dy, const Tensor& x, int64_t layer,
                      Role role) {
  const Grads::Target weight = run.grads.target(layer, role);
  run.ops.run(ops::LinearBackwardWeight{
      .dweight = weight.tensor, .dbias = {}, .dy = dy, .x = x, .accumulate = weight.accumulate});
  run.ops.run(ops::LinearBackwardInput{.dx = dx,
                                       .dy = dy,
                                       .weight = run.weights.get(layer, role),
                                       .pre_activation = {},
                                       .dbias = {},
                                       .addend = {}});
}

PoolTensor look_up_words(Run& run, const MicroBatch& batch) {
  PoolTensor words = take(run, "word embeddings", run.seq_length, run.spec.embedding_columns());
  run.ops.run(ops::EmbeddingForward{.x = words,
                                    .tokens = batch.tokens,
                                    .token_table = run.weights.get(-1, Role::word_embeddings),
                                    .positions = {},
                                    .position_table = {},
                                    .first_token = first_token(run),
                                    .dropout = {}});
  return arrived(run, sum_rows(run, std::move(words)));
}

/// dropout(positions) of the rows held here; zeros without a table.
PoolTensor look_up_positions(Run& run, const MicroBatch& batch) {
  PoolTensor x = take(run, "residual stream", run.stream_length(), run.spec.hidden_size);
  const auto rows = [&](const Tensor& all) {
    return all.slice(run.first_position(), run.stream_length());
  };
  run.ops.run(ops::EmbeddingForward{.x = x,
                                    .tokens = rows(batch.tokens),
                                    .token_table = {},
                                    .positions = rows(batch.positions),
                                    .position_table = used_positions(run),
                                    .dropout = dropout_of_rows(run, batch)});
  return x;
}

}  // namespace

PoolTensor projected_embedding_forward(Run& run, const MicroBatch& batch, EmbeddingKept& kept) {
  run.weights.gather(-1);
  kept.words = look_up_words(run, batch);
  const PoolTensor branch = take(run, "branch", run.stream_length(), run.spec.hidden_size);
  project(run, branch, kept.words, -1, Role::project_in);
  PoolTensor x = look_up_positions(run, batch);
  // One mask for both terms: a dropout of their sum.
  run.ops.run(ops::ResidualNormForward{.y = {},
                                       .residual_out = x,
                                       .mean = {},
                                       .rstd = {},
                                       .residual = x,
                                       .branch = branch,
                                       .branch_bias = {},
                                       .weight = {},
                                       .bias = {},
                                       .dropout = dropout_of_rows(run, batch)});
  run.weights.release(-1);
  return x;
}

void projected_embedding_backward(Run& run, const MicroBatch& batch, PoolTensor dx,
                                  EmbeddingKept& kept) {
  run.weights.gather(-1);
  if (run.spec.position == Position::learned) {
    const PoolTensor whole = arrived(run, gather_rows(run, dx));
    add_position_gradients(run, batch, whole);
  }
  const ops::Dropout dropout = dropout_of_rows(run, batch);
  PoolTensor dbranch;
  if (dropout.p > 0) {
    dbranch = take(run, "gradient of branch", run.stream_length(), run.spec.hidden_size);
    run.ops.run(ops::ResidualNormBackward{.dresidual = dx,
                                          .dbranch = dbranch,
                                          .dweight = {},
                                          .dbias = {},
                                          .dbranch_bias = {},
                                          .dy = {},
                                          .dresidual_out = dx,
                                          .x = {},
                                          .mean = {},
                                          .rstd = {},
                                          .weight = {},
                                          .dropout = dropout});
  }
  const PoolTensor dwords =
      take(run, "gradient of word embeddings", run.stream_length(), run.spec.embedding_columns());
  project_backward(run, dwords, dbranch ? dbranch : dx, kept.words, -1, Role::project_in);
  run.weights.release(-1);
  const PoolTensor whole = arrived(run, gather_rows(run, dwords));
  const Grads::Target words = run.grads.target(-1, Role::word_embeddings);
  run.ops.run(ops::EmbeddingBackward{.dx = whole,
                                     .tokens = batch.tokens,
                                     .dtoken_table = words.tensor,
                                     .positions = {},
                                     .dposition_table = {},
                                     .first_token = first_token(run),
                                     .accumulate_tokens = words.accumulate,
                                     .dropout = {}});
  kept = {};
  run.grads.layer_done(-1);
}

PoolTensor project_out(Run& run, const Tensor& y) {
  PoolTensor z = take(run, "word embeddings", y.shape[0], run.spec.embedding_columns());
  project(run, z, y, run.spec.num_layers, Role::project_out);
  return z;
}

PoolTensor project_out_backward(Run& run, const Tensor& dz, PoolTensor y) {
  project_backward(run, y, dz, y, run.spec.num_layers, Role::project_out);
  return y;
}

}  // namespace trainer
