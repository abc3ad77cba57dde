// One transformer block's forward. Order of operations: that of Megatron-core's TransformerLayer
// (pre-norm), or GPT-NeoX's parallel residual. Tensor parallel: qkv and fc1 are divided by columns,
// proj and fc2 by rows; their biases are added by the next norm, after the sum over ranks.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/block.h"

#include "trainer/model/layer.h"
#include "trainer/model/tensor_parallel.h"

namespace trainer {

using ops::Dropout;
using ops::DropoutKind;

void norm_alone(const Layer& l, const Tensor& x, Role weight, Role bias, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  if (!y) y = l.stream("norm outputs");
  if (!rstd) {
    rstd = l.statistics();
    if (l.spec().norm == ops::Norm::layernorm) mean = l.statistics();
  }
  l.ops().run(ops::ResidualNormForward{.norm = l.spec().norm,
                                       .eps = l.spec().norm_epsilon,
                                       .y = y,
                                       .residual_out = {},
                                       .mean = mean,
                                       .rstd = rstd,
                                       .residual = x,
                                       .branch = {},
                                       .branch_bias = {},
                                       .weight = l.weight(weight),
                                       .bias = l.weight(bias),
                                       .dropout = {}});
}

namespace {

/// x1 and y1 from the carry.
void input_norm(const Layer& l, Carry& carry, BlockKept& k) {
  if (!carry.branch) {
    k.x1 = carry.residual;
    norm_alone(l, k.x1, Role::input_norm_weight, Role::input_norm_bias, k.y1, k.mean1, k.rstd1);
    carry = Carry();
    return;
  }
  k.x1 = carry.owns_residual ? carry.residual : l.stream("residual stream");
  k.y1 = carry.branch;
  k.rstd1 = l.statistics();
  if (l.spec().norm == ops::Norm::layernorm) k.mean1 = l.statistics();
  l.ops().run(ops::ResidualNormForward{.norm = l.spec().norm,
                                       .eps = l.spec().norm_epsilon,
                                       .y = k.y1,
                                       .residual_out = k.x1,
                                       .mean = k.mean1,
                                       .rstd = k.rstd1,
                                       .residual = carry.residual,
                                       .branch = carry.branch,
                                       .branch_bias = carry.branch_bias,
                                       .weight = l.weight(Role::input_norm_weight),
                                       .bias = l.weight(Role::input_norm_bias),
                                       .dropout = l.dropout(DropoutKind::mlp_output, l.layer - 1)});
  l.run.pool.give(carry.branch_bias);
  carry = Carry();
}

void attend(const Layer& l, BlockKept& k) {
  const ModelSpec& spec = l.spec();
  k.qkv = l.rows("qkv", l.qkv_size());
  Travelling gathering = gather_rows(l.run, k.y1);
  Tensor y = arrived(l.run, gathering);
  l.ops().run(ops::LinearForward{.y = k.qkv,
                                 .pre_activation = {},
                                 .x = y,
                                 .weight = l.weight(Role::qkv_weight),
                                 .bias = l.weight(Role::qkv_bias),
                                 .addend = {}});
  give_gathered(l.run, y, k.y1);
  l.rotate(k.qkv, false);
  k.attention = l.rows("attention outputs", l.heads() * spec.kv_channels);
  k.stats = l.run.pool.take("attention statistics", DType::f32,
                            {l.run.micro_batch_size, l.heads(), l.run.seq_length});
  l.ops().run(
      ops::AttentionForward{.shape = l.attention_shape(),
                            .out = k.attention,
                            .stats = k.stats,
                            .qkv = k.qkv,
                            .first_key = l.batch.first_key,
                            .dropout = l.dropout(DropoutKind::attention_probabilities, l.layer)});
}

/// out = attention proj^T + bias (+ addend); tensor parallel without the bias.
void project(const Layer& l, const BlockKept& k, const Tensor& out, const Tensor& addend) {
  l.ops().run(ops::LinearForward{.y = out,
                                 .pre_activation = {},
                                 .x = k.attention,
                                 .weight = l.weight(Role::proj_weight),
                                 .bias = l.tensor_parallel() ? Tensor() : l.weight(Role::proj_bias),
                                 .addend = addend});
}

/// x2 and y2 from attention.
void middle_norm(const Layer& l, BlockKept& k) {
  if (l.spec().parallel_residual) {
    norm_alone(l, k.x1, Role::mlp_norm_weight, Role::mlp_norm_bias, k.y2, k.mean2, k.rstd2);
    return;
  }
  k.x2 = l.stream("residual stream");
  if (l.fused()) {
    project(l, k, k.x2, k.x1);
    norm_alone(l, k.x2, Role::mlp_norm_weight, Role::mlp_norm_bias, k.y2, k.mean2, k.rstd2);
    return;
  }
  Tensor partial = l.rows("norm outputs", l.spec().hidden_size);
  project(l, k, partial, {});
  Travelling summing = sum_rows(l.run, partial);
  k.y2 = arrived(l.run, summing);
  k.rstd2 = l.statistics();
  if (l.spec().norm == ops::Norm::layernorm) k.mean2 = l.statistics();
  l.ops().run(ops::ResidualNormForward{
      .norm = l.spec().norm,
      .eps = l.spec().norm_epsilon,
      .y = k.y2,
      .residual_out = k.x2,
      .mean = k.mean2,
      .rstd = k.rstd2,
      .residual = k.x1,
      .branch = k.y2,
      .branch_bias = l.tensor_parallel() ? l.weight(Role::proj_bias) : Tensor(),
      .weight = l.weight(Role::mlp_norm_weight),
      .bias = l.weight(Role::mlp_norm_bias),
      .dropout = l.dropout(DropoutKind::attention_output, l.layer)});
}

void expand(const Layer& l, BlockKept& k) {
  k.pre_activation = l.rows("mlp before activation", l.fc1_size());
  k.activated = l.rows("mlp activated", l.ffn_size());
  Travelling gathering = gather_rows(l.run, k.y2);
  Tensor y = arrived(l.run, gathering);
  const bool gated = l.gated();
  l.ops().run(
      ops::LinearForward{.y = gated ? k.pre_activation : k.activated,
                         .pre_activation = gated ? Tensor() : k.pre_activation,
                         .x = y,
                         .weight = l.weight(Role::fc1_weight),
                         .bias = l.weight(Role::fc1_bias),
                         .addend = {},
                         .activation = gated ? ops::Activation::none : l.spec().activation});
  give_gathered(l.run, y, k.y2);
  if (gated)
    l.ops().run(ops::ActivationForward{
        .y = k.activated, .x = k.pre_activation, .activation = l.spec().activation});
}

/// The biases of the linears that the branch is summed from, copied, since the norm that adds them
/// belongs to the next layer.
Tensor branch_bias(const Layer& l) {
  const Tensor fc2 = l.weight(Role::fc2_bias);
  if (!fc2) return {};
  const Tensor bias = l.run.pool.take("branch bias", fc2.dtype, {fc2.shape[0]});
  l.ops().run(ops::Copy{.dst = bias, .src = fc2});
  if (l.spec().parallel_residual)
    l.ops().run(ops::Add{.dst = bias, .a = l.weight(Role::proj_bias)});
  return bias;
}

/// The block's output into carry.
void contract(const Layer& l, const BlockKept& k, Carry& carry) {
  const bool parallel = l.spec().parallel_residual, divided = l.tensor_parallel();
  const Tensor& residual = parallel ? k.x1 : k.x2;
  const bool adds = (parallel || l.fused()) && !divided;
  Tensor out = l.rows(adds ? "residual stream" : "branch", l.spec().hidden_size);
  if (parallel) project(l, k, out, divided ? Tensor() : k.x1);
  l.ops().run(ops::LinearForward{.y = out,
                                 .pre_activation = {},
                                 .x = k.activated,
                                 .weight = l.weight(Role::fc2_weight),
                                 .bias = divided ? Tensor() : l.weight(Role::fc2_bias),
                                 .addend = parallel ? out : (adds ? residual : Tensor())});
  if (adds) {
    carry = {.residual = out, .branch = {}, .branch_bias = {}, .owns_residual = true};
    return;
  }
  Travelling summing = sum_rows(l.run, out);
  carry = {.residual = residual,
           .branch = arrived(l.run, summing),
           .branch_bias = divided ? branch_bias(l) : Tensor(),
           .owns_residual = false};
}

}  // namespace

void block_forward(Run& run, int64_t layer, const MicroBatch& batch, Carry& carry, BlockKept& kept,
                   bool with_output) {
  const Layer l{run, layer, batch};
  run.weights.gather(layer);
  input_norm(l, carry, kept);
  attend(l, kept);
  middle_norm(l, kept);
  expand(l, kept);
  if (with_output) contract(l, kept, carry);
  run.weights.release(layer);
}

void block_release(Run& run, Keep keep, Carry& carry, BlockKept& kept) {
  if (keep == Keep::all) return;
  ops::Pool& pool = run.pool;
  for (Tensor* t : {&kept.y1, &kept.y2, &kept.activated}) pool.give(*t);
  if (keep == Keep::selective) return;
  for (Tensor* t : {&kept.mean1, &kept.rstd1, &kept.qkv, &kept.attention, &kept.stats, &kept.mean2,
                    &kept.rstd2, &kept.pre_activation})
    pool.give(*t);
  for (Tensor* x : {&kept.x2, &kept.x1}) {
    if (x == &kept.x1 && keep == Keep::input) break;
    if (*x && x->data == carry.residual.data) {
      carry.owns_residual = true;
      *x = Tensor();
    }
    pool.give(*x);
  }
}

}  // namespace trainer
