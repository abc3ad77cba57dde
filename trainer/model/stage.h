// Stage: the layers that a rank holds; forward and backward of one micro-batch, written by hand.
// Not here: one block (block.h), the vocabulary head (head.h), when a stage runs (schedule/),
// memory's owner (engine/engine.h). May include: ops/, comm/comm.h, parallel/flat_layout.h.
// Activations (S, B, H).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/head.h"
#include "trainer/model/run.h"

namespace trainer {

/// Forward keeps what backward needs in the Pool, for any number of micro-batches at once; backward
/// releases it. forward and backward of one micro-batch index pair up; backwards may come in any
/// order. Tensors handed in and out are the residual stream, (S, B, H), or (S/tp, B, H) with
/// sequence parallelism, with no branch pending.
class Stage {
 public:
  /// The chunk that `place` says. `max_microbatches` bounds MicroBatch::index.
  Stage(Run& run, const Place& place, int64_t max_microbatches);

  /// Forward of `batch` from the chunk before (empty where the embeddings are here); empty where
  /// the head is here: then the loss is added to run.state, and the head's backward has run too
  /// (the logits are never kept), so the gradients of the output layer are done.
  PoolTensor forward(const MicroBatch& batch, PoolTensor input);
  /// Backward of `batch` from the gradient of forward's result (empty with the head) to that of its
  /// input (empty with the embeddings): all gradients are added, all kept memory is released.
  PoolTensor backward(const MicroBatch& batch, PoolTensor doutput);
  /// The same in two halves: all but the weights of the layers' linears, then those.
  PoolTensor backward_input(const MicroBatch& batch, PoolTensor doutput);
  void backward_weight(const MicroBatch& batch);
  /// Forward keeping nothing. run.training decides about dropout.
  PoolTensor evaluate(const MicroBatch& batch, PoolTensor input);

 private:
  /// Layers that are kept or computed again together.
  struct Segment {
    int64_t first, count;
    bool recompute;
  };
  struct Kept {
    EmbeddingKept embedding;
    std::vector<BlockKept> blocks;
    HeadKept head;
    LaterWeights later;
  };
  Carry begin(const MicroBatch& batch, PoolTensor input, EmbeddingKept& kept);
  PoolTensor end(const MicroBatch& batch, Carry& carry);
  Carry begin_backward(const MicroBatch& batch, PoolTensor doutput);
  void recompute(const Segment& segment, const MicroBatch& batch, std::vector<BlockKept>& blocks);

  Run& run_;
  Place place_;
  std::vector<Segment> segments_;
  std::vector<Kept> kept_;
};

}  // namespace trainer
