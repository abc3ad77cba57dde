// One transformer block's forward. Order of operations: that of Megatron-core's TransformerLayer
// (pre-norm), GPT-NeoX's parallel residual, or norms after the branches (ModelSpec::post_norm).
// Tensor parallel: the biases of proj and fc2 are added by the next norm, after the sum over ranks.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/block.h"

#include <initializer_list>
#include <utility>

#include "trainer/model/layer.h"
#include "trainer/model/parallel_linear.h"

namespace trainer {

using ops::DropoutKind;

namespace {

/// x1 and y1 from the carry; y1 is x1 where the block has no input norm.
void input_norm(const Layer& l, Carry& carry, BlockKept& k) {
  if (l.has_input_norm()) return norm_carry(l, kInputNorm, carry, k.x1, {k.y1, k.mean1, k.rstd1});
  if (!k.x1) k.x1 = std::move(carry.residual);
  k.y1 = PoolTensor::borrow(k.x1);
  carry = Carry();
}

void attend(const Layer& l, BlockKept& k) {
  PoolTensor& made = l.spec().qk_norm ? k.raw_qkv : k.qkv;
  made = l.rows("qkv", l.qkv_size());
  column_parallel_forward(l, kQkv, {.y = made, .x = input_of(l, k, Linear::qkv)});
  if (k.quantized_of(Linear::qkv) && !l.spec().post_norm) k.y1.reset();
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

/// x2 and y2 from attention's output.
void middle_norm(const Layer& l, BlockKept& k) {
  const NormOutput out{k.y2, k.mean2, k.rstd2};
  if (l.spec().parallel_residual) return norm_forward(l, kMlpNorm, {.residual = k.x1}, out);
  const Tensor& residual = l.spec().post_norm ? k.y1 : k.x1;
  k.x2 = l.stream("residual stream");
  if (l.fused()) {
    row_parallel_forward(l, kProj, k.x2, input_of(l, k, Linear::proj), residual);
    return norm_forward(l, kMlpNorm, {.residual = k.x2}, out);
  }
  PoolTensor partial = l.rows("norm outputs", l.spec().hidden_size);
  row_parallel_forward(l, kProj, partial, input_of(l, k, Linear::proj), {});
  k.y2 = arrived(l.run, sum_rows(l.run, std::move(partial)));
  norm_forward(l, kMlpNorm,
               {.residual = residual,
                .sum = k.x2,
                .branch = k.y2,
                .branch_bias = l.tensor_parallel() ? l.weight(Role::proj_bias) : Tensor(),
                .dropout = l.dropout(DropoutKind::attention_output, l.layer)},
               out);
}

void expand(const Layer& l, BlockKept& k) {
  k.pre_activation = l.rows("mlp before activation", l.fc1_size());
  if (!l.fp8_weight_gradients()) k.activated = l.rows("mlp activated", l.ffn_size());
  const LinearInput y2 = input_of(l, k, Linear::fc1);
  if (l.fp8() || l.gated()) {
    column_parallel_forward(l, kFc1, {.y = k.pre_activation, .x = y2});
    if (k.quantized_of(Linear::fc1) && !l.spec().post_norm) k.y2.reset();
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

/// The sum of the biases of the linears whose outputs make up the branch; a copy, because the next
/// layer's norm adds it.
PoolTensor branch_bias(const Layer& l) {
  const Tensor fc2 = l.weight(Role::fc2_bias);
  const Tensor proj = l.spec().parallel_residual ? l.weight(Role::proj_bias) : Tensor();
  if (!fc2 && !proj) return {};
  PoolTensor bias = l.run.pool.take("branch bias", l.run.model_dtype, {l.spec().hidden_size});
  l.ops().run(ops::Copy{.dst = bias, .src = fc2 ? fc2 : proj});
  if (fc2 && proj) l.ops().run(ops::Add{.dst = bias, .a = proj});
  return bias;
}

/// Puts the block's output into carry. With parallel residual both branches are one sum.
void contract(const Layer& l, BlockKept& k, Carry& carry) {
  const bool parallel = l.spec().parallel_residual, divided = l.tensor_parallel();
  PoolTensor& residual = parallel ? k.x1 : l.spec().post_norm ? k.y2 : k.x2;
  const bool adds = (parallel || l.fused()) && !divided;
  PoolTensor out = l.rows(adds ? "residual stream" : "branch", l.spec().hidden_size);
  Tensor addend = adds ? residual.get() : Tensor();
  if (parallel) {
    row_parallel_forward(l, kProj, out, input_of(l, k, Linear::proj), addend);
    addend = out;
  }
  row_parallel_forward(l, kFc2, out, input_of(l, k, Linear::fc2), addend);
  if (adds) {
    carry = {.residual = std::move(out)};
    return;
  }
  carry = {.residual = PoolTensor::borrow(residual),
           .lender = &residual,
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
  const auto release = [&](std::initializer_list<PoolTensor*> tensors) {
    for (PoolTensor* t : tensors) {
      if (carry.lender == t) {
        carry.residual = std::move(*t);
        carry.lender = nullptr;
      }
      t->reset();
    }
  };
  if (keep == Keep::all) return;
  release({&kept.y1, &kept.y2, &kept.activated});
  kept.quantized = {};
  if (kept.raw_qkv) release({&kept.qkv});
  if (keep == Keep::selective) return;
  release({&kept.mean1, &kept.rstd1, &kept.raw_qkv, &kept.head_mean, &kept.head_rstd, &kept.qkv,
           &kept.attention, &kept.stats, &kept.x2, &kept.mean2, &kept.rstd2, &kept.pre_activation});
  if (keep == Keep::nothing) release({&kept.x1});
}

}  // namespace trainer
