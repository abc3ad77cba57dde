// FlatMemory: one of the flat memories of a rank (model, main, moments, gradient), of whose buckets
// it holds all, or its share among the data-parallel ranks. Not here: offsets (flat_layout.h), who
// fills them (grads.h, weights.h, optim/). May include: ops/, parallel/flat_layout.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "trainer/parallel/flat_layout.h"

namespace trainer {

/// Views of one Tensor; copies see the same memory. `layout` must outlive it.
class FlatMemory {
 public:
  /// whole: every bucket, in the layout's order. share: this rank's share of every bucket. layers:
  /// shares of the transformer layers; the buckets before and after them whole, since their weights
  /// and gradients are in use through all of a micro-batch.
  enum class Hold : uint8_t { whole, share, layers };

  /// Of which buckets: what an optimizer keeps for matrices has no room for the others.
  enum class Buckets : uint8_t { all, matrices, others };

  FlatMemory() = default;
  FlatMemory(const FlatLayout& layout, const Share& share, Hold hold, int64_t num_layers,
             Buckets buckets = Buckets::all);

  /// What place() must be given.
  int64_t elements() const noexcept { return elements_; }
  void place(const Tensor& memory) { memory_ = memory; }
  const Tensor& tensor() const noexcept { return memory_; }

  bool holds_whole(int bucket) const noexcept { return whole_[static_cast<size_t>(bucket)]; }
  /// Whole or in part.
  bool holds(int bucket) const noexcept { return begin_[static_cast<size_t>(bucket)] >= 0; }
  /// A bucket that is here whole. Errors: ShapeError when it is not.
  Tensor bucket(int bucket) const;
  /// This rank's share of a bucket. Errors: ShapeError where nothing of it is here.
  Tensor share(int bucket) const;
  /// A parameter in its local shape, where its bucket is whole. Errors: ShapeError.
  Tensor whole(const Slot& slot) const;
  /// This rank's range of a parameter (FlatLayout::in_share), flat; empty when there is none.
  Tensor range(const Slot& slot) const;

 private:
  const FlatLayout* layout_ = nullptr;
  Share share_;
  Tensor memory_;
  int64_t elements_ = 0;
  std::vector<int64_t> begin_;  ///< By bucket; -1: nothing of it is here.
  std::vector<bool> whole_;
};

}  // namespace trainer
