// FlatMemory: one of the flat memories of a rank (model, main, moments, gradient), with all of each
// bucket, or this rank's share of it. Not here: offsets (flat_layout.h), filling it (grads.h,
// weights.h, optim/). May include: ops/, parallel/flat_layout.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "trainer/parallel/flat_layout.h"

namespace trainer {

/// Views of one Tensor; copies refer to the same memory. `layout` must outlive it.
class FlatMemory {
 public:
  /// whole: every bucket, in the layout's order. share: this rank's share of every bucket. layers:
  /// shares of the transformer layers; the buckets before and after them whole, since their weights
  /// and gradients are in use through all of a micro-batch.
  enum class Hold : uint8_t { whole, share, layers };

  /// Which buckets it has: an optimizer's state for matrices has no room for the others.
  enum class Buckets : uint8_t { all, matrices, others };

  /// What it has of a bucket.
  enum class Part : uint8_t { none, share, whole };

  FlatMemory() = default;
  /// `parts`: by bucket.
  FlatMemory(const FlatLayout& layout, const Share& share, std::vector<Part> parts);
  FlatMemory(const FlatLayout& layout, const Share& share, Hold hold, int64_t num_layers,
             Buckets buckets = Buckets::all);
  /// What the second constructor makes of `hold` and `buckets`, by bucket.
  static std::vector<Part> parts_of(const FlatLayout& layout, Hold hold, int64_t num_layers,
                                    Buckets buckets = Buckets::all);

  /// The number of elements that place() needs.
  int64_t elements() const noexcept { return elements_; }
  void place(const Tensor& memory) { memory_ = memory; }
  const Tensor& tensor() const noexcept { return memory_; }

  bool holds_whole(int bucket) const noexcept { return whole_[static_cast<size_t>(bucket)]; }
  /// Whole or in part.
  bool holds(int bucket) const noexcept { return begin_[static_cast<size_t>(bucket)] >= 0; }
  /// A whole bucket. Errors: ShapeError if it is not whole here.
  Tensor bucket(int bucket) const;
  /// This rank's share of a bucket. Errors: ShapeError if no part of it is here.
  Tensor share(int bucket) const;
  /// A parameter in its local shape, if its bucket is whole here. Errors: ShapeError.
  Tensor whole(const Slot& slot) const;
  /// This rank's range of a parameter (FlatLayout::in_share), flat; empty when there is none.
  Tensor range(const Slot& slot) const;

 private:
  const FlatLayout* layout_ = nullptr;
  Share share_;
  Tensor memory_;
  int64_t elements_ = 0;
  std::vector<int64_t> begin_;  ///< By bucket; -1: no part of it is here.
  std::vector<bool> whole_;
};

}  // namespace trainer
