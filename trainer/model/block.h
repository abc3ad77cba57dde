// One transformer block: forward and backward as straight lines of operations.
// Not here: embeddings and head (head.h), the order of blocks and recompute (stage.h).
// May include: model/run.h. Letters as in ops/operation.h. The residual stream between blocks is a
// Carry: the sum so far and the branch not yet added, because adding it is fused with the next
// norm.
//
// SPDX-License-Identifier: MIT
#pragma once

#include "trainer/model/run.h"

namespace trainer {

/// The stream between two blocks. Forward: x = residual + dropout(branch), or residual alone when
/// branch is empty. Backward: the gradients of both; an empty branch means it equals residual's.
struct Carry {
  Tensor residual, branch;
  /// Forward, tensor parallel: the bias of the linear that made branch, in Pool memory, added after
  /// the sum over ranks.
  Tensor branch_bias;
  /// Whether the one who takes the carry over must give `residual` back to the Pool: false while
  /// the block before keeps it.
  bool owns_residual = true;
  /// Backward: the bias of the linear that made the branch has its gradient already, from the norm
  /// above.
  bool branch_bias_done = false;
};

/// What a block's backward needs, in Pool memory. Dropped tensors are empty until recomputed.
struct BlockKept {
  Tensor x1, y1, mean1, rstd1;  ///< Block input and its norm.
  Tensor qkv, attention, stats;
  Tensor x2, y2, mean2,
      rstd2;  ///< After attention, and its norm; parallel residual: x2 stays empty.
  Tensor pre_activation, activated;  ///< Around the activation of the mlp.
};

/// What stays of a block after its forward.
enum class Keep : uint8_t {
  all,
  selective,  ///< Without norm and activation outputs.
  input,      ///< x1 alone.
  nothing,
};

/// Computes the block. Takes carry over and leaves the block's output in it. Without `with_output`
/// (recompute of the last layer of a segment) the last linear is left out and carry ends empty.
void block_forward(Run& run, int64_t layer, const MicroBatch& batch, Carry& carry, BlockKept& kept,
                   bool with_output = true);
/// Gives back what is not to be kept; `carry` is the output of this block, or empty.
void block_release(Run& run, Keep keep, Carry& carry, BlockKept& kept);
/// Gradients of the block, once Keep::selective's losses are computed again; carry holds the
/// gradient of its output, then of its input. Gives all of `kept` back. With run.later the products
/// of weights' gradients are put there, with the tensors that they read.
void block_backward(Run& run, int64_t layer, const MicroBatch& batch, Carry& carry,
                    BlockKept& kept);

/// Computes the products that a backward put there, and gives their memory back.
void compute_later(Run& run, LaterWeights& later);

}  // namespace trainer
