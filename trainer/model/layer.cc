// Norms of a layer: forward, backward, and of heads.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/layer.h"

#include <utility>

#include "trainer/model/parallel_linear.h"

namespace trainer {

void norm_forward(const Layer& l, NormRoles roles, const NormInput& in, const NormOutput& out) {
  const bool written = !l.quantizes_norms();
  if (written && !out.y) out.y = l.stream("norm outputs");
  if (!out.rstd) {
    out.rstd = l.statistics();
    if (l.spec().norm == ops::Norm::layernorm) out.mean = l.statistics();
  }
  l.ops().run(ops::ResidualNormForward{.norm = l.spec().norm,
                                       .eps = l.spec().norm_epsilon,
                                       .y = written ? out.y.get() : Tensor(),
                                       .residual_out = in.sum,
                                       .mean = out.mean,
                                       .rstd = out.rstd,
                                       .residual = in.residual,
                                       .branch = in.branch,
                                       .branch_bias = in.branch_bias,
                                       .weight = l.weight(roles.weight),
                                       .bias = l.weight(roles.bias),
                                       .dropout = in.dropout});
}

void norm_carry(const Layer& l, NormRoles roles, Carry& carry, PoolTensor& x,
                const NormOutput& out) {
  if (!carry.branch) {
    if (!x) x = std::move(carry.residual);
    norm_forward(l, roles, {.residual = x}, out);
  } else {
    const Tensor residual = carry.residual, branch = carry.branch;
    // In place, unless the block before keeps the sum.
    x = carry.residual.borrowed() ? l.stream("residual stream") : std::move(carry.residual);
    out.y = std::move(carry.branch);
    norm_forward(l, roles,
                 {.residual = residual,
                  .sum = x,
                  .branch = branch,
                  .branch_bias = carry.branch_bias,
                  .dropout = l.dropout(ops::DropoutKind::mlp_output, l.layer - 1)},
                 out);
  }
  carry = Carry();
}

void norm_backward(const Layer& l, const NormKept& n, PoolTensor& dresidual, PoolTensor& dy) {
  const Grads::Target w = l.grad(n.roles.weight), b = l.grad(n.roles.bias);
  const bool dropped = n.branch_dropout.p > 0;
  Tensor past = dresidual;
  if (past && l.spec().post_norm) {
    l.ops().run(ops::Add{.dst = dy, .a = past});
    past = {};
  }
  if (!dresidual || l.pass.later != nullptr)
    release_after_products(l, std::exchange(dresidual, l.stream("gradient of residual stream")));
  l.ops().run(ops::ResidualNormBackward{.norm = l.spec().norm,
                                        .dresidual = dresidual,
                                        .dbranch = dropped ? dy : Tensor(),
                                        .dweight = w.tensor,
                                        .dbias = b.tensor,
                                        .dbranch_bias = n.branch_bias.tensor,
                                        .dy = dy,
                                        .dresidual_out = past,
                                        .x = n.x,
                                        .mean = n.mean,
                                        .rstd = n.rstd,
                                        .weight = l.weight(n.roles.weight),
                                        .accumulate = w.accumulate,
                                        .dropout = n.branch_dropout});
  if (!dropped) dy.reset();
}

void norm_heads(const Layer& l, BlockKept& k) {
  if (!k.head_rstd) {
    k.head_rstd = l.head_statistics();
    if (l.spec().norm == ops::Norm::layernorm) k.head_mean = l.head_statistics();
  }
  k.qkv = l.rows("qkv normed", l.qkv_size());
  l.ops().run(ops::HeadNormForward{.heads = l.head_norm(k),
                                   .eps = l.spec().norm_epsilon,
                                   .y = k.qkv,
                                   .q_bias = l.weight(Role::q_norm_bias),
                                   .k_bias = l.weight(Role::k_norm_bias)});
  l.rotate(k.qkv, false);
}

}  // namespace trainer
