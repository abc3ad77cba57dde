// FlatLayout: offsets, buckets, shares.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/flat_layout.h"

#include <algorithm>
#include <utility>

namespace trainer {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// Decayed ones first; those whole on every tensor-parallel rank side by side, since only one rank
/// counts them in the norm.
int order_in_bucket(const ParamSpec& spec) {
  const bool whole = spec.split < 0;
  if (spec.decay) return whole ? 1 : 0;
  return whole ? 2 : 3;
}

}  // namespace

Tensor Slot::in(const Tensor& flat, int64_t begin) const {
  const Tensor part = flat.slice(offset - begin, param.elements());
  return param.shape.size() == 1 ? part : part.view({param.shape[0], param.shape[1]});
}

FlatLayout::FlatLayout(std::vector<LocalParam> params, bool bucket_per_layer, int64_t divisor) {
  for (LocalParam& param : params) slots_.push_back(Slot{.param = std::move(param)});
  for (size_t begin = 0; begin < slots_.size();) {
    size_t end = begin + 1;
    while (end < slots_.size() &&
           (!bucket_per_layer || slots_[end].param.spec.layer == slots_[begin].param.spec.layer))
      ++end;
    add_bucket(begin, end, divisor);
    begin = end;
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    const ParamSpec& spec = slots_[i].param.spec;
    const size_t row = static_cast<size_t>(spec.layer + 1);
    while (index_.size() <= row) {
      index_.emplace_back();
      index_.back().fill(-1);
    }
    index_[row][static_cast<size_t>(spec.role)] = static_cast<int>(i);
  }
}

void FlatLayout::add_bucket(size_t begin, size_t end, int64_t divisor) {
  Bucket bucket{.layer = slots_[begin].param.spec.layer,
                .begin = elements_,
                .first_slot = static_cast<int>(begin),
                .slots = static_cast<int>(end - begin)};
  for (int kind = 0; kind < 4; ++kind) {
    for (size_t i = begin; i < end; ++i) {
      if (order_in_bucket(slots_[i].param.spec) != kind) continue;
      slots_[i].offset = elements_;
      slots_[i].bucket = static_cast<int>(buckets_.size());
      elements_ += round_up(slots_[i].param.elements(), kGranule);
    }
    if (kind == 1) bucket.decay_elements = elements_ - bucket.begin;
  }
  bucket.elements = round_up(elements_ - bucket.begin, kGranule * divisor);
  elements_ = bucket.begin + bucket.elements;
  buckets_.push_back(bucket);
}

int FlatLayout::find(int64_t layer, Role role) const noexcept {
  const int64_t row = layer + 1;
  if (row < 0 || row >= static_cast<int64_t>(index_.size())) return -1;
  return index_[static_cast<size_t>(row)][static_cast<size_t>(role)];
}

int FlatLayout::bucket_of(int64_t layer) const noexcept {
  const int64_t row = layer + 1;
  if (row < 0 || row >= static_cast<int64_t>(index_.size())) return -1;
  for (const int slot : index_[static_cast<size_t>(row)])
    if (slot >= 0) return slots_[static_cast<size_t>(slot)].bucket;
  return -1;
}

Range FlatLayout::in_share(const Slot& slot, const Share& share) const noexcept {
  const Bucket& bucket = buckets_[static_cast<size_t>(slot.bucket)];
  const int64_t part = bucket.elements / share.size;
  const int64_t begin = bucket.begin + share.rank * part - slot.offset;
  const int64_t first = std::clamp<int64_t>(begin, 0, slot.param.elements());
  const int64_t end = std::clamp<int64_t>(begin + part, 0, slot.param.elements());
  return {first, end - first};
}

}  // namespace trainer
