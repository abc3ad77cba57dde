// One transformer block's backward. Order of operations: the reverse of block.cc's.
//
// SPDX-License-Identifier: MIT
#include <utility>

#include "trainer/model/block.h"
#include "trainer/model/layer.h"
#include "trainer/model/parallel_linear.h"

namespace trainer {
namespace {

using ops::Dropout;
using ops::DropoutKind;

/// Through fc2 and the activation: from the branch's gradient to that before the activation.
OutputGradient activation_backward(const Layer& l, BlockKept& k, const Tensor& dbranch,
                                   BiasGradient bias) {
  const LinearInput x = input_of(l, k, Linear::fc2);
  if (!l.gated() && !l.fp8())
    return {row_parallel_backward(l, kFc2, bias, dbranch, x,
                                  {.purpose = "gradient before activation",
                                   .pre_activation = k.pre_activation,
                                   .activation = l.spec().activation,
                                   .dbias = l.grad(Role::fc1_bias)})};
  PoolTensor dactivated =
      row_parallel_backward(l, kFc2, bias, dbranch, x, {.purpose = "gradient of activated"});
  if (l.fp8_weight_gradients())
    return {std::move(dactivated), std::move(k.pre_activation), l.spec().activation};
  PoolTensor dpre = l.rows("gradient before activation", l.fc1_size());
  l.ops().run(ops::ActivationBackward{
      .dx = dpre, .dy = dactivated, .x = k.pre_activation, .activation = l.spec().activation});
  return {std::move(dpre)};
}

/// Through fc2, activation and fc1: from the branch's gradient to y2's.
PoolTensor mlp_backward(const Layer& l, BlockKept& k, const Tensor& dbranch, BiasGradient bias) {
  OutputGradient dpre = activation_backward(l, k, dbranch, bias);
  k.pre_activation.reset();
  release_after_products(l, std::move(k.activated));
  // Without a gate and FP8 fc1's bias has its gradient from the product above.
  return column_parallel_backward(
      l, kFc1, l.gated() || l.fp8() ? BiasGradient::here : BiasGradient::elsewhere, std::move(dpre),
      std::move(k.y2), k.quantized_of(Linear::fc1));
}

/// Through the norms of heads, in place; releases what they kept.
void head_norm_backward(const Layer& l, BlockKept& k, const Tensor& dqkv) {
  const Grads::Target q = l.grad(Role::q_norm_weight);
  l.ops().run(ops::HeadNormBackward{.heads = l.head_norm(k),
                                    .dx = dqkv,
                                    .dy = dqkv,
                                    .dq_weight = q.tensor,
                                    .dk_weight = l.grad(Role::k_norm_weight).tensor,
                                    .dq_bias = l.grad(Role::q_norm_bias).tensor,
                                    .dk_bias = l.grad(Role::k_norm_bias).tensor,
                                    .accumulate = q.accumulate});
  for (PoolTensor* t : {&k.raw_qkv, &k.head_mean, &k.head_rstd}) t->reset();
}

/// Through proj, attention and qkv: from the branch's gradient to y1's.
PoolTensor attention_backward(const Layer& l, BlockKept& k, const Tensor& dbranch) {
  // Without parallel residual the norm above has summed proj's bias gradient on its way.
  const BiasGradient bias =
      l.spec().parallel_residual ? BiasGradient::here : BiasGradient::elsewhere;
  PoolTensor dattention = row_parallel_backward(
      l, kProj, bias, dbranch, input_of(l, k, Linear::proj), {.purpose = "gradient of attention"});
  PoolTensor dqkv = l.rows("gradient of qkv", l.qkv_size());
  l.ops().run(
      ops::AttentionBackward{.shape = l.attention_shape(),
                             .dqkv = dqkv,
                             .dout = dattention,
                             .out = k.attention,
                             .stats = k.stats,
                             .qkv = k.qkv,
                             .first_key = l.pass.batch.first_key,
                             .dropout = l.dropout(DropoutKind::attention_probabilities, l.layer)});
  dattention.reset();
  release_after_products(l, std::move(k.attention));
  k.stats.reset();
  k.qkv.reset();
  l.rotate(dqkv, true);
  if (l.spec().qk_norm) head_norm_backward(l, k, dqkv);
  return column_parallel_backward(l, kQkv, BiasGradient::here, {std::move(dqkv)}, std::move(k.y1),
                                  k.quantized_of(Linear::qkv));
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
/// it is released.
void norm_backward(const Layer& l, const NormBefore& n, PoolTensor& dresidual, PoolTensor& dy) {
  const Grads::Target w = l.grad(n.weight), b = l.grad(n.bias);
  const bool dropped = n.branch_dropout.p > 0;
  const Tensor before = dresidual;
  if (l.pass.later != nullptr)
    release_after_products(l, std::exchange(dresidual, l.stream("gradient of residual stream")));
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
  if (!dropped) dy.reset();
}

/// What Keep::selective gave back.
void recompute_dropped(const Layer& l, BlockKept& k) {
  if (!k.y1 && !k.quantized_of(Linear::qkv))
    norm_alone(l, k.x1, Role::input_norm_weight, Role::input_norm_bias, k.y1, k.mean1, k.rstd1);
  if (!k.qkv) norm_heads(l, k);
  if (!k.y2 && !k.quantized_of(Linear::fc1))
    norm_alone(l, l.spec().parallel_residual ? k.x1 : k.x2, Role::mlp_norm_weight,
               Role::mlp_norm_bias, k.y2, k.mean2, k.rstd2);
  if (!k.activated && !l.fp8_weight_gradients()) {
    k.activated = l.rows("mlp activated", l.ffn_size());
    l.ops().run(ops::ActivationForward{
        .y = k.activated, .x = k.pre_activation, .activation = l.spec().activation});
  }
}

/// Both branches and the norm between them; returns the gradient of y1.
PoolTensor branches_backward(const Layer& l, Carry& carry, BlockKept& kept) {
  PoolTensor& dresidual = carry.residual;
  PoolTensor dy2 =
      mlp_backward(l, kept, carry.branch ? carry.branch : dresidual,
                   carry.branch_bias_done ? BiasGradient::elsewhere : BiasGradient::here);
  release_after_products(l, std::move(carry.branch));
  if (l.spec().parallel_residual) {
    // Both branches take the gradient of the sum, so it must not change before both have read it.
    PoolTensor dy1 = attention_backward(l, kept, dresidual);
    norm_backward(
        l, {Role::mlp_norm_weight, Role::mlp_norm_bias, kept.x1, kept.mean2, kept.rstd2, {}, {}},
        dresidual, dy2);
    return dy1;
  }
  norm_backward(l,
                {Role::mlp_norm_weight, Role::mlp_norm_bias, kept.x2, kept.mean2, kept.rstd2,
                 l.dropout(DropoutKind::attention_output, l.layer), l.grad(Role::proj_bias)},
                dresidual, dy2);
  PoolTensor dy1 = attention_backward(l, kept, dy2 ? dy2 : dresidual);
  release_after_products(l, std::move(dy2));
  return dy1;
}

}  // namespace

void block_backward(const Pass& pass, int64_t layer, bool first, Carry& carry, BlockKept& kept) {
  const Layer l(pass, layer);
  const Run& run = pass.run;
  run.weights.gather(layer);
  recompute_dropped(l, kept);
  PoolTensor dy1 = branches_backward(l, carry, kept);
  // The branch that was added before norm 1 is the mlp's of the layer before, when this chunk holds
  // it; else what arrived was the sum.
  const bool branch_here = !first;
  norm_backward(l,
                {Role::input_norm_weight, Role::input_norm_bias, kept.x1, kept.mean1, kept.rstd1,
                 branch_here ? l.dropout(DropoutKind::mlp_output, layer - 1) : Dropout(),
                 branch_here ? run.grads.target(layer - 1, Role::fc2_bias) : Grads::Target()},
                carry.residual, dy1);
  carry.branch = std::move(dy1);
  carry.branch_bias_done = branch_here;
  kept = {};
  run.weights.release(layer);
  if (pass.later != nullptr) {
    pass.later->layers.push_back(layer);
  } else {
    run.grads.layer_done(layer);
  }
}

}  // namespace trainer
