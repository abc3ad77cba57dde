// FlatMemory: arithmetic of buckets and shares.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/flat_memory.h"

#include <string>

namespace trainer {

FlatMemory::FlatMemory(const FlatLayout& layout, const Share& share, Hold hold, int64_t num_layers,
                       Buckets buckets)
    : layout_(&layout), share_(share) {
  for (const Bucket& bucket : layout.buckets()) {
    if (buckets != Buckets::all && bucket.matrices != (buckets == Buckets::matrices)) {
      begin_.push_back(-1);
      whole_.push_back(false);
      continue;
    }
    const bool is_layer = bucket.layer >= 0 && bucket.layer < num_layers;
    const bool whole =
        hold == Hold::whole || (hold == Hold::layers && !is_layer) || share.size == 1;
    begin_.push_back(elements_);
    whole_.push_back(whole);
    elements_ += whole ? bucket.elements : bucket.elements / share.size;
  }
}

Tensor FlatMemory::bucket(int bucket) const {
  const size_t at = static_cast<size_t>(bucket);
  if (!whole_[at])
    throw ShapeError("flat memory: bucket " + std::to_string(bucket) + " is a share here");
  return memory_.slice(begin_[at], layout_->bucket(bucket).elements);
}

Tensor FlatMemory::share(int bucket) const {
  const size_t at = static_cast<size_t>(bucket);
  if (!holds(bucket))
    throw ShapeError("flat memory: nothing of bucket " + std::to_string(bucket) + " is here");
  const int64_t part = layout_->bucket(bucket).elements / share_.size;
  return memory_.slice(begin_[at] + (whole_[at] ? share_.rank * part : 0), part);
}

Tensor FlatMemory::whole(const Slot& slot) const {
  return slot.in(bucket(slot.bucket), layout_->bucket(slot.bucket).begin);
}

Tensor FlatMemory::range(const Slot& slot) const {
  const Range range = layout_->in_share(slot, share_);
  if (range.count == 0) return {};
  const Bucket& bucket = layout_->bucket(slot.bucket);
  const int64_t begin = bucket.begin + share_.rank * (bucket.elements / share_.size);
  return share(slot.bucket).slice(slot.offset + range.first - begin, range.count);
}

}  // namespace trainer
