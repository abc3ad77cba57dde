// Stage: embedding, blocks, head; what is sent to the next stage; which layers are recomputed.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/stage.h"

#include <algorithm>
#include <utility>

#include "trainer/model/layer.h"

namespace trainer {

Stage::Stage(const Recompute& r, const Place& place, int64_t max_microbatches)
    : place_(place),
      keep_(r.granularity == Recompute::Granularity::selective ? Keep::selective : Keep::all),
      kept_(static_cast<size_t>(max_microbatches)) {
  const bool full = r.granularity == Recompute::Granularity::full;
  const bool uniform = full && r.method == Recompute::Method::uniform;
  const int64_t end = place.first_layer + place.num_layers;
  int64_t recomputed = full && !uniform ? r.num_layers : 0;
  for (int64_t layer = place.first_layer; layer < end;) {
    const int64_t count = uniform ? std::min(std::max<int64_t>(r.num_layers, 1), end - layer) : 1;
    segments_.push_back({layer, count, uniform || recomputed-- > 0});
    layer += count;
  }
}

/// The residual stream as it enters the chunk.
Carry Stage::begin(const Pass& pass, PoolTensor input, EmbeddingKept& kept) {
  Carry carry;
  carry.residual = place_.has_embedding ? embedding_forward(pass, kept) : std::move(input);
  return carry;
}

/// The residual stream as it leaves the chunk: the pending branch added.
PoolTensor Stage::end(const Pass& pass, Carry& carry) {
  const Tensor residual = carry.residual, branch = carry.branch;
  PoolTensor out = std::move(branch && carry.residual.borrowed() ? carry.branch : carry.residual);
  if (branch) {
    const Layer l(pass, place_.first_layer + place_.num_layers - 1);
    pass.run.ops.run(
        ops::ResidualNormForward{.residual_out = out,
                                 .residual = residual,
                                 .branch = branch,
                                 .branch_bias = carry.branch_bias,
                                 .dropout = l.dropout(ops::DropoutKind::mlp_output, l.layer)});
  }
  carry = Carry();
  return out;
}

PoolTensor Stage::forward(const Pass& pass, PoolTensor input) {
  Kept& kept = kept_of(pass);
  kept.blocks.resize(static_cast<size_t>(place_.num_layers));
  Carry carry = begin(pass, std::move(input), kept.embedding);
  for (const Segment& segment : segments_) {
    for (int64_t layer = segment.first; layer < segment.first + segment.count; ++layer) {
      BlockKept& block = kept.blocks[static_cast<size_t>(layer - place_.first_layer)];
      block_forward(pass, layer, carry, block);
      Keep keep = keep_;
      if (segment.recompute) keep = layer == segment.first ? Keep::input : Keep::nothing;
      block_release(keep, carry, block);
    }
  }
  if (!place_.has_head) return end(pass, carry);
  head_forward(pass, carry, kept.head);
  return {};
}

void Stage::recompute(const Segment& segment, const Pass& pass, std::vector<BlockKept>& blocks) {
  Carry carry;
  for (int64_t layer = segment.first; layer < segment.first + segment.count; ++layer) {
    BlockKept& block = blocks[static_cast<size_t>(layer - place_.first_layer)];
    if (layer == segment.first) carry.residual = PoolTensor::borrow(block.x1);
    block_forward(pass, layer, carry, block, layer + 1 < segment.first + segment.count);
  }
}

/// Through the sum at the end of forward, or the head.
Carry Stage::begin_backward(const Pass& pass, PoolTensor doutput) {
  Carry carry;
  if (place_.has_head) {
    head_backward(pass, place_, carry, kept_of(pass).head);
    return carry;
  }
  carry.residual = std::move(doutput);
  const Layer l(pass, place_.first_layer + place_.num_layers - 1);
  if (l.hidden_dropout() == 0) return carry;
  carry.branch = l.stream("gradient of branch");
  pass.run.ops.run(
      ops::ResidualNormBackward{.dresidual = carry.residual,
                                .dbranch = carry.branch,
                                .dresidual_out = carry.residual,
                                .dropout = l.dropout(ops::DropoutKind::mlp_output, l.layer)});
  return carry;
}

PoolTensor Stage::backward(const Pass& pass, PoolTensor doutput) {
  Kept& kept = kept_of(pass);
  Carry carry = begin_backward(pass, std::move(doutput));
  for (size_t i = segments_.size(); i-- > 0;) {
    const Segment& segment = segments_[i];
    if (segment.recompute) recompute(segment, pass, kept.blocks);
    for (int64_t layer = segment.first + segment.count; layer-- > segment.first;)
      block_backward(pass, layer, layer == place_.first_layer, carry,
                     kept.blocks[static_cast<size_t>(layer - place_.first_layer)]);
  }
  if (!place_.has_embedding) return std::move(carry.residual);
  embedding_backward(pass, std::move(carry.residual), kept.embedding);
  return {};
}

PoolTensor Stage::backward_input(const Pass& pass, PoolTensor doutput) {
  Pass without_weights = pass;
  without_weights.later = &kept_of(pass).later;
  return backward(without_weights, std::move(doutput));
}

void Stage::backward_weight(const Pass& pass) { compute_later(pass.run, kept_of(pass).later); }

PoolTensor Stage::evaluate(const Pass& pass, PoolTensor input) {
  EmbeddingKept none;
  Carry carry = begin(pass, std::move(input), none);
  none = {};
  for (int64_t layer = place_.first_layer; layer < place_.first_layer + place_.num_layers;
       ++layer) {
    BlockKept block;
    block_forward(pass, layer, carry, block);
    block_release(Keep::nothing, carry, block);
  }
  if (!place_.has_head) return end(pass, carry);
  head_evaluate(pass, carry);
  return {};
}

}  // namespace trainer
