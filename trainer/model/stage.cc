// Stage: embedding, blocks, head; and which layers are computed again.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/stage.h"

#include <algorithm>

namespace trainer {

Stage::Stage(Run& run, int64_t max_microbatches)
    : run_(run), kept_(static_cast<size_t>(max_microbatches)) {
  const Recompute& r = run.recompute;
  const bool full = r.granularity == Recompute::Granularity::full;
  const bool uniform = full && r.method == Recompute::Method::uniform;
  const int64_t end = run.place.first_layer + run.place.num_layers;
  int64_t recomputed = full && !uniform ? r.num_layers : 0;
  for (int64_t layer = run.place.first_layer; layer < end;) {
    const int64_t count = uniform ? std::min(std::max<int64_t>(r.num_layers, 1), end - layer) : 1;
    segments_.push_back({layer, count, uniform || recomputed-- > 0});
    layer += count;
  }
  for (Kept& kept : kept_) kept.blocks.resize(static_cast<size_t>(run.place.num_layers));
}

void Stage::forward(const MicroBatch& batch) {
  Kept& kept = kept_.at(static_cast<size_t>(batch.index));
  Carry carry{.residual = embedding_forward(run_, batch), .branch = {}, .owns_residual = true};
  for (const Segment& segment : segments_) {
    for (int64_t layer = segment.first; layer < segment.first + segment.count; ++layer) {
      BlockKept& block = kept.blocks[static_cast<size_t>(layer - run_.place.first_layer)];
      block_forward(run_, layer, batch, carry, block);
      Keep keep = run_.recompute.granularity == Recompute::Granularity::selective ? Keep::selective
                                                                                  : Keep::all;
      if (segment.recompute) keep = layer == segment.first ? Keep::input : Keep::nothing;
      block_release(run_, keep, carry, block);
    }
  }
  head_forward(run_, batch, carry, kept.head);
}

void Stage::recompute(const Segment& segment, const MicroBatch& batch,
                      std::vector<BlockKept>& blocks) {
  Carry carry;
  for (int64_t layer = segment.first; layer < segment.first + segment.count; ++layer) {
    BlockKept& block = blocks[static_cast<size_t>(layer - run_.place.first_layer)];
    if (layer == segment.first) carry = {.residual = block.x1, .branch = {}, .owns_residual = true};
    block_forward(run_, layer, batch, carry, block, layer + 1 < segment.first + segment.count);
  }
}

void Stage::backward(const MicroBatch& batch) {
  Kept& kept = kept_.at(static_cast<size_t>(batch.index));
  Carry carry;
  head_backward(run_, batch, carry, kept.head);
  for (size_t i = segments_.size(); i-- > 0;) {
    const Segment& segment = segments_[i];
    if (segment.recompute) recompute(segment, batch, kept.blocks);
    for (int64_t layer = segment.first + segment.count; layer-- > segment.first;)
      block_backward(run_, layer, batch, carry,
                     kept.blocks[static_cast<size_t>(layer - run_.place.first_layer)]);
  }
  embedding_backward(run_, batch, carry.residual);
}

void Stage::evaluate(const MicroBatch& batch) {
  Carry carry{.residual = embedding_forward(run_, batch), .branch = {}, .owns_residual = true};
  for (int64_t layer = run_.place.first_layer;
       layer < run_.place.first_layer + run_.place.num_layers; ++layer) {
    BlockKept block;
    block_forward(run_, layer, batch, carry, block);
    block_release(run_, Keep::nothing, carry, block);
  }
  head_evaluate(run_, batch, carry);
}

}  // namespace trainer
