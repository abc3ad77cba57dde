// FlatLayout, Weights, Grads.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/flat_layout.h"

#include <utility>

namespace trainer {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

Tensor Slot::in(const Tensor& flat) const {
  const Tensor part = flat.slice(offset, param.elements());
  return param.shape.size() == 1 ? part : part.view({param.shape[0], param.shape[1]});
}

FlatLayout::FlatLayout(std::vector<LocalParam> params, bool bucket_per_layer, int64_t divisor) {
  for (LocalParam& param : params) slots_.push_back(Slot{.param = std::move(param)});
  // Buckets in table order; inside each, decayed parameters first.
  for (size_t begin = 0; begin < slots_.size();) {
    size_t end = begin + 1;
    while (end < slots_.size() &&
           (!bucket_per_layer || slots_[end].param.spec.layer == slots_[begin].param.spec.layer))
      ++end;
    Bucket bucket{.layer = slots_[begin].param.spec.layer, .begin = elements_};
    for (const bool decay : {true, false}) {
      for (size_t i = begin; i < end; ++i) {
        if (slots_[i].param.spec.decay != decay) continue;
        slots_[i].offset = elements_;
        slots_[i].bucket = static_cast<int>(buckets_.size());
        elements_ += round_up(slots_[i].param.elements(), kGranule);
      }
      if (decay) bucket.decay_elements = elements_ - bucket.begin;
    }
    bucket.elements = round_up(elements_ - bucket.begin, kGranule * divisor);
    elements_ = bucket.begin + bucket.elements;
    buckets_.push_back(bucket);
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

int FlatLayout::find(int64_t layer, Role role) const noexcept {
  const int64_t row = layer + 1;
  if (row < 0 || row >= static_cast<int64_t>(index_.size())) return -1;
  return index_[static_cast<size_t>(row)][static_cast<size_t>(role)];
}

Tensor Weights::get(int64_t layer, Role role) const {
  const int i = layout_->find(layer, role);
  return i < 0 ? Tensor() : layout_->slots()[static_cast<size_t>(i)].in(flat_);
}

Grads::Grads(const FlatLayout& layout, Tensor flat)
    : layout_(&layout), flat_(flat), written_(layout.slots().size(), false) {}

void Grads::begin_step() { written_.assign(written_.size(), false); }

Grads::Target Grads::target(int64_t layer, Role role) {
  const int i = layout_->find(layer, role);
  if (i < 0) return {};
  const size_t at = static_cast<size_t>(i);
  const bool accumulate = written_[at];
  written_[at] = true;
  return {layout_->slots()[at].in(flat_), accumulate};
}

}  // namespace trainer
