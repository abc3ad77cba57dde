// FlatLayout: offsets, buckets, shares.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/flat_layout.h"

#include <algorithm>
#include <utility>

#include "trainer/parallel/matrix_packing.h"

namespace trainer {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// Decayed parameters first; those that every tensor-parallel rank has whole are adjacent, since
/// only one rank counts them in the norm.
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

namespace {

int64_t padded(const Slot& slot) { return round_up(slot.param.elements(), FlatLayout::kGranule); }

MatrixPacking packing_of(const std::vector<Slot>& slots, const Bucket& bucket,
                         std::vector<double>& load) {
  std::vector<MatrixItem> items;
  for (const int i : bucket.slots) {
    const Slot& slot = slots[static_cast<size_t>(i)];
    const std::vector<int64_t>& shape = slot.param.shape;
    items.push_back({padded(slot), orthogonalisation_cost(shape[0], shape[1])});
  }
  return pack_matrices(items, load);
}

/// Slots in buckets of `layers_per_bucket` layers each, in their order.
std::vector<Bucket> group(const std::vector<Slot>& slots, const std::vector<int>& members,
                          int64_t layers_per_bucket) {
  std::vector<Bucket> buckets;
  int64_t before = 0;
  for (const int i : members) {
    const int64_t layer = slots[static_cast<size_t>(i)].param.spec.layer;
    const bool new_layer = buckets.empty() || layer != before;
    if (buckets.empty() || (new_layer && buckets.back().layers == layers_per_bucket))
      buckets.push_back({.layer = layer});
    else if (new_layer)
      ++buckets.back().layers;
    buckets.back().slots.push_back(i);
    before = layer;
  }
  return buckets;
}

/// The fewest layers per bucket for which packing leaves less than a twentieth empty, or within a
/// fiftieth of the smallest possible padding.
int64_t layers_per_packed_bucket(const std::vector<Slot>& slots, const std::vector<int>& members,
                                 int64_t divisor) {
  int64_t whole = 0, least = INT64_MAX;
  for (const int i : members) whole += padded(slots[static_cast<size_t>(i)]);
  std::vector<int64_t> packed;  // By layers per bucket, less one.
  for (size_t buckets = 2; buckets > 1;) {
    const std::vector<Bucket> made = group(slots, members, static_cast<int64_t>(packed.size()) + 1);
    buckets = made.size();
    int64_t elements = 0;
    for (const Bucket& bucket : made) {
      std::vector<double> load(static_cast<size_t>(divisor), 0);
      elements += divisor * packing_of(slots, bucket, load).share_elements;
    }
    packed.push_back(elements);
    least = std::min(least, elements);
  }
  const int64_t enough = std::max(whole + whole / 20, least + least / 50);
  return 1 + (std::find_if(packed.begin(), packed.end(),
                           [&](int64_t elements) { return elements <= enough; }) -
              packed.begin());
}

}  // namespace

FlatLayout::FlatLayout(std::vector<LocalParam> params, bool bucket_per_layer, int64_t divisor,
                       Matrices where) {
  for (LocalParam& param : params) slots_.push_back(Slot{.param = std::move(param)});
  std::vector<int> matrices, rest;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const bool apart = where != Matrices::with_the_rest && is_matrix(slots_[i].param.spec);
    (apart ? matrices : rest).push_back(static_cast<int>(i));
  }
  const bool packed = where == Matrices::packed || where == Matrices::packed_by_layers;
  const int64_t rest_layers = bucket_per_layer ? 1 : INT64_MAX;
  const int64_t matrix_layers = where == Matrices::packed && bucket_per_layer
                                    ? layers_per_packed_bucket(slots_, matrices, divisor)
                                    : rest_layers;
  std::vector<Bucket> buckets = group(slots_, rest, rest_layers);
  for (Bucket& bucket : group(slots_, matrices, matrix_layers)) {
    bucket.matrices = true;
    buckets.push_back(std::move(bucket));
  }
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& x, const Bucket& y) { return x.layer < y.layer; });
  std::vector<double> load(static_cast<size_t>(divisor), 0);
  for (Bucket& bucket : buckets) add_bucket(std::move(bucket), divisor, packed ? &load : nullptr);
  index_slots();
}

void FlatLayout::index_slots() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const ParamSpec& spec = slots_[i].param.spec;
    const size_t row = static_cast<size_t>(spec.layer + 1);
    while (index_.size() <= row) {
      index_.emplace_back();
      index_.back().fill(-1);
    }
    layer_buckets_.resize(index_.size());
    index_[row][static_cast<size_t>(spec.role)] = static_cast<int>(i);
    std::vector<int>& buckets = layer_buckets_[row];
    const auto at = std::lower_bound(buckets.begin(), buckets.end(), slots_[i].bucket);
    if (at == buckets.end() || *at != slots_[i].bucket) buckets.insert(at, slots_[i].bucket);
  }
}

void FlatLayout::add_bucket(Bucket bucket, int64_t divisor, std::vector<double>* load) {
  bucket.begin = elements_;
  for (const int i : bucket.slots)
    slots_[static_cast<size_t>(i)].bucket = static_cast<int>(buckets_.size());
  if (bucket.matrices && load != nullptr) {
    const MatrixPacking packing = packing_of(slots_, bucket, *load);
    for (size_t i = 0; i < bucket.slots.size(); ++i)
      slots_[static_cast<size_t>(bucket.slots[i])].offset =
          bucket.begin + packing.rank[i] * packing.share_elements + packing.offset[i];
    bucket.elements = divisor * packing.share_elements;
  } else {
    place_in_order(bucket);
    bucket.elements = round_up(elements_ - bucket.begin, kGranule * divisor);
  }
  elements_ = bucket.begin + bucket.elements;
  buckets_.push_back(std::move(bucket));
}

void FlatLayout::place_in_order(Bucket& bucket) {
  for (int kind = 0; kind < 4; ++kind) {
    for (const int i : bucket.slots) {
      Slot& slot = slots_[static_cast<size_t>(i)];
      if (order_in_bucket(slot.param.spec) != kind) continue;
      slot.offset = elements_;
      elements_ += padded(slot);
    }
    if (kind == 1) bucket.decay_elements = elements_ - bucket.begin;
  }
}

int FlatLayout::find(int64_t layer, Role role) const noexcept {
  const int64_t row = layer + 1;
  if (row < 0 || row >= static_cast<int64_t>(index_.size())) return -1;
  return index_[static_cast<size_t>(row)][static_cast<size_t>(role)];
}

std::span<const int> FlatLayout::buckets_of(int64_t layer) const noexcept {
  const int64_t row = layer + 1;
  if (row < 0 || row >= static_cast<int64_t>(layer_buckets_.size())) return {};
  return layer_buckets_[static_cast<size_t>(row)];
}

Range FlatLayout::in_share(const Slot& slot, const Share& share) const noexcept {
  const Bucket& bucket = this->bucket(slot.bucket);
  const int64_t part = bucket.elements / share.size;
  const int64_t begin = bucket.begin + share.rank * part - slot.offset;
  const int64_t first = std::clamp<int64_t>(begin, 0, slot.param.elements());
  const int64_t end = std::clamp<int64_t>(begin + part, 0, slot.param.elements());
  return {first, end - first};
}

}  // namespace trainer
