// Stage: the layers that a rank holds; forward and backward of one micro-batch, written by hand.
// Not here: one block (block.h), the vocabulary head (head.h), when a stage runs (schedule/),
// memory's owner (engine.h). May include: ops/, comm/comm.h, parallel/flat_layout.h. Activations
// (S, B, H).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/head.h"
#include "trainer/model/run.h"

namespace trainer {

/// Forward keeps what backward needs in the Pool, for any number of micro-batches at once;
/// backward gives it back. forward and backward of one micro-batch index pair up; backwards may
/// come in any order.
class Stage {
 public:
  /// `max_microbatches` bounds MicroBatch::index.
  Stage(Run& run, int64_t max_microbatches);

  /// Forward of `batch`, whose loss is added to run.state. On the last stage head forward and
  /// backward run at once (the logits are never kept), so the gradients of the output layer are
  /// done when forward is.
  void forward(const MicroBatch& batch);
  /// Backward of `batch`: all gradients are added, all kept memory is given back.
  void backward(const MicroBatch& batch);
  /// Forward keeping nothing; the loss is added to run.state. run.training decides about dropout.
  void evaluate(const MicroBatch& batch);

 private:
  /// Layers that are kept or computed again together.
  struct Segment {
    int64_t first, count;
    bool recompute;
  };
  struct Kept {
    std::vector<BlockKept> blocks;
    HeadKept head;
  };
  void recompute(const Segment& segment, const MicroBatch& batch, std::vector<BlockKept>& blocks);

  Run& run_;
  std::vector<Segment> segments_;
  std::vector<Kept> kept_;
};

}  // namespace trainer
