// Grads: takes a block's gradients and brings them together over the data-parallel ranks: whole on
// each (ZeRO 0), or a share on each (ZeRO 1), of transformer layers without ever keeping more than
// a few whole (ZeRO 2 and 3). Not here: the norm and the update (optim/). May include: ops/,
// comm/comm.h, parallel/flat_memory.h.
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

/// How gradients leave.
struct GradsOptions {
  bool in_shares = false;       ///< Each rank needs its share alone (ZeRO 1 and up).
  bool overlap = false;         ///< A bucket leaves as soon as it is done, not after backward.
  bool hold_embedding = false;  ///< Layer -1 leaves last: another stage's copy is added before.
  DType grad_dtype = DType::f32;
  DType model_dtype = DType::f32;
  DType reduce_dtype = DType::f32;  ///< In which ranks' gradients are added.
};

/// The first write of a step into a parameter's gradient replaces, later ones add: target() says
/// which, and counts. After finish() the gradient memory holds the mean over data-parallel ranks:
/// of this rank's share where it is in shares, else of all.
class Grads {
 public:
  struct Target {
    Tensor tensor;  ///< Empty where the model has no such parameter.
    bool accumulate = false;
  };

  /// `grad` is placed before the first step. Buckets that it does not hold whole come and go in
  /// `pool` memory.
  Grads(const FlatLayout& layout, const FlatMemory& grad, ops::Ops& ops, comm::Comm& data,
        ops::Pool& pool, const GradsOptions& options);

  /// Forgets all gradients; the memory is not touched. layer_done will be called num_microbatches
  /// times for each layer that has gradients.
  void begin_step(int64_t num_microbatches);
  /// Where the gradient goes. Call once for each operation that writes it, in order.
  Target target(int64_t layer, Role role);
  /// No more gradients for this layer in this micro-batch: its bucket may leave.
  void layer_done(int64_t layer);
  /// A whole parameter's gradient, before finish(). Errors: ShapeError where only shares are kept.
  Tensor whole(int64_t layer, Role role) const;
  /// All that has not left leaves; compute waits for all.
  void finish();

 private:
  /// A bucket that is being reduced.
  struct Leaving {
    int bucket = 0;
    ops::PoolTensor buffer;  ///< Of a bucket that is not held whole.
    ops::PoolTensor cast;    ///< In reduce_dtype, where that is another.
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
