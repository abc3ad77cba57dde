// See projection.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/projection.h"

#include <utility>

#include "trainer/model/tensor_parallel.h"

namespace trainer {
namespace {

PoolTensor take(const Run& run, const char* purpose, int64_t rows, int64_t columns) {
  return run.pool.take(purpose, run.model_dtype, {rows, run.micro_batch_size, columns});
}

/// The embedding's dropout for this rank's rows.
ops::Dropout dropout_of_rows(const Pass& pass) {
  ops::Dropout dropout = embedding_dropout(pass);
  dropout.first_position = pass.run.first_position();
  return dropout;
}

void project(const Run& run, const Tensor& y, const Tensor& x, int64_t layer, Role role) {
  run.ops.run(ops::LinearForward{.y = y, .x = x, .weight = run.weights.get(layer, role)});
}

void project_backward(const Run& run, const Tensor& dx, const Tensor& dy, const Tensor& x,
                      int64_t layer, Role role) {
  const Grads::Target weight = run.grads.target(layer, role);
  run.ops.run(ops::LinearBackwardWeight{
      .dweight = weight.tensor, .dy = dy, .x = x, .accumulate = weight.accumulate});
  run.ops.run(ops::LinearBackwardInput{.dx = dx, .dy = dy, .weight = run.weights.get(layer, role)});
}

PoolTensor look_up_words(const Pass& pass) {
  const Run& run = pass.run;
  PoolTensor words = take(run, "word embeddings", run.seq_length, run.spec.embedding_columns());
  run.ops.run(ops::EmbeddingForward{.x = words,
                                    .tokens = pass.batch.tokens,
                                    .token_table = run.weights.get(-1, Role::word_embeddings),
                                    .first_token = first_token(run)});
  return arrived(run, sum_rows(run, std::move(words)));
}

/// dropout(positions) for this rank's rows; zeros without a table.
PoolTensor look_up_positions(const Pass& pass) {
  const Run& run = pass.run;
  PoolTensor x = take(run, "residual stream", run.stream_length(), run.spec.hidden_size);
  const auto rows = [&](const Tensor& all) {
    return all.slice(run.first_position(), run.stream_length());
  };
  run.ops.run(ops::EmbeddingForward{.x = x,
                                    .tokens = rows(pass.batch.tokens),
                                    .positions = rows(pass.batch.positions),
                                    .position_table = used_positions(run),
                                    .dropout = dropout_of_rows(pass)});
  return x;
}

}  // namespace

PoolTensor projected_embedding_forward(const Pass& pass, EmbeddingKept& kept) {
  const Run& run = pass.run;
  run.weights.gather(-1);
  kept.words = look_up_words(pass);
  const PoolTensor branch = take(run, "branch", run.stream_length(), run.spec.hidden_size);
  project(run, branch, kept.words, -1, Role::project_in);
  PoolTensor x = look_up_positions(pass);
  // Both terms use the same mask, so this is the dropout of their sum.
  run.ops.run(ops::ResidualNormForward{
      .residual_out = x, .residual = x, .branch = branch, .dropout = dropout_of_rows(pass)});
  run.weights.release(-1);
  return x;
}

void projected_embedding_backward(const Pass& pass, PoolTensor dx, EmbeddingKept& kept) {
  const Run& run = pass.run;
  run.weights.gather(-1);
  if (run.spec.position == Position::learned) {
    const PoolTensor whole = arrived(run, gather_rows(run, dx));
    add_position_gradients(pass, whole);
  }
  const ops::Dropout dropout = dropout_of_rows(pass);
  PoolTensor dbranch;
  if (dropout.p > 0) {
    dbranch = take(run, "gradient of branch", run.stream_length(), run.spec.hidden_size);
    run.ops.run(ops::ResidualNormBackward{
        .dresidual = dx, .dbranch = dbranch, .dresidual_out = dx, .dropout = dropout});
  }
  const PoolTensor dwords =
      take(run, "gradient of word embeddings", run.stream_length(), run.spec.embedding_columns());
  project_backward(run, dwords, dbranch ? dbranch : dx, kept.words, -1, Role::project_in);
  run.weights.release(-1);
  const PoolTensor whole = arrived(run, gather_rows(run, dwords));
  const Grads::Target words = run.grads.target(-1, Role::word_embeddings);
  run.ops.run(ops::EmbeddingBackward{.dx = whole,
                                     .tokens = pass.batch.tokens,
                                     .dtoken_table = words.tensor,
                                     .first_token = first_token(run),
                                     .accumulate_tokens = words.accumulate});
  kept = {};
  run.grads.layer_done(-1);
}

PoolTensor project_out(const Run& run, const Tensor& y) {
  PoolTensor z = take(run, "word embeddings", y.shape[0], run.spec.embedding_columns());
  project(run, z, y, run.spec.num_layers, Role::project_out);
  return z;
}

PoolTensor project_out_backward(const Run& run, const Tensor& dz, PoolTensor y) {
  project_backward(run, y, dz, y, run.spec.num_layers, Role::project_out);
  return y;
}

}  // namespace trainer
