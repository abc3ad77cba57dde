// Stage: the layers that a rank holds; forward and backward of one micro-batch, written by hand.
// Not here: one block (block.h), the vocabulary head (head.h), when a stage runs (schedule/),
// memory's owner (Engine). May include: ops/, comm/comm.h, parallel/flat_layout.h. Activations (S,
// B, H).
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
/// gives it back. forward and backward of one micro-batch index pair up; backwards may come in any
/// order.
class Stage {
 public:
  explicit Stage(Run& run);

  /// Forward of `batch`, whose loss is added to run.state. On the last stage head forward and
  /// backward run at once (the logits are never kept), so the gradients of the head are done when
  /// forward is.
  void forward(const MicroBatch& batch);
  /// Backward of `batch`: all gradients are added, all kept memory is given back.
  void backward(const MicroBatch& batch);
  /// Forward without dropout, keeping nothing; its loss is added to run.state.
  void evaluate(const MicroBatch& batch);

 private:
  struct Kept;
  Run& run_;
  std::vector<Kept> kept_;
};

}  // namespace trainer
