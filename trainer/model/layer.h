// Layer: one block's view of a pass (or the head's, which counts as the layer after the last): this
// rank's shapes, weights, gradients, dropout, norms. Not here: attention and MLP (block.cc,
// block_backward.cc). May include: model/block.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/block.h"

namespace trainer {

/// See the room card. "stream": this rank's rows of the residual stream (S/tp with sequence
/// parallelism); "rows": all S rows, as linears and attention see them.
struct Layer {
  const Pass& pass;
  const Run& run;
  int64_t layer;

  Layer(const Pass& of, int64_t number) : pass(of), run(of.run), layer(number) {}

  ops::Ops& ops() const { return run.ops; }
  const ModelSpec& spec() const { return run.spec; }
  Tensor weight(Role role) const { return run.weights.get(layer, role); }
  Grads::Target grad(Role role) const { return run.grads.target(layer, role); }

  // This rank's part of the model.
  int64_t heads() const { return spec().num_attention_heads / run.tensor_size(); }
  int64_t groups() const { return spec().num_query_groups / run.tensor_size(); }
  int64_t qkv_size() const { return spec().qkv_size() / run.tensor_size(); }
  int64_t fc1_size() const { return spec().fc1_size() / run.tensor_size(); }
  int64_t ffn_size() const { return spec().ffn_hidden_size / run.tensor_size(); }
  bool tensor_parallel() const { return run.tensor_size() > 1; }

  PoolTensor rows(const char* purpose, int64_t columns) const {
    return run.pool.take(purpose, run.model_dtype, {run.seq_length, run.micro_batch_size, columns});
  }
  PoolTensor stream(const char* purpose) const {
    return run.pool.take(purpose, run.model_dtype,
                         {run.stream_length(), run.micro_batch_size, spec().hidden_size});
  }
  PoolTensor statistics() const {
    return run.pool.take("norm statistics", DType::f32,
                         {run.stream_length(), run.micro_batch_size});
  }
  /// Whether this layer's linears compute in FP8, and the gradients of their weights too.
  bool fp8() const { return run.fp8 != nullptr && run.fp8->covers(layer); }
  bool fp8_weight_gradients() const { return fp8() && run.fp8->options().weight_gradients; }
  /// Whether the norms before qkv and fc1 leave only their statistics, and the linears apply them
  /// while they round the stream. Not where something else reads a norm's output: the stream
  /// (post_norm), other ranks (sequence parallel), weight gradients in the model dtype.
  bool quantizes_norms() const {
    return run.fuse_norms && fp8_weight_gradients() && !run.sequence_parallel && !spec().post_norm;
  }
  PoolTensor head_statistics() const {
    return run.pool.take("norm statistics", DType::f32,
                         {run.seq_length, run.micro_batch_size, heads() + groups()});
  }
  bool gated() const { return spec().gated(); }
  bool has_input_norm() const { return spec().has_input_norm(layer); }
  float hidden_dropout() const { return pass.training ? spec().hidden_dropout : 0.0f; }
  /// Residual additions happen in the linears' epilogues.
  bool fused() const { return hidden_dropout() == 0 && run.fuse_residual && !tensor_parallel(); }

  ops::Dropout dropout(ops::DropoutKind kind, int64_t of_layer) const {
    const bool attention = kind == ops::DropoutKind::attention_probabilities;
    const bool all_rows = attention || kind == ops::DropoutKind::embedding;
    const float p =
        attention ? (pass.training ? spec().attention_dropout : 0.0f) : hidden_dropout();
    return {.p = p,
            .seed = run.seed,
            .site = ops::dropout_site(of_layer, kind),
            .first_position = all_rows ? 0 : run.first_position(),
            .first_sample = pass.batch.first_sample,
            .first_head = attention ? heads() * run.tensor_rank() : 0,
            .state = pass.state};
  }
  ops::AttentionShape attention_shape() const {
    return {.num_attention_heads = heads(),
            .num_query_groups = groups(),
            .kv_channels = spec().kv_channels,
            .softmax_scale = softmax_scale(spec())};
  }
  ops::HeadNorm head_norm(const BlockKept& k) const {
    return {.norm = spec().norm,
            .num_attention_heads = heads(),
            .num_query_groups = groups(),
            .x = k.raw_qkv,
            .mean = k.head_mean,
            .rstd = k.head_rstd,
            .q_weight = weight(Role::q_norm_weight),
            .k_weight = weight(Role::k_norm_weight)};
  }
  void rotate(const Tensor& qkv, bool inverse) const {
    if (spec().rotary_dim() == 0) return;
    ops().run(ops::Rotary{.qkv = qkv,
                          .positions = pass.batch.positions,
                          .cosine = run.cosine,
                          .sine = run.sine,
                          .num_attention_heads = heads(),
                          .num_query_groups = groups(),
                          .inverse = inverse});
  }
};

/// A norm's parameters.
struct NormRoles {
  Role weight, bias;
};
inline constexpr NormRoles kInputNorm{Role::input_norm_weight, Role::input_norm_bias};
inline constexpr NormRoles kMlpNorm{Role::mlp_norm_weight, Role::mlp_norm_bias};
inline constexpr NormRoles kFinalNorm{Role::final_norm_weight, Role::final_norm_bias};

/// A norm's input: residual; with a branch, residual + dropout(branch + branch_bias), which is
/// stored in `sum`.
struct NormInput {
  Tensor residual;
  Tensor sum = {}, branch = {}, branch_bias = {};
  ops::Dropout dropout = {};
};
/// A norm's output; empty members are allocated. Where linears apply the norm (quantizes_norms), y
/// is not written: it stays empty, or the branch's memory, with nothing in it that is read.
struct NormOutput {
  PoolTensor &y, &mean, &rstd;
};
void norm_forward(const Layer& l, NormRoles roles, const NormInput& in, const NormOutput& out);
/// The norm of `carry`'s content, which is stored in x. Empties carry. If x exists already, its
/// norm is computed again.
void norm_carry(const Layer& l, NormRoles roles, Carry& carry, PoolTensor& x,
                const NormOutput& out);

/// A norm as its backward sees it.
struct NormKept {
  NormRoles roles;
  const Tensor &x, &mean, &rstd;
  /// The dropout of the branch that was added before this norm, and where the bias gradient of that
  /// branch's linear goes.
  ops::Dropout branch_dropout = {};
  Grads::Target branch_bias = {};
};
/// From the gradient of a norm's output, dy, to that of its input, in `dresidual`. Before,
/// `dresidual` has the residual's gradient: what bypasses the norm or, with post_norm, another part
/// of dy; empty if there is none. In place unless a later product reads the old value. With dropout
/// on the branch that was added before this norm, dy becomes that branch's gradient; otherwise it
/// is released.
void norm_backward(const Layer& l, const NormKept& n, PoolTensor& dresidual, PoolTensor& dy);

/// k.qkv from k.raw_qkv: norm and rotation of q and k heads, in forward or when recomputed.
void norm_heads(const Layer& l, BlockKept& k);

}  // namespace trainer
