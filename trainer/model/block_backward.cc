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

/// Through fc2 and the activation: from the branch's gradient to that of the activation's input.
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
  // Without a gate and FP8, the product above has computed the gradient of fc1's bias.
  PoolTensor dy2 = column_parallel_backward(
      l, kFc1, l.gated() || l.fp8() ? BiasGradient::here : BiasGradient::elsewhere, std::move(dpre),
      input_of(l, k, Linear::fc1));
  release_after_products(l, std::move(k.y2));
  return dy2;
}

/// Through the norms of heads, in place; releases what was kept for them.
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
  // Without parallel residual the norm above has already summed proj's bias gradient.
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
  PoolTensor dy1 = column_parallel_backward(l, kQkv, BiasGradient::here, {std::move(dqkv)},
                                            input_of(l, k, Linear::qkv));
  release_after_products(l, std::move(k.y1));
  return dy1;
}

/// Recomputes what Keep::selective released.
void recompute_dropped(const Layer& l, BlockKept& k) {
  const bool norms = !l.quantizes_norms();  // Otherwise their statistics were kept.
  if (norms && !k.y1 && !k.quantized_of(Linear::qkv)) {
    if (l.has_input_norm())
      norm_forward(l, kInputNorm, {.residual = k.x1}, {k.y1, k.mean1, k.rstd1});
    else
      k.y1 = PoolTensor::borrow(k.x1);
  }
  if (!k.qkv) norm_heads(l, k);
  if (norms && !k.y2 && !k.quantized_of(Linear::fc1))
    norm_forward(l, kMlpNorm, {.residual = l.spec().parallel_residual ? k.x1 : k.x2},
                 {k.y2, k.mean2, k.rstd2});
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
    // Both branches read the gradient of the sum, so it must not change before both are done.
    PoolTensor dy1 = attention_backward(l, kept, dresidual);
    norm_backward(l, {kMlpNorm, kept.x1, kept.mean2, kept.rstd2}, dresidual, dy2);
    return dy1;
  }
  norm_backward(l,
                {kMlpNorm, kept.x2, kept.mean2, kept.rstd2,
                 l.dropout(DropoutKind::attention_output, l.layer), l.grad(Role::proj_bias)},
                dresidual, dy2);
  PoolTensor dy1 = attention_backward(l, kept, dy2 ? dy2 : dresidual);
  release_after_products(l, std::move(dy2));
  return dy1;
}

void end(const Layer& l, BlockKept& kept) {
  kept = {};
  l.run.weights.release(l.layer);
  if (l.pass.later != nullptr) {
    l.pass.later->layers.push_back(l.layer);
  } else {
    l.run.grads.layer_done(l.layer);
  }
}

/// The first block's input is what qkv reads and what proj's output is added to.
void end_without_input_norm(const Layer& l, Carry& carry, PoolTensor dy1, BlockKept& kept) {
  l.ops().run(ops::Add{.dst = dy1, .a = carry.residual});
  release_after_products(l, std::exchange(carry.residual, std::move(dy1)));
  release_after_products(l, std::move(kept.x1));
  end(l, kept);
}

}  // namespace

void block_backward(const Pass& pass, int64_t layer, bool first, Carry& carry, BlockKept& kept) {
  const Layer l(pass, layer);
  pass.run.weights.gather(layer);
  recompute_dropped(l, kept);
  PoolTensor dy1 = branches_backward(l, carry, kept);
  if (!l.has_input_norm()) return end_without_input_norm(l, carry, std::move(dy1), kept);
  // The branch that was added before norm 1 is the MLP of the previous layer, if this chunk has
  // that layer; otherwise the input was the sum.
  norm_backward(l,
                {kInputNorm, kept.x1, kept.mean1, kept.rstd1,
                 first ? Dropout() : l.dropout(DropoutKind::mlp_output, layer - 1),
                 first ? Grads::Target() : pass.run.grads.target(layer - 1, Role::fc2_bias)},
                carry.residual, dy1);
  carry.branch = std::move(dy1);
  carry.branch_bias_done = !first;
  end(l, kept);
}

}  // namespace trainer
