// Weights: provides a block's weights, wherever they are: whole on this rank, being gathered from
// the data-parallel ranks that each updated a share (ZeRO 1 and 2), or gathered layer by layer and
// dropped again (ZeRO 3); the linears' weights in the model dtype or as FP8. Not here: updating
// them (optim/), scales (model/fp8.h). May include: ops/, comm/comm.h, parallel/flat_memory.h,
// parallel/fp8_flat.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/ops/arena.h"
#include "trainer/ops/ops.h"
#include "trainer/parallel/flat_memory.h"
#include "trainer/parallel/fp8_flat.h"

namespace trainer {

/// Between gather(layer) and release(layer) get() is valid; with whole weights on this rank both do
/// nothing. Layer -1 is the embeddings, L the final norm and output layer. Collectives are queued
/// on `data`, in the same order on every rank that makes the same calls.
class Weights {
 public:
  /// One layer being gathered and one in use.
  static constexpr int kBuffers = 2;

  /// `model` is placed before the first gather. `updated_in_shares`: each rank of `data` updates
  /// its share of every bucket.
  Weights(const FlatLayout& layout, const FlatMemory& model, ops::Ops& ops, comm::Comm& data,
          bool updated_in_shares);

  /// The weights that `fp8` holds are gathered as FP8: `model` has only this rank's share of their
  /// buckets, and `round` makes bytes of it whenever they are gathered. Before cut_buffers().
  void gather_as_fp8(const Fp8Flat& fp8, RoundWeight round);

  /// Cuts the buffers of layers that do not stay whole; none where all do.
  void cut_buffers(ops::Arena& arena);
  /// Queued: the buffers 0.
  void clear_buffers();

  /// Gathers all weights that are kept whole, from the ranks that updated them. Done: queued;
  /// compute waits for a bucket when it is first used.
  void gather_whole();
  /// The same, and compute waits for all.
  void gather_whole_now();

  /// A pass (a step, an evaluation) begins: layers gathered before are stale. Passes of one `kind`
  /// use layers in the same order: the first records it, later ones use it to fetch a layer ahead.
  void begin_pass(int64_t kind);
  /// Compute waits for gathers in flight, so that a capture may end.
  void end_pass();

  void gather(int64_t layer);
  void release(int64_t layer);
  /// Empty if the model has no such parameter. Errors: ShapeError for a layer that is not gathered,
  /// or a weight that is gathered as FP8.
  Tensor get(int64_t layer, Role role);
  /// The bytes (O, I), e4m3, of a weight that is gathered as FP8; empty for others. Errors:
  /// ShapeError for a layer that is not gathered.
  Tensor get_fp8(int64_t layer, Role role);

 private:
  struct Arrival {
    ops::Mark mark;
    bool under_way = false;
  };
  /// Has the buckets of one layer, side by side.
  struct Buffer {
    Tensor memory;
    int bucket = -1;  ///< The first bucket of its layer; -1: empty.
    bool in_use = false;
    Arrival arrival;
  };
  bool as_fp8(int bucket) const noexcept { return fp8_ != nullptr && fp8_->holds(bucket); }
  bool stays(int bucket) const noexcept {
    return model_.holds_whole(bucket) || (as_fp8(bucket) && fp8_->stays_whole());
  }
  DType gathered_dtype(int bucket) const noexcept {
    return as_fp8(bucket) ? DType::e4m3 : model_.tensor().dtype;
  }
  int64_t gathered_bytes(int bucket) const noexcept;
  int64_t buffer_bytes() const noexcept;
  Tensor part_of(const Buffer& buffer, int bucket) const;
  const Buffer& in_use(int bucket, const Slot& slot);
  void gather_bucket(const Tensor& whole, int bucket);
  void gather_others(int bucket);
  Buffer* find(int bucket);
  Buffer& fetch(int bucket);
  void fetch_next(int after);
  std::span<const int> neighbours(int bucket) const noexcept;
  void await(Arrival& arrival);
  Arrival& arrival_of(int bucket) { return arrivals_[static_cast<size_t>(bucket)]; }

  const FlatLayout& layout_;
  const FlatMemory& model_;
  ops::Ops& ops_;
  comm::Comm& data_;
  bool updated_in_shares_;
  const Fp8Flat* fp8_ = nullptr;
  RoundWeight round_;
  std::vector<Arrival> arrivals_;  ///< By bucket, of gather_whole.
  std::array<Buffer, kBuffers> buffers_;
  std::map<int64_t, std::vector<int>> orders_;  ///< Layers' first buckets by kind of pass.
  std::vector<int>* order_ = nullptr;
  bool noting_ = false;
  size_t position_ = 0;
};

}  // namespace trainer
