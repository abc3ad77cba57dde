// FlatLayout: the place of each of this rank's parameters in the flat memories (model, gradient,
// main, moments), and how data-parallel ranks divide these. Not here: the list of parameters
// (spec/params.h), the memories (flat_memory.h), access to them (weights.h, grads.h). May include:
// ops/, spec/params.h. Offsets are elements, the same in all flat memories. A bucket is one layer
// (or the embeddings, or what follows the layers): the unit in which gradients are reduced and
// weights are gathered. Inside a bucket decayed parameters come first. For an optimizer that needs
// whole matrices, the layers' matrices have buckets of their own, whose shares hold whole matrices
// (Matrices).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>
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
  /// This parameter's part of `flat`, in its local shape. `begin`: where flat begins.
  Tensor in(const Tensor& flat, int64_t begin = 0) const;
};

/// A part of flat memory that is communicated as one.
struct Bucket {
  int64_t layer = 0;           ///< As ParamSpec::layer; the first of several.
  int64_t layers = 1;          ///< How many layers have parameters here.
  int64_t begin = 0;           ///< Elements.
  int64_t decay_elements = 0;  ///< From begin on, including padding. Without matrices.
  int64_t elements = 0;        ///< Padded to a multiple of the granule times the divisor.
  bool matrices = false;       ///< Has only layers' matrices (is_matrix), separate from the rest.
  std::vector<int> slots;      ///< Indices into slots(), ascending.
};

/// Where the layers' matrices are. packed: no matrix is in two shares of its bucket; ranks have
/// about equal work, measured by the cost of orthogonalising a matrix.
enum class Matrices : uint8_t {
  with_the_rest,     ///< In their layer's bucket.
  apart,             ///< In a bucket of their own.
  packed,            ///< Also packed; a bucket has as many layers as needed to keep its padding
                     ///< small.
  packed_by_layers,  ///< Also packed, with one bucket per layer whatever the padding.
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
  FlatLayout(std::vector<LocalParam> params, bool bucket_per_layer, int64_t divisor = 1,
             Matrices matrices = Matrices::with_the_rest);

  const std::vector<Slot>& slots() const noexcept { return slots_; }
  const std::vector<Bucket>& buckets() const noexcept { return buckets_; }
  const Slot& slot(int i) const noexcept { return slots_[static_cast<size_t>(i)]; }
  const Bucket& bucket(int i) const noexcept { return buckets_[static_cast<size_t>(i)]; }
  int num_buckets() const noexcept { return static_cast<int>(buckets_.size()); }
  int64_t elements() const noexcept { return elements_; }
  /// Index into slots(), or -1 if there is no such parameter here.
  int find(int64_t layer, Role role) const noexcept;
  /// Indices into buckets() of those that hold parameters of `layer`, ascending.
  std::span<const int> buckets_of(int64_t layer) const noexcept;
  /// The elements of a slot, counted from its first, that are in a share of its bucket.
  Range in_share(const Slot& slot, const Share& share) const noexcept;

 private:
  void add_bucket(Bucket bucket, int64_t divisor, std::vector<double>* load);
  void place_in_order(Bucket& bucket);
  void index_slots();

  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  int64_t elements_ = 0;
  // By layer + 1.
  std::vector<std::array<int, kNumRoles>> index_;
  std::vector<std::vector<int>> layer_buckets_;
};

}  // namespace trainer
