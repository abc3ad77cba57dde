// Embedding, final norm, vocabulary head.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/head.h"

#include <algorithm>

namespace trainer {
namespace {

using ops::Dropout;
using ops::DropoutKind;

Dropout embedding_dropout(const Run& run, const MicroBatch& batch) {
  return {.p = run.training ? run.spec.hidden_dropout : 0.0f,
          .seed = run.seed,
          .site = ops::dropout_site(0, DropoutKind::embedding),
          .first_sample = batch.first_sample,
          .state = run.state};
}

Dropout last_branch_dropout(const Run& run, const MicroBatch& batch) {
  return {.p = run.training ? run.spec.hidden_dropout : 0.0f,
          .seed = run.seed,
          .site = ops::dropout_site(run.spec.num_layers - 1, DropoutKind::mlp_output),
          .first_sample = batch.first_sample,
          .state = run.state};
}

/// The output layer, and where its gradient goes: the word embeddings when tied.
struct Output {
  int64_t layer;
  Role role;
  explicit Output(const ModelSpec& spec)
      : layer(spec.tied_embeddings ? -1 : spec.num_layers),
        role(spec.tied_embeddings ? Role::word_embeddings : Role::output_layer) {}
};

/// Final norm of the carry. Leaves x (the residual stream, owned by the caller) and returns y;
/// statistics where wanted.
Tensor final_norm(Run& run, const MicroBatch& batch, Carry& carry, HeadKept& kept) {
  const ModelSpec& spec = run.spec;
  const int64_t s = run.seq_length, b = run.micro_batch_size, h = spec.hidden_size;
  kept.rstd = run.pool.take("norm statistics", DType::f32, {s, b});
  if (spec.norm == ops::Norm::layernorm)
    kept.mean = run.pool.take("norm statistics", DType::f32, {s, b});
  const bool add = static_cast<bool>(carry.branch);
  kept.x = carry.residual;
  if (!carry.owns_residual) kept.x = run.pool.take("residual stream", run.model_dtype, {s, b, h});
  const Tensor y =
      add ? carry.branch : run.pool.take("final norm output", run.model_dtype, {s, b, h});
  run.ops.residual_norm_forward(
      {.norm = spec.norm,
       .eps = spec.norm_epsilon,
       .y = y,
       .residual_out = add ? kept.x : Tensor(),
       .mean = kept.mean,
       .rstd = kept.rstd,
       .residual = carry.residual,
       .branch = carry.branch,
       .branch_bias = {},
       .weight = run.weights.get(spec.num_layers, Role::final_norm_weight),
       .bias = run.weights.get(spec.num_layers, Role::final_norm_bias),
       .dropout = add ? last_branch_dropout(run, batch) : Dropout()});
  carry = Carry();
  return y;
}

/// Walks over chunks of rows of y; with `backward` y becomes its own gradient and the weight's
/// gradient is added to.
void walk(Run& run, const MicroBatch& batch, const Tensor& y, bool backward) {
  const Output output(run.spec);
  run.weights.gather(output.layer);
  const Tensor weight = run.weights.get(output.layer, output.role);
  const int64_t rows = run.seq_length * run.micro_batch_size, vocabulary = weight.shape[0];
  const int64_t chunk = std::min(run.head_rows, rows);
  Tensor row_weights = run.pool.take("loss", DType::f32, {rows});
  Tensor token_loss = run.pool.take("loss", DType::f32, {rows});
  Tensor logits = run.pool.take("logits", run.model_dtype, {chunk, vocabulary});
  run.ops.loss_weights({.row_weights = row_weights, .loss_mask = batch.loss_mask.flat()});
  const Tensor y_rows = y.view({rows, y.columns()}), labels = batch.labels.flat();
  const float factor = 1.0f / static_cast<float>(run.num_microbatches);
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    const Tensor part = logits.slice(0, count), y_part = y_rows.slice(begin, count);
    run.ops.linear_forward(
        {.y = part, .pre_activation = {}, .x = y_part, .weight = weight, .bias = {}, .addend = {}});
    run.ops.cross_entropy({.logits = part,
                           .labels = labels.slice(begin, count),
                           .row_weights = row_weights.slice(begin, count),
                           .token_loss = token_loss.slice(begin, count),
                           .state = run.state,
                           .factor = factor,
                           .backward = backward});
    if (!backward) continue;
    const Grads::Target dweight = run.grads.target(output.layer, output.role);
    run.ops.linear_backward_weight({.dweight = dweight.tensor,
                                    .dbias = {},
                                    .dy = part,
                                    .x = y_part,
                                    .accumulate = dweight.accumulate});
    run.ops.linear_backward_input({.dx = y_part,
                                   .dy = part,
                                   .weight = weight,
                                   .pre_activation = {},
                                   .dbias = {},
                                   .addend = {}});
  }
  run.ops.accumulate_loss(
      {.state = run.state, .row_weights = row_weights, .token_loss = token_loss, .factor = factor});
  for (Tensor* t : {&row_weights, &token_loss, &logits}) run.pool.give(*t);
  run.weights.release(output.layer);
}

}  // namespace

Tensor embedding_forward(Run& run, const MicroBatch& batch) {
  const ModelSpec& spec = run.spec;
  const Tensor x = run.pool.take("residual stream", run.model_dtype,
                                 {run.seq_length, run.micro_batch_size, spec.hidden_size});
  run.weights.gather(-1);
  Tensor positions = run.weights.get(-1, Role::position_embeddings);
  if (positions) positions = positions.slice(spec.position_offset, spec.max_position_embeddings);
  run.ops.embedding_forward({.x = x,
                             .tokens = batch.tokens,
                             .token_table = run.weights.get(-1, Role::word_embeddings),
                             .positions = batch.positions,
                             .position_table = positions,
                             .dropout = embedding_dropout(run, batch)});
  run.weights.release(-1);
  return x;
}

void embedding_backward(Run& run, const MicroBatch& batch, Tensor& dx) {
  const Grads::Target words = run.grads.target(-1, Role::word_embeddings);
  const Grads::Target positions = run.grads.target(-1, Role::position_embeddings);
  Tensor dpositions = positions.tensor;
  if (dpositions)
    dpositions = dpositions.slice(run.spec.position_offset, run.spec.max_position_embeddings);
  run.ops.embedding_backward({.dx = dx,
                              .tokens = batch.tokens,
                              .dtoken_table = words.tensor,
                              .positions = batch.positions,
                              .dposition_table = dpositions,
                              .accumulate_tokens = words.accumulate,
                              .accumulate_positions = positions.accumulate,
                              .dropout = embedding_dropout(run, batch)});
  run.pool.give(dx);
  run.grads.layer_done(-1);
}

void head_forward(Run& run, const MicroBatch& batch, Carry& carry, HeadKept& kept) {
  run.weights.gather(run.spec.num_layers);
  kept.dy = final_norm(run, batch, carry, kept);
  walk(run, batch, kept.dy, true);
  run.weights.release(run.spec.num_layers);
}

void head_backward(Run& run, const MicroBatch& batch, Carry& carry, HeadKept& kept) {
  const ModelSpec& spec = run.spec;
  const Grads::Target weight = run.grads.target(spec.num_layers, Role::final_norm_weight);
  const Grads::Target bias = run.grads.target(spec.num_layers, Role::final_norm_bias);
  const Grads::Target branch_bias = run.grads.target(spec.num_layers - 1, Role::fc2_bias);
  const Tensor dresidual = run.pool.take("gradient of residual stream", run.model_dtype,
                                         {run.seq_length, run.micro_batch_size, spec.hidden_size});
  const Dropout dropout = last_branch_dropout(run, batch);
  const bool dropped = dropout.p > 0;
  run.ops.residual_norm_backward(
      {.norm = spec.norm,
       .dresidual = dresidual,
       .dbranch = dropped ? kept.dy : Tensor(),
       .dweight = weight.tensor,
       .dbias = bias.tensor,
       .dbranch_bias = branch_bias.tensor,
       .dy = kept.dy,
       .dresidual_out = {},
       .x = kept.x,
       .mean = kept.mean,
       .rstd = kept.rstd,
       .weight = run.weights.get(spec.num_layers, Role::final_norm_weight),
       .accumulate = weight.accumulate,
       .dropout = dropout});
  if (!dropped) run.pool.give(kept.dy);
  carry = {
      .residual = dresidual, .branch = kept.dy, .owns_residual = true, .branch_bias_done = true};
  kept.dy = Tensor();
  for (Tensor* t : {&kept.x, &kept.mean, &kept.rstd}) run.pool.give(*t);
  run.grads.layer_done(spec.num_layers);
}

void head_evaluate(Run& run, const MicroBatch& batch, Carry& carry) {
  HeadKept kept;
  Tensor y = final_norm(run, batch, carry, kept);
  walk(run, batch, y, false);
  for (Tensor* t : {&y, &kept.x, &kept.mean, &kept.rstd}) run.pool.give(*t);
}

}  // namespace trainer
