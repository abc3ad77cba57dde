// One transformer block's forward. Order of operations: that of Megatron-core's TransformerLayer
// (pre-norm), or GPT-NeoX's parallel residual. Tensor parallel: the biases of proj and fc2 are
// added by the next norm, after the sum over ranks.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/block.h"

#include <utility>

#include "trainer/model/layer.h"
#include "trainer/model/parallel_linear.h"

namespace trainer {

using ops::Dropout;
using ops::DropoutKind;

void norm_alone(const Layer& l, const Tensor& x, Role weight, Role bias, PoolTensor& y,
                PoolTensor& mean, PoolTensor& rstd) {
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

namespace {

/// x1 and y1 from the carry.
void input_norm(const Layer& l, Carry& carry, BlockKept& k) {
  if (!carry.branch) {
    if (!k.x1) k.x1 = std::move(carry.residual);  // Else it is computed again from x1.
    norm_alone(l, k.x1, Role::input_norm_weight, Role::input_norm_bias, k.y1, k.mean1, k.rstd1);
    carry = Carry();
    return;
  }
  // In place, unless the block before keeps the sum.
  const Tensor residual = carry.residual, branch = carry.branch;
  k.x1 = carry.residual.borrowed() ? l.stream("residual stream") : std::move(carry.residual);
  k.y1 = std::move(carry.branch);
  k.rstd1 = l.statistics();
  if (l.spec().norm == ops::Norm::layernorm) k.mean1 = l.statistics();
  l.ops().run(ops::ResidualNormForward{.norm = l.spec().norm,
                                       .eps = l.spec().norm_epsilon,
                                       .y = k.y1,
                                       .residual_out = k.x1,
                                       .mean = k.mean1,
                                       .rstd = k.rstd1,
                                       .residual = residual,
                                       .branch = branch,
                                       .branch_bias = carry.branch_bias,
                                       .weight = l.weight(Role::input_norm_weight),
                                       .bias = l.weight(Role::input_norm_bias),
                                       .dropout = l.dropout(DropoutKind::mlp_output, l.layer - 1)});
  carry = Carry();
}

void attend(const Layer& l, BlockKept& k) {
  PoolTensor& made = l.spec().qk_norm ? k.raw_qkv : k.qkv;
  made = l.rows("qkv", l.qkv_size());
  column_parallel_forward(l, kQkv,
                          {.y = made, .pre_activation = {}, .x = input_of(l, k, Linear::qkv)});
  if (k.quantized_of(Linear::qkv)) k.y1.reset();
  if (l.spec().qk_norm)
    norm_heads(l, k);
  else
    l.rotate(k.qkv, false);
  k.attention = l.rows("attention outputs", l.heads() * l.spec().kv_channels);
  k.stats = l.run.pool.take("attention statistics", DType::f32,
                            {l.run.micro_batch_size, l.heads(), l.run.seq_length});
  l.ops().run(
      ops::AttentionForward{.shape = l.attention_shape(),
                            .out = k.attention,
                            .stats = k.stats,
                            .qkv = k.qkv,
                            .first_key = l.pass.batch.first_key,
                            .dropout = l.dropout(DropoutKind::attention_probabilities, l.layer)});
}

/// x2 and y2 from attention.
void middle_norm(const Layer& l, BlockKept& k) {
  if (l.spec().parallel_residual) {
    norm_alone(l, k.x1, Role::mlp_norm_weight, Role::mlp_norm_bias, k.y2, k.mean2, k.rstd2);
    return;
  }
  k.x2 = l.stream("residual stream");
  if (l.fused()) {
    row_parallel_forward(l, kProj, k.x2, input_of(l, k, Linear::proj), k.x1);
    norm_alone(l, k.x2, Role::mlp_norm_weight, Role::mlp_norm_bias, k.y2, k.mean2, k.rstd2);
    return;
  }
  PoolTensor partial = l.rows("norm outputs", l.spec().hidden_size);
  row_parallel_forward(l, kProj, partial, input_of(l, k, Linear::proj), {});
  k.y2 = arrived(l.run, sum_rows(l.run, std::move(partial)));
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
  if (!l.fp8_weight_gradients()) k.activated = l.rows("mlp activated", l.ffn_size());
  const LinearInput y2 = input_of(l, k, Linear::fc1);
  if (l.fp8() || l.gated()) {
    column_parallel_forward(l, kFc1, {.y = k.pre_activation, .pre_activation = {}, .x = y2});
    if (k.quantized_of(Linear::fc1)) k.y2.reset();
    if (!k.activated) return;
    l.ops().run(ops::ActivationForward{
        .y = k.activated, .x = k.pre_activation, .activation = l.spec().activation});
    return;
  }
  column_parallel_forward(l, kFc1,
                          {.y = k.activated,
                           .pre_activation = k.pre_activation,
                           .x = y2,
                           .activation = l.spec().activation});
}

/// The biases of the linears that the branch is summed from, copied, since the norm that adds them
/// belongs to the next layer.
PoolTensor branch_bias(const Layer& l) {
  const Tensor fc2 = l.weight(Role::fc2_bias);
  const Tensor proj = l.spec().parallel_residual ? l.weight(Role::proj_bias) : Tensor();
  if (!fc2 && !proj) return {};
  PoolTensor bias = l.run.pool.take("branch bias", l.run.model_dtype, {l.spec().hidden_size});
  l.ops().run(ops::Copy{.dst = bias, .src = fc2 ? fc2 : proj});
  if (fc2 && proj) l.ops().run(ops::Add{.dst = bias, .a = proj});
  return bias;
}

/// The block's output into carry. With parallel residual both branches are one sum.
void contract(const Layer& l, BlockKept& k, Carry& carry) {
  const bool parallel = l.spec().parallel_residual, divided = l.tensor_parallel();
  const Tensor& residual = parallel ? k.x1 : k.x2;
  const bool adds = (parallel || l.fused()) && !divided;
  PoolTensor out = l.rows(adds ? "residual stream" : "branch", l.spec().hidden_size);
  Tensor addend = adds ? residual : Tensor();
  if (parallel) {
    row_parallel_forward(l, kProj, out, input_of(l, k, Linear::proj), addend);
    addend = out;
  }
  row_parallel_forward(l, kFc2, out, input_of(l, k, Linear::fc2), addend);
  if (adds) {
    carry = {.residual = std::move(out), .branch = {}, .branch_bias = {}};
    return;
  }
  carry = {.residual = PoolTensor::borrow(residual),
           .branch = arrived(l.run, sum_rows(l.run, std::move(out))),
           .branch_bias = divided ? branch_bias(l) : PoolTensor()};
}

}  // namespace

void block_forward(const Pass& pass, int64_t layer, Carry& carry, BlockKept& kept,
                   bool with_output) {
  const Layer l(pass, layer);
  l.run.weights.gather(layer);
  input_norm(l, carry, kept);
  attend(l, kept);
  middle_norm(l, kept);
  expand(l, kept);
  if (with_output) contract(l, kept, carry);
  l.run.weights.release(layer);
}

void block_release(Keep keep, Carry& carry, BlockKept& kept) {
  if (keep == Keep::all) return;
  for (PoolTensor* t : {&kept.y1, &kept.y2, &kept.activated}) t->reset();
  kept.quantized = {};
  if (kept.raw_qkv) kept.qkv.reset();
  if (keep == Keep::selective) return;
  for (PoolTensor* t :
       {&kept.mean1, &kept.rstd1, &kept.raw_qkv, &kept.head_mean, &kept.head_rstd, &kept.qkv,
        &kept.attention, &kept.stats, &kept.mean2, &kept.rstd2, &kept.pre_activation})
    t->reset();
  // What carry borrows is x2, or x1 where there is none.
  if (keep == Keep::nothing && carry.residual.borrowed() && !kept.x2)
    carry.residual = std::move(kept.x1);
  else if (carry.residual.borrowed() && kept.x2)
    carry.residual = std::move(kept.x2);
  kept.x2.reset();
  if (keep == Keep::nothing) kept.x1.reset();
}

}  // namespace trainer
