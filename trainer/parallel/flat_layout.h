// FlatLayout: where each parameter of this rank lies in the flat memories (model, gradient, main,
// moments), and how data-parallel ranks share them. Not here: the list of parameters
// (spec/params.h), the memories (flat_memory.h), reaching them (weights.h, grads.h). May include:
// ops/, spec/params.h. Offsets are elements, the same in all flat memories. A bucket is one layer
// (or the embeddings, or what follows the layers): the unit in which gradients leave and weights
// come. Inside a bucket decayed parameters come first.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/ops/tensor.h"
#include "trainer/spec/params.h"

namespace trainer {

/// `count` elements from `first` on.
struct Range {
  int64_t first = 0, count = 0;
  bool operator==(const Range&) const = default;
};

/// A parameter's place in flat memory.
struct Slot {
  LocalParam param;
  int64_t offset = 0;
  int bucket = 0;
  /// `flat`'s part that is this parameter, in its local shape. `begin`: where flat begins.
  Tensor in(const Tensor& flat, int64_t begin = 0) const;
};

/// A part of flat memory that moves as one.
struct Bucket {
  int64_t layer = 0;           ///< As ParamSpec::layer.
  int64_t begin = 0;           ///< Elements.
  int64_t decay_elements = 0;  ///< From begin on, padding included.
  int64_t elements = 0;        ///< Padded to a multiple of the granule times the divisor.
  int first_slot = 0, slots = 0;
};

/// Which of `size` equal parts of every bucket is this rank's.
struct Share {
  int rank = 0, size = 1;
};

/// Every parameter begins at a multiple of kGranule elements, and so does every bucket's end;
/// padding stays 0.
class FlatLayout {
 public:
  static constexpr int64_t kGranule = 128;

  /// One bucket for each layer when `bucket_per_layer`, else one for all (one launch of AdamW);
  /// buckets are padded to granule * divisor elements so that `divisor` data-parallel ranks share
  /// them evenly.
  FlatLayout(std::vector<LocalParam> params, bool bucket_per_layer, int64_t divisor = 1);

  const std::vector<Slot>& slots() const noexcept { return slots_; }
  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  int64_t elements() const noexcept { return elements_; }
  /// Index into slots(), or -1 where the model has no such parameter here.
  int find(int64_t layer, Role role) const noexcept;
  /// Index into buckets() of the bucket that holds `layer`, or -1.
  int bucket_of(int64_t layer) const noexcept;
  /// Elements of a slot, counted from its first, that lie in a share of its bucket.
  Range in_share(const Slot& slot, const Share& share) const noexcept;

 private:
  void add_bucket(size_t begin, size_t end, int64_t divisor);

  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  int64_t elements_ = 0;
  std::vector<std::array<int, kNumRoles>> index_;  ///< By layer + 1.
};

}  // namespace trainer
