// FlatMemory: arithmetic of buckets and shares.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/flat_memory.h"

#include <string>

namespace trainer {

FlatMemory::FlatMemory(const FlatLayout& layout, const Share& share, std::vector<Part> parts)
    : layout_(&layout), share_(share) {
  for (int b = 0; b < layout.num_buckets(); ++b) {
    const Part part = parts[static_cast<size_t>(b)];
    const bool whole = part != Part::none && (part == Part::whole || share.size == 1);
    begin_.push_back(part == Part::none ? -1 : elements_);
    whole_.push_back(whole);
    if (part == Part::none) continue;
    elements_ += whole ? layout.bucket(b).elements : layout.bucket(b).elements / share.size;
  }
}

FlatMemory::FlatMemory(const FlatLayout& layout, const Share& share, Hold hold, int64_t num_layers,
                       Buckets buckets)
    : FlatMemory(layout, share, parts_of(layout, hold, num_layers, buckets)) {}

std::vector<FlatMemory::Part> FlatMemory::parts_of(const FlatLayout& layout, Hold hold,
                                                   int64_t num_layers, Buckets buckets) {
  std::vector<Part> parts;
  for (const Bucket& bucket : layout.buckets()) {
    const bool is_layer = bucket.layer >= 0 && bucket.layer < num_layers;
    if (buckets != Buckets::all && bucket.matrices != (buckets == Buckets::matrices))
      parts.push_back(Part::none);
    else if (hold == Hold::whole || (hold == Hold::layers && !is_layer))
      parts.push_back(Part::whole);
    else
      parts.push_back(Part::share);
  }
  return parts;
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
