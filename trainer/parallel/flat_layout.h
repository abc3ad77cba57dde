// FlatLayout: where each parameter of this rank lies in the flat memories (model, gradient, main,
// moments), and Weights and Grads, through which a block reaches them. Not here: the list of
// parameters (model/params.h), the optimizer (optim/). May include: ops/, comm/, model/params.h.
// Offsets are elements, the same in all flat memories. A bucket is one layer (or the embeddings, or
// what follows the layers): the unit in which gradients leave and weights come. Inside a bucket
// decayed parameters come first.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/model/params.h"
#include "trainer/ops/tensor.h"

namespace trainer {

/// A parameter's place in flat memory.
struct Slot {
  LocalParam param;
  int64_t offset = 0;
  int bucket = 0;
  /// `flat`'s part that is this parameter, in its local shape.
  Tensor in(const Tensor& flat) const;
};

/// A part of flat memory that moves as one.
struct Bucket {
  int64_t layer = 0;           ///< As ParamSpec::layer.
  int64_t begin = 0;           ///< Elements.
  int64_t decay_elements = 0;  ///< From begin on, padding included.
  int64_t elements = 0;        ///< Padded to a multiple of the granule.
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

 private:
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  int64_t elements_ = 0;
  std::vector<std::array<int, kNumRoles>> index_;  ///< By layer + 1.
};

/// Hands a block its weights. Between gather(layer) and release(layer) get() is valid; with whole
/// weights on this rank both do nothing. Layer -1 is the embeddings, L the final norm and output
/// layer.
class Weights {
 public:
  Weights(const FlatLayout& layout, Tensor flat) : layout_(&layout), flat_(flat) {}

  void gather(int64_t layer) { static_cast<void>(layer); }
  void release(int64_t layer) { static_cast<void>(layer); }
  /// Empty where the model has no such parameter.
  Tensor get(int64_t layer, Role role) const;

 private:
  const FlatLayout* layout_;
  Tensor flat_;
};

/// Takes a block's gradients. The first write of a step into a parameter's gradient replaces, later
/// ones add: target() says which, and counts.
class Grads {
 public:
  struct Target {
    Tensor tensor;  ///< Empty where the model has no such parameter.
    bool accumulate = false;
  };

  Grads(const FlatLayout& layout, Tensor flat);

  /// Forgets all gradients; the memory is not touched.
  void begin_step();
  /// Where the gradient goes. Call once for each operation that writes it, in order.
  Target target(int64_t layer, Role role);
  /// No more gradients for this layer in this step: its bucket may leave.
  void layer_done(int64_t layer) { static_cast<void>(layer); }

 private:
  const FlatLayout* layout_;
  Tensor flat_;
  std::vector<bool> written_;
};

}  // namespace trainer
