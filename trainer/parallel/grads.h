// Grads: receives a block's gradients and reduces them over the data-parallel ranks: whole on each
// (ZeRO 0), or a share on each (ZeRO 1), never keeping more than a few transformer layers whole
// (ZeRO 2 and 3). Not here: the norm and the update (optim/). May include: ops/, comm/comm.h,
// parallel/flat_memory.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/ops/arena.h"
#include "trainer/ops/ops.h"
#include "trainer/parallel/flat_memory.h"

namespace trainer {

/// How gradients are reduced.
struct GradsOptions {
  bool in_shares = false;       ///< Each rank needs only its share (ZeRO 1 and up).
  bool overlap = false;         ///< A bucket is reduced as soon as it is done, not after backward.
  bool hold_embedding = false;  ///< Layer -1 is reduced last: another stage's copy is added first.
  DType grad_dtype = DType::f32;
  DType model_dtype = DType::f32;
  DType reduce_dtype = DType::f32;  ///< The dtype in which ranks' gradients are added.
};

/// The first write of a step into a parameter's gradient replaces it, later ones add: target() says
/// which, and counts. After finish() the gradient memory has the mean over data-parallel ranks: of
/// this rank's share if in shares, else of everything.
class Grads {
 public:
  struct Target {
    Tensor tensor;  ///< Empty if the model has no such parameter.
    bool accumulate = false;
  };

  /// `grad` is placed before the first step. Buckets that it does not have whole use `pool` memory
  /// temporarily.
  Grads(const FlatLayout& layout, const FlatMemory& grad, ops::Ops& ops, comm::Comm& data,
        ops::Pool& pool, const GradsOptions& options);

  /// Marks all gradients as unwritten; the memory is not touched. layer_done will be called
  /// num_microbatches times for each layer that has gradients.
  void begin_step(int64_t num_microbatches);
  /// Where the gradient goes. Call once for each operation that writes it, in order.
  Target target(int64_t layer, Role role);
  /// No more gradients for this layer in this micro-batch: its bucket may be reduced.
  void layer_done(int64_t layer);
  /// A whole parameter's gradient, before finish(). Errors: ShapeError if only shares are kept.
  Tensor whole(int64_t layer, Role role) const;
  /// Starts reducing the remaining buckets; compute waits for all of them.
  void finish();

 private:
  /// A bucket that is being reduced.
  struct Leaving {
    int bucket = 0;
    ops::PoolTensor buffer;  ///< Memory of a bucket that is not kept whole.
    ops::PoolTensor cast;    ///< In reduce_dtype, if that differs.
    ops::Mark done;
  };
  /// Of a bucket in this step.
  struct Progress {
    int64_t layers_done = 0;  ///< Times that one of its layers was done.
    bool left = false;
    bool arrived = false;    ///< The share has this step's gradients of a micro-batch.
    ops::PoolTensor buffer;  ///< Of this micro-batch, where the bucket is not held whole.
  };
  Progress& progress_of(int bucket) { return progress_[static_cast<size_t>(bucket)]; }
  bool passes(int bucket) const noexcept { return !grad_.holds_whole(bucket); }
  Tensor share_of(const Tensor& whole) const;
  const Tensor& buffer(int bucket);
  void leave(int bucket);
  void settle(size_t may_remain);
  void arrive(const Leaving& leaving);

  const FlatLayout& layout_;
  const FlatMemory& grad_;
  ops::Ops& ops_;
  comm::Comm& data_;
  ops::Pool& pool_;
  const GradsOptions options_;
  int64_t num_microbatches_ = 1;
  std::vector<bool> written_;       ///< By slot.
  std::vector<Progress> progress_;  ///< By bucket.
  std::deque<Leaving> leaving_;
};

}  // namespace trainer
