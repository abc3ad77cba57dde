// Stage: embedding, blocks, head; what passes to the next stage; which layers are computed again.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/stage.h"

#include <algorithm>
#include <utility>

#include "trainer/model/layer.h"

namespace trainer {

Stage::Stage(Run& run, const Place& place, int64_t max_microbatches)
    : run_(run), place_(place), kept_(static_cast<size_t>(max_microbatches)) {
  const Recompute& r = run.recompute;
  const bool full = r.granularity == Recompute::Granularity::full;
  const bool uniform = full && r.method == Recompute::Method::uniform;
  const int64_t end = place.first_layer + place.num_layers;
  int64_t recomputed = full && !uniform ? r.num_layers : 0;
  for (int64_t layer = place.first_layer; layer < end;) {
    const int64_t count = uniform ? std::min(std::max<int64_t>(r.num_layers, 1), end - layer) : 1;
    segments_.push_back({layer, count, uniform || recomputed-- > 0});
    layer += count;
  }
  for (Kept& kept : kept_) kept.blocks.resize(static_cast<size_t>(place.num_layers));
}

/// The residual stream as it enters the chunk.
Carry Stage::begin(const MicroBatch& batch, PoolTensor input, EmbeddingKept& kept) {
  run_.place = place_;
  Carry carry;
  carry.residual = place_.has_embedding ? embedding_forward(run_, batch, kept) : std::move(input);
  return carry;
}

/// The residual stream as it leaves the chunk: the pending branch added.
PoolTensor Stage::end(const MicroBatch& batch, Carry& carry) {
  const Tensor residual = carry.residual, branch = carry.branch;
  PoolTensor out = std::move(branch && carry.residual.borrowed() ? carry.branch : carry.residual);
  if (branch) {
    const Layer l{run_, place_.first_layer + place_.num_layers - 1, batch};
    run_.ops.run(
        ops::ResidualNormForward{.y = {},
                                 .residual_out = out,
                                 .mean = {},
                                 .rstd = {},
                                 .residual = residual,
                                 .branch = branch,
                                 .branch_bias = carry.branch_bias,
                                 .weight = {},
                                 .bias = {},
                                 .dropout = l.dropout(ops::DropoutKind::mlp_output, l.layer)});
  }
  carry = Carry();
  return out;
}

PoolTensor Stage::forward(const MicroBatch& batch, PoolTensor input) {
  Kept& kept = kept_.at(static_cast<size_t>(batch.index));
  Carry carry = begin(batch, std::move(input), kept.embedding);
  for (const Segment& segment : segments_) {
    for (int64_t layer = segment.first; layer < segment.first + segment.count; ++layer) {
      BlockKept& block = kept.blocks[static_cast<size_t>(layer - place_.first_layer)];
      block_forward(run_, layer, batch, carry, block);
      Keep keep = run_.recompute.granularity == Recompute::Granularity::selective ? Keep::selective
                                                                                  : Keep::all;
      if (segment.recompute) keep = layer == segment.first ? Keep::input : Keep::nothing;
      block_release(keep, carry, block);
    }
  }
  if (!place_.has_head) return end(batch, carry);
  head_forward(run_, batch, carry, kept.head);
  return {};
}

void Stage::recompute(const Segment& segment, const MicroBatch& batch,
                      std::vector<BlockKept>& blocks) {
  Carry carry;
  for (int64_t layer = segment.first; layer < segment.first + segment.count; ++layer) {
    BlockKept& block = blocks[static_cast<size_t>(layer - place_.first_layer)];
    if (layer == segment.first) carry.residual = PoolTensor::borrow(block.x1);
    block_forward(run_, layer, batch, carry, block, layer + 1 < segment.first + segment.count);
  }
}

/// Through the sum at the end of forward, or the head.
Carry Stage::begin_backward(const MicroBatch& batch, PoolTensor doutput) {
  run_.place = place_;
  Carry carry;
  if (place_.has_head) {
    head_backward(run_, batch, carry, kept_[static_cast<size_t>(batch.index)].head);
    return carry;
  }
  carry.residual = std::move(doutput);
  const Layer l{run_, place_.first_layer + place_.num_layers - 1, batch};
  if (l.hidden_dropout() == 0) return carry;
  carry.branch = l.stream("gradient of branch");
  run_.ops.run(
      ops::ResidualNormBackward{.dresidual = carry.residual,
                                .dbranch = carry.branch,
                                .dweight = {},
                                .dbias = {},
                                .dbranch_bias = {},
                                .dy = {},
                                .dresidual_out = carry.residual,
                                .x = {},
                                .mean = {},
                                .rstd = {},
                                .weight = {},
                                .dropout = l.dropout(ops::DropoutKind::mlp_output, l.layer)});
  return carry;
}

PoolTensor Stage::backward(const MicroBatch& batch, PoolTensor doutput) {
  Kept& kept = kept_.at(static_cast<size_t>(batch.index));
  Carry carry = begin_backward(batch, std::move(doutput));
  for (size_t i = segments_.size(); i-- > 0;) {
    const Segment& segment = segments_[i];
    if (segment.recompute) recompute(segment, batch, kept.blocks);
    for (int64_t layer = segment.first + segment.count; layer-- > segment.first;)
      block_backward(run_, layer, batch, carry,
                     kept.blocks[static_cast<size_t>(layer - place_.first_layer)]);
  }
  if (!place_.has_embedding) return std::move(carry.residual);
  embedding_backward(run_, batch, std::move(carry.residual), kept.embedding);
  return {};
}

PoolTensor Stage::backward_input(const MicroBatch& batch, PoolTensor doutput) {
  run_.later = &kept_.at(static_cast<size_t>(batch.index)).later;
  PoolTensor dinput = backward(batch, std::move(doutput));
  run_.later = nullptr;
  return dinput;
}

void Stage::backward_weight(const MicroBatch& batch) {
  run_.place = place_;
  compute_later(run_, kept_.at(static_cast<size_t>(batch.index)).later);
}

PoolTensor Stage::evaluate(const MicroBatch& batch, PoolTensor input) {
  EmbeddingKept none;
  Carry carry = begin(batch, std::move(input), none);
  none = {};
  for (int64_t layer = place_.first_layer; layer < place_.first_layer + place_.num_layers;
       ++layer) {
    BlockKept block;
    block_forward(run_, layer, batch, carry, block);
    block_release(Keep::nothing, carry, block);
  }
  if (!place_.has_head) return end(batch, carry);
  head_evaluate(run_, batch, carry);
  return {};
}

}  // namespace trainer
