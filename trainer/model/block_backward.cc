// One transformer block's backward. Order of operations: the reverse of block.cc's.
// Collectives of tensor parallelism run beside the weights' gradients: the sum of a linear's input
// gradient is queued before the product of its weight's gradient.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/block.h"
#include "trainer/model/layer.h"
#include "trainer/model/tensor_parallel.h"

namespace trainer {
namespace {

using ops::Dropout;
using ops::DropoutKind;

void weight_product(Run& run, const LaterWeights::Product& p, const Tensor& x) {
  const Grads::Target w = run.grads.target(p.layer, p.weight);
  const Grads::Target b = p.bias == p.weight ? Grads::Target() : run.grads.target(p.layer, p.bias);
  run.ops.run(ops::LinearBackwardWeight{
      .dweight = w.tensor, .dbias = b.tensor, .dy = p.dy, .x = x, .accumulate = w.accumulate});
}

/// The product now, from all rows of x that `gathering` brings, or later.
void weight_gradient(const Layer& l, const LaterWeights::Product& product, Travelling& gathering) {
  if (l.run.later != nullptr) {
    l.run.later->products.push_back(product);
    return;
  }
  Tensor x = arrived(l.run, gathering);
  weight_product(l.run, product, x);
  give_gathered(l.run, x, product.x);
}

/// As above, for linears whose x is whole.
void weight_gradient(const Layer& l, const LaterWeights::Product& product) {
  Travelling here{.tensor = product.x, .source = {}, .done = {}};
  weight_gradient(l, product, here);
}

/// All rows of a column-parallel linear's input, on their way; nothing moves when the product is
/// made later.
Travelling gather_for_weight(const Layer& l, const Tensor& x) {
  if (l.run.later != nullptr) return {.tensor = x, .source = {}, .done = {}};
  return gather_rows(l.run, x);
}

/// Gives back what a weight's product has read, or will.
void give_after_products(const Layer& l, Tensor& tensor) {
  if (l.run.later != nullptr && tensor) {
    l.run.later->owned.push_back(tensor);
    tensor = Tensor();
  }
  l.run.pool.give(tensor);
}

/// A row-parallel linear's bias on its own: it is whole on each rank, and its gradient comes from
/// the rows of the residual stream.
void stream_bias_gradient(const Layer& l, Role bias, const Tensor& dstream) {
  const Grads::Target b = l.grad(bias);
  if (!b.tensor) return;
  l.ops().run(ops::LinearBackwardWeight{
      .dweight = {}, .dbias = b.tensor, .dy = dstream, .x = {}, .accumulate = b.accumulate});
}

/// dx (R, columns of the weight) = dy weight.
Tensor input_gradient(const Layer& l, Role weight, const char* purpose, const Tensor& dy) {
  const Tensor w = l.weight(weight);
  const Tensor dx = l.rows(purpose, w.shape[1]);
  l.ops().run(ops::LinearBackwardInput{
      .dx = dx, .dy = dy, .weight = w, .pre_activation = {}, .dbias = {}, .addend = {}});
  return dx;
}

/// From the gradient of fc2's output, all rows, to that before the activation.
Tensor activation_gradient(const Layer& l, const BlockKept& k, const Tensor& dbranch) {
  const Tensor dpre = l.rows("gradient before activation", l.fc1_size());
  if (l.gated()) {
    Tensor dactivated = input_gradient(l, Role::fc2_weight, "gradient of activated", dbranch);
    l.ops().run(ops::ActivationBackward{
        .dx = dpre, .dy = dactivated, .x = k.pre_activation, .activation = l.spec().activation});
    l.run.pool.give(dactivated);
    return dpre;
  }
  const Grads::Target bias = l.grad(Role::fc1_bias);
  l.ops().run(ops::LinearBackwardInput{.dx = dpre,
                                       .dy = dbranch,
                                       .weight = l.weight(Role::fc2_weight),
                                       .pre_activation = k.pre_activation,
                                       .activation = l.spec().activation,
                                       .dbias = bias.tensor,
                                       .accumulate_bias = bias.accumulate,
                                       .addend = {}});
  return dpre;
}

/// Through fc2, activation and fc1: from the branch's gradient to y2's.
Tensor mlp_backward(const Layer& l, BlockKept& k, const Tensor& dbranch, bool bias_done) {
  const bool divided = l.tensor_parallel();
  Travelling gathering = gather_rows(l.run, dbranch);
  if (!bias_done && divided) stream_bias_gradient(l, Role::fc2_bias, dbranch);
  Tensor dwhole = arrived(l.run, gathering);
  Tensor dpre = activation_gradient(l, k, dwhole);
  l.run.pool.give(k.pre_activation);
  weight_gradient(l, {.layer = l.layer,
                      .weight = Role::fc2_weight,
                      .bias = bias_done || divided ? Role::fc2_weight : Role::fc2_bias,
                      .dy = dwhole,
                      .x = k.activated});
  if (dwhole.data != dbranch.data) give_after_products(l, dwhole);
  give_after_products(l, k.activated);
  Travelling rows = gather_for_weight(l, k.y2);
  Tensor partial = input_gradient(l, Role::fc1_weight, "gradient of norm outputs", dpre);
  Travelling summing = sum_rows(l.run, partial);
  weight_gradient(l,
                  {.layer = l.layer,
                   .weight = Role::fc1_weight,
                   .bias = l.gated() ? Role::fc1_bias : Role::fc1_weight,
                   .dy = dpre,
                   .x = k.y2,
                   .column = true},
                  rows);
  give_after_products(l, dpre);
  give_after_products(l, k.y2);
  return arrived(l.run, summing);
}

/// Through proj, attention and qkv: from the branch's gradient to y1's.
Tensor attention_backward(const Layer& l, BlockKept& k, const Tensor& dbranch) {
  ops::Pool& pool = l.run.pool;
  // Without parallel residual the norm above has summed the bias' gradient on its way.
  const bool bias = l.spec().parallel_residual, divided = l.tensor_parallel();
  Travelling gathering = gather_rows(l.run, dbranch);
  if (bias && divided) stream_bias_gradient(l, Role::proj_bias, dbranch);
  Tensor dwhole = arrived(l.run, gathering);
  Tensor dattention = input_gradient(l, Role::proj_weight, "gradient of attention", dwhole);
  weight_gradient(l, {.layer = l.layer,
                      .weight = Role::proj_weight,
                      .bias = bias && !divided ? Role::proj_bias : Role::proj_weight,
                      .dy = dwhole,
                      .x = k.attention});
  if (dwhole.data != dbranch.data) give_after_products(l, dwhole);
  Tensor dqkv = l.rows("gradient of qkv", l.qkv_size());
  l.ops().run(
      ops::AttentionBackward{.shape = l.attention_shape(),
                             .dqkv = dqkv,
                             .dout = dattention,
                             .out = k.attention,
                             .stats = k.stats,
                             .qkv = k.qkv,
                             .first_key = l.batch.first_key,
                             .dropout = l.dropout(DropoutKind::attention_probabilities, l.layer)});
  pool.give(dattention);
  give_after_products(l, k.attention);
  for (Tensor* t : {&k.stats, &k.qkv}) pool.give(*t);
  l.rotate(dqkv, true);
  Travelling rows = gather_for_weight(l, k.y1);
  Tensor partial = input_gradient(l, Role::qkv_weight, "gradient of norm outputs", dqkv);
  Travelling summing = sum_rows(l.run, partial);
  weight_gradient(l,
                  {.layer = l.layer,
                   .weight = Role::qkv_weight,
                   .bias = Role::qkv_bias,
                   .dy = dqkv,
                   .x = k.y1,
                   .column = true},
                  rows);
  give_after_products(l, dqkv);
  give_after_products(l, k.y1);
  return arrived(l.run, summing);
}

/// The norm before a branch's linears, as its backward sees it.
struct NormBefore {
  Role weight, bias;
  const Tensor &x, &mean, &rstd;
  /// Of the branch that was added before this norm: its dropout, and where its linear's bias
  /// gradient goes.
  Dropout branch_dropout;
  Grads::Target branch_bias;
};

/// Adds a norm's gradient to `dresidual`, in place unless a later product reads what it held. With
/// dropout on the branch that was added before this norm, dy becomes that branch's gradient; else
/// dy is given back.
void norm_backward(const Layer& l, const NormBefore& n, Tensor& dresidual, Tensor& dy) {
  const Grads::Target w = l.grad(n.weight), b = l.grad(n.bias);
  const bool dropped = n.branch_dropout.p > 0;
  Tensor before = dresidual;
  if (l.run.later != nullptr) dresidual = l.stream("gradient of residual stream");
  l.ops().run(ops::ResidualNormBackward{.norm = l.spec().norm,
                                        .dresidual = dresidual,
                                        .dbranch = dropped ? dy : Tensor(),
                                        .dweight = w.tensor,
                                        .dbias = b.tensor,
                                        .dbranch_bias = n.branch_bias.tensor,
                                        .dy = dy,
                                        .dresidual_out = before,
                                        .x = n.x,
                                        .mean = n.mean,
                                        .rstd = n.rstd,
                                        .weight = l.weight(n.weight),
                                        .accumulate = w.accumulate,
                                        .dropout = n.branch_dropout});
  if (dresidual.data != before.data) give_after_products(l, before);
  if (!dropped) l.run.pool.give(dy);
}

/// What Keep::selective gave back.
void recompute_dropped(const Layer& l, BlockKept& k) {
  if (!k.y1)
    norm_alone(l, k.x1, Role::input_norm_weight, Role::input_norm_bias, k.y1, k.mean1, k.rstd1);
  if (!k.y2)
    norm_alone(l, l.spec().parallel_residual ? k.x1 : k.x2, Role::mlp_norm_weight,
               Role::mlp_norm_bias, k.y2, k.mean2, k.rstd2);
  if (!k.activated) {
    k.activated = l.rows("mlp activated", l.ffn_size());
    l.ops().run(ops::ActivationForward{
        .y = k.activated, .x = k.pre_activation, .activation = l.spec().activation});
  }
}

/// Both branches and the norm between them; returns the gradient of y1.
Tensor branches_backward(const Layer& l, Carry& carry, BlockKept& kept) {
  Tensor& dresidual = carry.residual;
  Tensor dy2 =
      mlp_backward(l, kept, carry.branch ? carry.branch : dresidual, carry.branch_bias_done);
  give_after_products(l, carry.branch);
  if (l.spec().parallel_residual) {
    // Both branches take the gradient of the sum, so it must not change before both have read it.
    const Tensor dy1 = attention_backward(l, kept, dresidual);
    norm_backward(
        l, {Role::mlp_norm_weight, Role::mlp_norm_bias, kept.x1, kept.mean2, kept.rstd2, {}, {}},
        dresidual, dy2);
    return dy1;
  }
  norm_backward(l,
                {Role::mlp_norm_weight, Role::mlp_norm_bias, kept.x2, kept.mean2, kept.rstd2,
                 l.dropout(DropoutKind::attention_output, l.layer), l.grad(Role::proj_bias)},
                dresidual, dy2);
  const Tensor dy1 = attention_backward(l, kept, dy2 ? dy2 : dresidual);
  give_after_products(l, dy2);
  return dy1;
}

}  // namespace

void block_backward(Run& run, int64_t layer, const MicroBatch& batch, Carry& carry,
                    BlockKept& kept) {
  const Layer l{run, layer, batch};
  run.weights.gather(layer);
  recompute_dropped(l, kept);
  Tensor dy1 = branches_backward(l, carry, kept);
  // The branch that was added before norm 1 is the mlp's of the layer before, when this chunk holds
  // it; else what arrived was the sum.
  const bool branch_here = layer > run.place.first_layer;
  norm_backward(l,
                {Role::input_norm_weight, Role::input_norm_bias, kept.x1, kept.mean1, kept.rstd1,
                 branch_here ? l.dropout(DropoutKind::mlp_output, layer - 1) : Dropout(),
                 branch_here ? run.grads.target(layer - 1, Role::fc2_bias) : Grads::Target()},
                carry.residual, dy1);
  carry.branch = dy1;
  carry.branch_bias_done = branch_here;
  for (Tensor* t : {&kept.x1, &kept.mean1, &kept.rstd1, &kept.x2, &kept.mean2, &kept.rstd2})
    run.pool.give(*t);
  run.weights.release(layer);
  if (run.later != nullptr) {
    run.later->layers.push_back(layer);
  } else {
    run.grads.layer_done(layer);
  }
}

void compute_later(Run& run, LaterWeights& later) {
  for (const LaterWeights::Product& product : later.products) {
    Travelling gathering = product.column
                               ? gather_rows(run, product.x)
                               : Travelling{.tensor = product.x, .source = {}, .done = {}};
    Tensor x = arrived(run, gathering);
    weight_product(run, product, x);
    give_gathered(run, x, product.x);
  }
  for (Tensor& tensor : later.owned) run.pool.give(tensor);
  for (const int64_t layer : later.layers) run.grads.layer_done(layer);
  later = {};
}

}  // namespace trainer
