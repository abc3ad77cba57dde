// Stage: the layers of one model chunk of a rank; forward and backward of one micro-batch, written
// by hand. Not here: one block (block.h), the vocabulary head (head.h), when a stage runs
// (schedule/), the owner of memory (engine/engine.h). May include: ops/, comm/comm.h,
// parallel/flat_layout.h. Activations (S, B, H).
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
/// releases it. A backward belongs to the forward with the same micro-batch index; backwards may
/// come in any order. Input and output tensors are the residual stream, (S, B, H), or (S/tp, B, H)
/// with sequence parallelism, with no branch pending.
class Stage {
 public:
  /// The chunk given by `place`. `max_microbatches` bounds MicroBatch::index.
  Stage(const Recompute& recompute, const Place& place, int64_t max_microbatches);

  /// Forward of pass.batch. `input` is the previous chunk's output (empty if this chunk has the
  /// embeddings). The result is empty if this chunk has the head: then the loss is added to
  /// pass.state, and the head's backward has run too (the logits are never kept), so the gradients
  /// of the output layer are complete.
  PoolTensor forward(const Pass& pass, PoolTensor input);
  /// Backward of pass.batch, from the gradient of forward's result (empty with the head) to that of
  /// its input (empty with the embeddings). Adds all gradients and releases all kept memory.
  PoolTensor backward(const Pass& pass, PoolTensor doutput);
  /// The same in two halves: first everything except the weights of the layers' linears, then
  /// those.
  PoolTensor backward_input(const Pass& pass, PoolTensor doutput);
  void backward_weight(const Pass& pass);
  /// Forward that keeps nothing. pass.training says whether dropout is on.
  PoolTensor evaluate(const Pass& pass, PoolTensor input);

 private:
  /// Layers that are kept or recomputed together.
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
  Carry begin(const Pass& pass, PoolTensor input, EmbeddingKept& kept);
  PoolTensor end(const Pass& pass, Carry& carry);
  Carry begin_backward(const Pass& pass, PoolTensor doutput);
  void recompute(const Segment& segment, const Pass& pass, std::vector<BlockKept>& blocks);
  Kept& kept_of(const Pass& pass) { return kept_.at(static_cast<size_t>(pass.batch.index)); }

  Place place_;
  Keep keep_;  ///< For layers that are not recomputed.
  std::vector<Segment> segments_;
  std::vector<Kept> kept_;
};

}  // namespace trainer
