// One transformer block, forward and backward. Order of operations: that of Megatron-core's
// TransformerLayer (pre-norm), or GPT-NeoX's parallel residual.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/block.h"

namespace trainer {
namespace {

using ops::Activation;
using ops::Dropout;
using ops::DropoutKind;

/// A block's view of the run: shapes, weights, gradients, dropout, of one layer.
struct Layer {
  Run& run;
  int64_t layer;
  const MicroBatch& batch;

  ops::Ops& ops() const { return run.ops; }
  const ModelSpec& spec() const { return run.spec; }
  Tensor weight(Role role) const { return run.weights.get(layer, role); }
  Grads::Target grad(Role role) const { return run.grads.target(layer, role); }
  Tensor rows(const char* purpose, int64_t columns) const {
    return run.pool.take(purpose, run.model_dtype, {run.seq_length, run.micro_batch_size, columns});
  }
  Tensor statistics(const char* purpose) const {
    return run.pool.take(purpose, DType::f32, {run.seq_length, run.micro_batch_size});
  }
  bool gated() const { return spec().activation == Activation::swiglu; }
  float hidden_dropout() const { return run.training ? spec().hidden_dropout : 0.0f; }
  /// Residual additions happen in the linears' epilogues.
  bool fused() const { return hidden_dropout() == 0 && run.fuse_residual; }

  Dropout dropout(DropoutKind kind, int64_t of_layer) const {
    const bool attention = kind == DropoutKind::attention_probabilities;
    const float p = attention ? (run.training ? spec().attention_dropout : 0.0f) : hidden_dropout();
    return {.p = p,
            .seed = run.seed,
            .site = ops::dropout_site(of_layer, kind),
            .first_sample = batch.first_sample,
            .state = run.state};
  }
  ops::AttentionShape attention_shape() const {
    return {.num_attention_heads = spec().num_attention_heads,
            .num_query_groups = spec().num_query_groups,
            .kv_channels = spec().kv_channels,
            .softmax_scale = softmax_scale(spec())};
  }
  void rotate(const Tensor& qkv, bool inverse) const {
    if (spec().rotary_dim() == 0) return;
    ops().rotary({.qkv = qkv,
                  .positions = batch.positions,
                  .cosine = run.cosine,
                  .sine = run.sine,
                  .num_attention_heads = spec().num_attention_heads,
                  .num_query_groups = spec().num_query_groups,
                  .inverse = inverse});
  }
};

/// y = norm(x) once more, or for the first time when x has no branch to add.
void norm_alone(const Layer& l, const Tensor& x, Role weight, Role bias, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  if (!y) y = l.rows("norm outputs", l.spec().hidden_size);
  if (!rstd) {
    rstd = l.statistics("norm statistics");
    if (l.spec().norm == ops::Norm::layernorm) mean = l.statistics("norm statistics");
  }
  l.ops().residual_norm_forward({.norm = l.spec().norm,
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

/// x1 and y1 from the carry.
void input_norm(const Layer& l, Carry& carry, BlockKept& k) {
  if (!carry.branch) {
    k.x1 = carry.residual;
    norm_alone(l, k.x1, Role::input_norm_weight, Role::input_norm_bias, k.y1, k.mean1, k.rstd1);
    carry = Carry();
    return;
  }
  k.x1 = carry.owns_residual ? carry.residual : l.rows("residual stream", l.spec().hidden_size);
  k.y1 = carry.branch;
  k.rstd1 = l.statistics("norm statistics");
  if (l.spec().norm == ops::Norm::layernorm) k.mean1 = l.statistics("norm statistics");
  l.ops().residual_norm_forward({.norm = l.spec().norm,
                                 .eps = l.spec().norm_epsilon,
                                 .y = k.y1,
                                 .residual_out = k.x1,
                                 .mean = k.mean1,
                                 .rstd = k.rstd1,
                                 .residual = carry.residual,
                                 .branch = carry.branch,
                                 .branch_bias = {},
                                 .weight = l.weight(Role::input_norm_weight),
                                 .bias = l.weight(Role::input_norm_bias),
                                 .dropout = l.dropout(DropoutKind::mlp_output, l.layer - 1)});
  carry = Carry();
}

void attend(const Layer& l, BlockKept& k) {
  const ModelSpec& spec = l.spec();
  k.qkv = l.rows("qkv", spec.qkv_size());
  l.ops().linear_forward({.y = k.qkv,
                          .pre_activation = {},
                          .x = k.y1,
                          .weight = l.weight(Role::qkv_weight),
                          .bias = l.weight(Role::qkv_bias),
                          .addend = {}});
  l.rotate(k.qkv, false);
  k.attention = l.rows("attention outputs", spec.num_attention_heads * spec.kv_channels);
  k.stats = l.run.pool.take("attention statistics", DType::f32,
                            {l.run.micro_batch_size, spec.num_attention_heads, l.run.seq_length});
  l.ops().attention_forward({.shape = l.attention_shape(),
                             .out = k.attention,
                             .stats = k.stats,
                             .qkv = k.qkv,
                             .first_key = l.batch.first_key,
                             .dropout = l.dropout(DropoutKind::attention_probabilities, l.layer)});
}

/// out = attention proj^T + bias (+ addend).
void project(const Layer& l, const BlockKept& k, const Tensor& out, const Tensor& addend) {
  l.ops().linear_forward({.y = out,
                          .pre_activation = {},
                          .x = k.attention,
                          .weight = l.weight(Role::proj_weight),
                          .bias = l.weight(Role::proj_bias),
                          .addend = addend});
}

/// x2 and y2 from attention.
void middle_norm(const Layer& l, BlockKept& k) {
  const int64_t h = l.spec().hidden_size;
  if (l.spec().parallel_residual) {
    norm_alone(l, k.x1, Role::mlp_norm_weight, Role::mlp_norm_bias, k.y2, k.mean2, k.rstd2);
    return;
  }
  k.x2 = l.rows("residual stream", h);
  if (l.fused()) {
    project(l, k, k.x2, k.x1);
    norm_alone(l, k.x2, Role::mlp_norm_weight, Role::mlp_norm_bias, k.y2, k.mean2, k.rstd2);
    return;
  }
  k.y2 = l.rows("norm outputs", h);
  project(l, k, k.y2, {});
  k.rstd2 = l.statistics("norm statistics");
  if (l.spec().norm == ops::Norm::layernorm) k.mean2 = l.statistics("norm statistics");
  l.ops().residual_norm_forward({.norm = l.spec().norm,
                                 .eps = l.spec().norm_epsilon,
                                 .y = k.y2,
                                 .residual_out = k.x2,
                                 .mean = k.mean2,
                                 .rstd = k.rstd2,
                                 .residual = k.x1,
                                 .branch = k.y2,
                                 .branch_bias = {},
                                 .weight = l.weight(Role::mlp_norm_weight),
                                 .bias = l.weight(Role::mlp_norm_bias),
                                 .dropout = l.dropout(DropoutKind::attention_output, l.layer)});
}

void expand(const Layer& l, BlockKept& k) {
  k.pre_activation = l.rows("mlp before activation", l.spec().fc1_size());
  k.activated = l.rows("mlp activated", l.spec().ffn_hidden_size);
  if (!l.gated()) {
    l.ops().linear_forward({.y = k.activated,
                            .pre_activation = k.pre_activation,
                            .x = k.y2,
                            .weight = l.weight(Role::fc1_weight),
                            .bias = l.weight(Role::fc1_bias),
                            .addend = {},
                            .activation = l.spec().activation});
    return;
  }
  l.ops().linear_forward({.y = k.pre_activation,
                          .pre_activation = {},
                          .x = k.y2,
                          .weight = l.weight(Role::fc1_weight),
                          .bias = l.weight(Role::fc1_bias),
                          .addend = {}});
  l.ops().activation_forward(
      {.y = k.activated, .x = k.pre_activation, .activation = l.spec().activation});
}

/// The block's output into carry.
void contract(const Layer& l, const BlockKept& k, Carry& carry) {
  const int64_t h = l.spec().hidden_size;
  Tensor out = l.rows(l.fused() ? "residual stream" : "branch", h);
  Tensor addend;
  if (l.spec().parallel_residual) {
    project(l, k, out, k.x1);
    addend = out;
  } else if (l.fused()) {
    addend = k.x2;
  }
  l.ops().linear_forward({.y = out,
                          .pre_activation = {},
                          .x = k.activated,
                          .weight = l.weight(Role::fc2_weight),
                          .bias = l.weight(Role::fc2_bias),
                          .addend = addend});
  if (addend) {
    carry = {.residual = out, .branch = {}, .owns_residual = true};
  } else {
    carry = {.residual = k.x2, .branch = out, .owns_residual = false};
  }
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
  if (kept.x2 && kept.x2.data == carry.residual.data) {
    carry.owns_residual = true;
    kept.x2 = Tensor();
  }
  pool.give(kept.x2);
  if (keep == Keep::nothing) pool.give(kept.x1);
}

namespace {

/// Gradients of one linear's weight and bias.
void weight_gradient(const Layer& l, Role weight, Role bias, const Tensor& dy, const Tensor& x) {
  const Grads::Target w = l.grad(weight);
  const Grads::Target b = bias == weight ? Grads::Target() : l.grad(bias);
  l.ops().linear_backward_weight(
      {.dweight = w.tensor, .dbias = b.tensor, .dy = dy, .x = x, .accumulate = w.accumulate});
}

/// dx (R, columns of the weight) = dy weight.
Tensor input_gradient(const Layer& l, Role weight, const char* purpose, const Tensor& dy) {
  const Tensor w = l.weight(weight);
  const Tensor dx = l.rows(purpose, w.shape[1]);
  l.ops().linear_backward_input(
      {.dx = dx, .dy = dy, .weight = w, .pre_activation = {}, .dbias = {}, .addend = {}});
  return dx;
}

/// Through fc2, activation and fc1: from the branch's gradient to y2's.
Tensor mlp_backward(const Layer& l, BlockKept& k, const Tensor& dbranch, bool bias_done) {
  ops::Pool& pool = l.run.pool;
  Tensor dpre;
  if (l.gated()) {
    Tensor dactivated = input_gradient(l, Role::fc2_weight, "gradient of activated", dbranch);
    dpre = l.rows("gradient before activation", l.spec().fc1_size());
    l.ops().activation_backward(
        {.dx = dpre, .dy = dactivated, .x = k.pre_activation, .activation = l.spec().activation});
    pool.give(dactivated);
  } else {
    dpre = l.rows("gradient before activation", l.spec().fc1_size());
    const Grads::Target bias = l.grad(Role::fc1_bias);
    l.ops().linear_backward_input({.dx = dpre,
                                   .dy = dbranch,
                                   .weight = l.weight(Role::fc2_weight),
                                   .pre_activation = k.pre_activation,
                                   .activation = l.spec().activation,
                                   .dbias = bias.tensor,
                                   .accumulate_bias = bias.accumulate,
                                   .addend = {}});
  }
  pool.give(k.pre_activation);
  weight_gradient(l, Role::fc2_weight, bias_done ? Role::fc2_weight : Role::fc2_bias, dbranch,
                  k.activated);
  pool.give(k.activated);
  const Tensor dy2 = input_gradient(l, Role::fc1_weight, "gradient of norm outputs", dpre);
  weight_gradient(l, Role::fc1_weight, l.gated() ? Role::fc1_bias : Role::fc1_weight, dpre, k.y2);
  pool.give(dpre);
  pool.give(k.y2);
  return dy2;
}

/// Through proj, attention and qkv: from the branch's gradient to y1's.
Tensor attention_backward(const Layer& l, BlockKept& k, const Tensor& dbranch) {
  ops::Pool& pool = l.run.pool;
  Tensor dattention = input_gradient(l, Role::proj_weight, "gradient of attention", dbranch);
  // Without parallel residual the norm above has summed the bias' gradient on its way.
  weight_gradient(l, Role::proj_weight,
                  l.spec().parallel_residual ? Role::proj_bias : Role::proj_weight, dbranch,
                  k.attention);
  Tensor dqkv = l.rows("gradient of qkv", l.spec().qkv_size());
  l.ops().attention_backward({.shape = l.attention_shape(),
                              .dqkv = dqkv,
                              .dout = dattention,
                              .out = k.attention,
                              .stats = k.stats,
                              .qkv = k.qkv,
                              .first_key = l.batch.first_key,
                              .dropout = l.dropout(DropoutKind::attention_probabilities, l.layer)});
  for (Tensor* t : {&dattention, &k.attention, &k.stats, &k.qkv}) pool.give(*t);
  l.rotate(dqkv, true);
  const Tensor dy1 = input_gradient(l, Role::qkv_weight, "gradient of norm outputs", dqkv);
  weight_gradient(l, Role::qkv_weight, Role::qkv_bias, dqkv, k.y1);
  pool.give(dqkv);
  pool.give(k.y1);
  return dy1;
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

/// Adds a norm's gradient to `dresidual` in place. With dropout on the branch that was added
/// before this norm, dy becomes that branch's gradient; else dy is given back.
void norm_backward(const Layer& l, const NormBefore& n, const Tensor& dresidual, Tensor& dy) {
  const Grads::Target w = l.grad(n.weight), b = l.grad(n.bias);
  const bool dropped = n.branch_dropout.p > 0;
  l.ops().residual_norm_backward({.norm = l.spec().norm,
                                  .dresidual = dresidual,
                                  .dbranch = dropped ? dy : Tensor(),
                                  .dweight = w.tensor,
                                  .dbias = b.tensor,
                                  .dbranch_bias = n.branch_bias.tensor,
                                  .dy = dy,
                                  .dresidual_out = dresidual,
                                  .x = n.x,
                                  .mean = n.mean,
                                  .rstd = n.rstd,
                                  .weight = l.weight(n.weight),
                                  .accumulate = w.accumulate,
                                  .dropout = n.branch_dropout});
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
    k.activated = l.rows("mlp activated", l.spec().ffn_hidden_size);
    l.ops().activation_forward(
        {.y = k.activated, .x = k.pre_activation, .activation = l.spec().activation});
  }
}

}  // namespace

void block_backward(Run& run, int64_t layer, const MicroBatch& batch, Carry& carry,
                    BlockKept& kept) {
  const Layer l{run, layer, batch};
  run.weights.gather(layer);
  recompute_dropped(l, kept);
  const Tensor dresidual = carry.residual;
  Tensor dy2 =
      mlp_backward(l, kept, carry.branch ? carry.branch : dresidual, carry.branch_bias_done);
  run.pool.give(carry.branch);
  Tensor dy1;
  if (l.spec().parallel_residual) {
    // Both branches take the gradient of the sum, so it must not change before both have read it.
    dy1 = attention_backward(l, kept, dresidual);
    norm_backward(
        l, {Role::mlp_norm_weight, Role::mlp_norm_bias, kept.x1, kept.mean2, kept.rstd2, {}, {}},
        dresidual, dy2);
  } else {
    norm_backward(l,
                  {Role::mlp_norm_weight, Role::mlp_norm_bias, kept.x2, kept.mean2, kept.rstd2,
                   l.dropout(DropoutKind::attention_output, layer), l.grad(Role::proj_bias)},
                  dresidual, dy2);
    dy1 = attention_backward(l, kept, dy2 ? dy2 : dresidual);
    run.pool.give(dy2);
  }
  // The branch that was added before norm 1 is the mlp's of the layer before, when this rank holds
  // it.
  const bool branch_here = layer > run.place.first_layer;
  const Dropout dropout = layer > 0 ? l.dropout(DropoutKind::mlp_output, layer - 1) : Dropout();
  norm_backward(
      l,
      {Role::input_norm_weight, Role::input_norm_bias, kept.x1, kept.mean1, kept.rstd1, dropout,
       branch_here ? run.grads.target(layer - 1, Role::fc2_bias) : Grads::Target()},
      dresidual, dy1);
  carry = {
      .residual = dresidual, .branch = dy1, .owns_residual = true, .branch_bias_done = branch_here};
  for (Tensor* t : {&kept.x1, &kept.mean1, &kept.rstd1, &kept.x2, &kept.mean2, &kept.rstd2})
    run.pool.give(*t);
  run.weights.release(layer);
  run.grads.layer_done(layer);
}

}  // namespace trainer
