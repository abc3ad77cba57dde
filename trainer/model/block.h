// One transformer block: forward and backward as flat sequences of operations. Not here: embeddings
// and head (head.h), the order of blocks and recompute (stage.h).
// May include: model/run.h. Letters as in ops/operation.h. Between blocks the residual stream is a
// Carry: the sum so far, and the branch that is not yet added because the addition is fused with
// the next norm.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "trainer/model/run.h"

namespace trainer {

/// The stream between two blocks. Forward: x = residual + dropout(branch), or only residual when
/// branch is empty. Backward: the gradients of both; an empty branch means that its gradient equals
/// residual's.
struct Carry {
  PoolTensor residual;           ///< Borrowed while the previous block keeps it.
  PoolTensor* lender = nullptr;  ///< Forward: the tensor of that block that owns it.
  PoolTensor branch;
  /// Forward, tensor parallel: the bias of the linear that made branch, added after the sum over
  /// ranks.
  PoolTensor branch_bias;
  /// Backward: the norm above has already computed the bias gradient of the linear that made the
  /// branch.
  bool branch_bias_done = false;
};

/// What a block's backward needs. Tensors that were released are empty until recomputed.
struct BlockKept {
  /// Block input and its norm; y1 is borrowed from x1 where the block has no input norm.
  PoolTensor x1, y1, mean1, rstd1;
  /// With norms of heads, qkv is raw_qkv after norm and rotation; otherwise it is the linear's
  /// output.
  PoolTensor raw_qkv, head_mean, head_rstd;
  PoolTensor qkv, attention, stats;
  /// The stream after attention, and its norm; with parallel residual x2 stays empty.
  PoolTensor x2, y2, mean2, rstd2;
  PoolTensor pre_activation, activated;  ///< Before and after the MLP's activation.
  /// FP8: the columns of each linear's input, for the gradient of its weight; y1, y2 and activated
  /// need not be kept then.
  std::array<Quantized, kNumLinears> quantized;
  Quantized& quantized_of(Linear linear) { return quantized[static_cast<size_t>(linear)]; }
};

/// What is kept of a block after its forward.
enum class Keep : uint8_t {
  all,
  selective,  ///< All but norm and activation outputs.
  input,      ///< Only x1.
  nothing,
};

/// Computes the block from carry, and leaves the block's output in carry. Without `with_output`
/// (recompute of the last layer of a segment) the last linear is skipped and carry ends empty.
void block_forward(const Pass& pass, int64_t layer, Carry& carry, BlockKept& kept,
                   bool with_output = true);
/// Releases what is not to be kept. `carry` is this block's output, or empty; if it borrows a
/// tensor that is released, it becomes the owner.
void block_release(Keep keep, Carry& carry, BlockKept& kept);
/// Gradients of the block, after recomputing what Keep::selective released. carry has the gradient
/// of the block's output, then of its input. Releases all of `kept`. With pass.later, the weight
/// gradients' products are put there, with the tensors that they read. `first`: the block is its
/// chunk's first, so its input was a sum with no branch pending.
void block_backward(const Pass& pass, int64_t layer, bool first, Carry& carry, BlockKept& kept);

/// Computes the products that a backward put there, and frees their memory.
void compute_later(const Run& run, LaterWeights& later);

}  // namespace trainer
