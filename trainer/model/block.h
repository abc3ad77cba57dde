// One transformer block: forward and backward as straight lines of operations.
// Not here: embeddings and head (head.h), the order of blocks and recompute (stage.h).
// May include: model/run.h. Letters as in ops/operation.h. The residual stream between blocks is a
// Carry: the sum so far and the branch not yet added, because adding it is fused with the next
// norm.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "trainer/model/run.h"

namespace trainer {

/// The stream between two blocks. Forward: x = residual + dropout(branch), or residual alone when
/// branch is empty. Backward: the gradients of both; an empty branch means it equals residual's.
struct Carry {
  PoolTensor residual;           ///< Borrowed while the block before keeps it.
  PoolTensor* lender = nullptr;  ///< Forward: what of that block it is borrowed from.
  PoolTensor branch;
  /// Forward, tensor parallel: the bias of the linear that made branch, added after the sum over
  /// ranks.
  PoolTensor branch_bias;
  /// Backward: the bias of the linear that made the branch has its gradient already, from the norm
  /// above.
  bool branch_bias_done = false;
};

/// What a block's backward needs. Dropped tensors are empty until recomputed.
struct BlockKept {
  /// Block input and its norm; y1 is borrowed from x1 where the block has no input norm.
  PoolTensor x1, y1, mean1, rstd1;
  /// With norms of heads qkv is raw_qkv normed and rotated; else it is what the linear made.
  PoolTensor raw_qkv, head_mean, head_rstd;
  PoolTensor qkv, attention, stats;
  /// After attention, and its norm; parallel residual: x2 stays empty.
  PoolTensor x2, y2, mean2, rstd2;
  PoolTensor pre_activation, activated;  ///< Around the activation of the mlp.
  /// FP8: the columns of what each linear read, for the gradient of its weight; y1, y2 and
  /// activated then need not stay.
  std::array<Quantized, kNumLinears> quantized;
  Quantized& quantized_of(Linear linear) { return quantized[static_cast<size_t>(linear)]; }
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
void block_forward(const Pass& pass, int64_t layer, Carry& carry, BlockKept& kept,
                   bool with_output = true);
/// Releases what is not to be kept. `carry` is this block's output, or empty; a tensor that it
/// borrows and that is released becomes its own.
void block_release(Keep keep, Carry& carry, BlockKept& kept);
/// Gradients of the block, once Keep::selective's losses are computed again; carry holds the
/// gradient of its output, then of its input. Releases all of `kept`. With pass.later the products
/// of weights' gradients are put there, with the tensors that they read. `first`: the block is its
/// chunk's first, so that what entered it was a sum, no branch pending.
void block_backward(const Pass& pass, int64_t layer, bool first, Carry& carry, BlockKept& kept);

/// Computes the products that a backward put there, and gives their memory back.
void compute_later(const Run& run, LaterWeights& later);

}  // namespace trainer
