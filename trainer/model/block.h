// One transformer block: forward and backward as straight lines of operations.
// Not here: embeddings and head (embedding.h, head.h), the order of blocks and recompute (stage.h).
// May include: model/run.h. Shapes as in ops/layer_args.h. The residual stream between blocks is a
// Carry: the sum so far and the branch not yet added, because adding it is fused with the next
// norm.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/run.h"

namespace trainer {

/// The stream between two blocks. Forward: x = residual + dropout(branch), or residual alone when
/// branch is empty. Backward: the gradients of both; with no dropout dbranch is empty and means
/// dresidual.
struct Carry {
  Tensor residual, branch;
};

/// What a block's backward needs, in Pool memory. Recomputed tensors are empty between forward and
/// backward.
struct BlockKept {
  Tensor x1, y1, mean1, rstd1;  ///< Block input and its norm.
  Tensor qkv, attention, stats;
  Tensor x2, y2, mean2, rstd2;  ///< After attention, and its norm. Parallel residual: x2 is x1.
  Tensor pre_activation, activated;
};

/// Computes the block. Takes carry's tensors over (kept or given back) and leaves the block's
/// output in it. With `keep` == false everything is given back at once (evaluation, first pass of
/// full recompute except x1).
void block_forward(Run& run, int64_t layer, const MicroBatch& batch, Carry& carry, BlockKept& kept,
                   bool keep);
/// Gives back what Recompute::selective computes again.
void block_drop(Run& run, BlockKept& kept);
/// Everything but x1 given back: what full recompute keeps.
void block_drop_all_but_input(Run& run, BlockKept& kept);
/// Gradients of the block; carry holds the gradient of its output, then of its input. Gives `kept`
/// back.
void block_backward(Run& run, int64_t layer, const MicroBatch& batch, Carry& carry,
                    BlockKept& kept);

}  // namespace trainer
