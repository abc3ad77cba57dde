// Embedding, final norm, vocabulary head. Tensor parallel: each rank holds V/tp rows of the tables.
// A token's row is on only one rank, so the sum over ranks of the looked-up rows is exact. The
// position table is whole on each rank, and the first rank adds it.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/head.h"

#include <algorithm>
#include <utility>

#include "trainer/model/layer.h"
#include "trainer/model/projection.h"
#include "trainer/model/tensor_parallel.h"
#include "trainer/parallel/groups.h"

namespace trainer {

using ops::Dropout;
using ops::DropoutKind;

Dropout embedding_dropout(const Pass& pass) {
  return Layer(pass, 0).dropout(DropoutKind::embedding, 0);
}

int64_t first_token(const Run& run) {
  return run.spec.padded_vocab_size / run.tensor_size() * run.tensor_rank();
}

Tensor used_positions(const Run& run) {
  const Tensor table = run.weights.get(-1, Role::position_embeddings);
  if (!table) return {};
  return table.slice(run.spec.position_offset, run.spec.max_position_embeddings);
}

namespace {

/// The output layer and its gradient: the word embeddings when tied.
struct Output {
  int64_t layer;
  Role role;
  explicit Output(const ModelSpec& spec)
      : layer(spec.tied_embeddings ? -1 : spec.num_layers),
        role(spec.tied_embeddings ? Role::word_embeddings : Role::output_layer) {}
};

/// Returns y, the final norm of the carry; puts x (the residual stream) and the statistics into
/// `kept`.
PoolTensor final_norm(const Pass& pass, Carry& carry, HeadKept& kept) {
  const Layer l(pass, pass.run.spec.num_layers);
  kept.rstd = l.statistics();
  if (l.spec().norm == ops::Norm::layernorm) kept.mean = l.statistics();
  PoolTensor y;
  if (!carry.branch) y = l.stream("final norm output");
  norm_carry(l, kFinalNorm, carry, kept.x, {y, kept.mean, kept.rstd});
  return y;
}

/// One chunk of rows: the logits are replaced by their gradient.
struct Chunk {
  Tensor logits, labels, row_weights, token_loss;
  Tensor stats;  ///< Tensor parallel: (tp, R, 3).
  bool backward = false;
};

/// Cross entropy over the columns of all tensor-parallel ranks.
void cross_entropy(const Pass& pass, const Chunk& c) {
  const Run& run = pass.run;
  const float factor = 1.0f / static_cast<float>(pass.num_microbatches);
  if (run.tensor_size() == 1) {
    run.ops.run(ops::CrossEntropy{.logits = c.logits,
                                  .labels = c.labels,
                                  .row_weights = c.row_weights,
                                  .token_loss = c.token_loss,
                                  .state = pass.state,
                                  .factor = factor,
                                  .backward = c.backward});
    return;
  }
  const int64_t rows = c.logits.shape[0];
  const Tensor own = c.stats.slice(run.tensor_rank(), 1).view({rows, 3});
  run.ops.run(ops::CrossEntropyStatistics{
      .stats = own, .logits = c.logits, .labels = c.labels, .first_token = first_token(run)});
  await_collectives(run.ops, run.tp, [&] { run.tp.all_gather(c.stats, own); });
  run.ops.run(ops::CrossEntropyGradient{.logits = c.logits,
                                        .stats = c.stats,
                                        .labels = c.labels,
                                        .row_weights = c.row_weights,
                                        .token_loss = c.token_loss,
                                        .state = pass.state,
                                        .first_token = first_token(run),
                                        .factor = factor,
                                        .backward = c.backward});
}

/// y is replaced by its gradient (this rank's term of the sum); the weight's gradient is added.
void chunk_backward(const Run& run, const Output& output, const Tensor& dlogits, const Tensor& y) {
  const Grads::Target dweight = run.grads.target(output.layer, output.role);
  run.ops.run(ops::LinearBackwardWeight{
      .dweight = dweight.tensor, .dy = dlogits, .x = y, .accumulate = dweight.accumulate});
  run.ops.run(ops::LinearBackwardInput{
      .dx = y, .dy = dlogits, .weight = run.weights.get(output.layer, output.role)});
}

/// The loss of y (S, B, H), chunk by chunk of its rows.
void chunked_loss(const Pass& pass, const Tensor& y, bool backward) {
  const Run& run = pass.run;
  const Output output(run.spec);
  run.weights.gather(output.layer);
  const Tensor weight = run.weights.get(output.layer, output.role);
  const int64_t rows = run.seq_length * run.micro_batch_size, ranks = run.tensor_size();
  const int64_t size = std::min(run.head_rows, rows);
  PoolTensor mean_weights;  // For a loss that is the micro-batch's own mean.
  if (!run.per_token_loss) mean_weights = run.pool.take("loss", DType::f32, {rows});
  const Tensor loss_mask = pass.batch.loss_mask.flat();
  const Tensor row_weights = run.per_token_loss ? loss_mask : mean_weights.get();
  const PoolTensor token_loss = run.pool.take("loss", DType::f32, {rows});
  const PoolTensor logits = run.pool.take("logits", run.model_dtype, {size, weight.shape[0]});
  PoolTensor stats;
  if (ranks > 1) stats = run.pool.take("loss", DType::f32, {ranks * size * 3});
  if (!run.per_token_loss)
    run.ops.run(ops::LossWeights{.row_weights = row_weights, .loss_mask = loss_mask});
  const Tensor y_rows = y.view({rows, y.columns()}), labels = pass.batch.labels.flat();
  for (int64_t begin = 0; begin < rows; begin += size) {
    const int64_t count = std::min(size, rows - begin);
    const Tensor part = y_rows.slice(begin, count);
    const Chunk chunk{
        .logits = logits->slice(0, count),
        .labels = labels.slice(begin, count),
        .row_weights = row_weights.slice(begin, count),
        .token_loss = token_loss->slice(begin, count),
        .stats = stats ? stats->slice(0, ranks * count * 3).view({ranks, count, 3}) : Tensor(),
        .backward = backward};
    run.ops.run(ops::LinearForward{.y = chunk.logits, .x = part, .weight = weight});
    cross_entropy(pass, chunk);
    if (backward) chunk_backward(run, output, chunk.logits, part);
  }
  run.ops.run(ops::AccumulateLoss{.state = pass.state,
                                  .row_weights = row_weights,
                                  .token_loss = token_loss,
                                  .factor = 1.0f / static_cast<float>(pass.num_microbatches)});
  run.weights.release(output.layer);
}

/// The gradient of used_positions().
Grads::Target position_gradients(const Run& run) {
  Grads::Target target = run.grads.target(-1, Role::position_embeddings);
  if (target.tensor)
    target.tensor = target.tensor.slice(run.spec.position_offset, run.spec.max_position_embeddings);
  return target;
}

}  // namespace

PoolTensor embedding_forward(const Pass& pass, EmbeddingKept& kept) {
  const Run& run = pass.run;
  const ModelSpec& spec = run.spec;
  if (spec.projects_embeddings()) return projected_embedding_forward(pass, kept);
  PoolTensor x = run.pool.take("residual stream", run.model_dtype,
                               {run.seq_length, run.micro_batch_size, spec.hidden_size});
  run.weights.gather(-1);
  const Tensor positions = run.tensor_rank() > 0 ? Tensor() : used_positions(run);
  run.ops.run(ops::EmbeddingForward{.x = x,
                                    .tokens = pass.batch.tokens,
                                    .token_table = run.weights.get(-1, Role::word_embeddings),
                                    .positions = pass.batch.positions,
                                    .position_table = positions,
                                    .first_token = first_token(run),
                                    .dropout = embedding_dropout(pass)});
  run.weights.release(-1);
  return arrived(run, sum_rows(run, std::move(x)));
}

void embedding_backward(const Pass& pass, PoolTensor dx, EmbeddingKept& kept) {
  const Run& run = pass.run;
  if (run.spec.projects_embeddings())
    return projected_embedding_backward(pass, std::move(dx), kept);
  const Grads::Target words = run.grads.target(-1, Role::word_embeddings);
  const Grads::Target positions = position_gradients(run);
  const PoolTensor whole = arrived(run, gather_rows(run, dx));
  run.ops.run(ops::EmbeddingBackward{.dx = whole,
                                     .tokens = pass.batch.tokens,
                                     .dtoken_table = words.tensor,
                                     .positions = pass.batch.positions,
                                     .dposition_table = positions.tensor,
                                     .first_token = first_token(run),
                                     .accumulate_tokens = words.accumulate,
                                     .accumulate_positions = positions.accumulate,
                                     .dropout = embedding_dropout(pass)});
  run.grads.layer_done(-1);
}

void add_position_gradients(const Pass& pass, const Tensor& dx) {
  const Grads::Target positions = position_gradients(pass.run);
  pass.run.ops.run(ops::EmbeddingBackward{.dx = dx,
                                          .tokens = pass.batch.tokens,
                                          .positions = pass.batch.positions,
                                          .dposition_table = positions.tensor,
                                          .accumulate_positions = positions.accumulate,
                                          .dropout = embedding_dropout(pass)});
}

void head_forward(const Pass& pass, Carry& carry, HeadKept& kept) {
  const Run& run = pass.run;
  run.weights.gather(run.spec.num_layers);
  PoolTensor y = final_norm(pass, carry, kept), normed;
  if (run.spec.projects_embeddings()) {
    normed = std::move(y);
    y = project_out(run, normed);
  }
  if (run.sequence_parallel) y = arrived(run, gather_rows(run, y));
  chunked_loss(pass, y, true);
  kept.dy = arrived(run, sum_rows(run, std::move(y)));
  if (normed) kept.dy = project_out_backward(run, kept.dy, std::move(normed));
  run.weights.release(run.spec.num_layers);
}

void head_backward(const Pass& pass, const Place& place, Carry& carry, HeadKept& kept) {
  const int64_t layers = pass.run.spec.num_layers;
  const Layer l(pass, layers);
  Grads& grads = pass.run.grads;
  const bool branch_here = place.num_layers > 0;
  PoolTensor dresidual;
  norm_backward(l,
                {kFinalNorm, kept.x, kept.mean, kept.rstd,
                 branch_here ? l.dropout(DropoutKind::mlp_output, layers - 1) : Dropout(),
                 branch_here ? grads.target(layers - 1, Role::fc2_bias) : Grads::Target()},
                dresidual, kept.dy);
  carry = {.residual = std::move(dresidual),
           .branch = std::move(kept.dy),
           .branch_bias_done = branch_here};
  kept = {};
  grads.layer_done(layers);
  // A copy of tied embeddings to which no lookup adds is complete after the head.
  if (l.spec().tied_embeddings && !place.has_embedding) grads.layer_done(-1);
}

void head_evaluate(const Pass& pass, Carry& carry) {
  const Run& run = pass.run;
  HeadKept kept;
  PoolTensor y = final_norm(pass, carry, kept);
  if (run.spec.projects_embeddings()) y = project_out(run, y);
  chunked_loss(pass, arrived(run, gather_rows(run, y)), false);
}

}  // namespace trainer
