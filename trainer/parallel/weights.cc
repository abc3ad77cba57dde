// Weights: gathering, ahead where the order is known.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/weights.h"

#include <algorithm>
#include <string>
#include <utility>

namespace trainer {

Weights::Weights(const FlatLayout& layout, const FlatMemory& model, ops::Ops& ops, comm::Comm& data,
                 bool updated_in_shares)
    : layout_(layout),
      model_(model),
      ops_(ops),
      data_(data),
      updated_in_shares_(updated_in_shares && data.size() > 1),
      arrived_(layout.buckets().size()),
      under_way_(layout.buckets().size(), false) {}

/// Of each buffer: the largest layer that does not stay whole; 0 where all do.
int64_t Weights::buffer_elements() const noexcept {
  int64_t most = 0;
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    if (model_.holds_whole(static_cast<int>(b))) continue;
    int64_t layer = 0;
    for (const int bucket : neighbours(static_cast<int>(b)))
      layer += layout_.buckets()[static_cast<size_t>(bucket)].elements;
    most = std::max(most, layer);
  }
  return most;
}

/// All buckets of the layer whose first one is `bucket`. They follow each other in the layout.
std::span<const int> Weights::neighbours(int bucket) const noexcept {
  return layout_.buckets_of(layout_.buckets()[static_cast<size_t>(bucket)].layer);
}

void Weights::cut_buffers(ops::Arena& arena) {
  const int64_t elements = buffer_elements();
  if (elements == 0) return;
  for (Buffer& buffer : buffers_)
    buffer.memory = arena.cut("gathered layers", model_.tensor().dtype, {elements});
}

void Weights::clear_buffers() {
  for (const Buffer& buffer : buffers_)
    if (buffer.memory) ops_.run(ops::Fill{.dst = buffer.memory, .value = 0});
}

void Weights::gather_whole() {
  if (!updated_in_shares_) return;
  data_.follow(ops_.mark());
  for (size_t b = 0; b < layout_.buckets().size(); ++b) {
    const int bucket = static_cast<int>(b);
    if (!model_.holds_whole(bucket)) continue;
    data_.all_gather(model_.bucket(bucket), model_.share(bucket));
    arrived_[b] = data_.mark();
    under_way_[b] = true;
  }
}

void Weights::gather_whole_now() {
  gather_whole();
  end_pass();
}

void Weights::begin_pass(int64_t kind) {
  for (Buffer& buffer : buffers_) buffer.bucket = -1;
  if (!buffers_.front().memory) return;
  const auto [at, is_new] = orders_.try_emplace(kind);
  order_ = &at->second;
  noting_ = is_new;
  position_ = 0;
  if (!noting_ && !order_->empty()) fetch(order_->front());
}

void Weights::end_pass() {
  bool waiting = false;
  for (Buffer& buffer : buffers_) waiting |= std::exchange(buffer.under_way, false);
  for (size_t b = 0; b < under_way_.size(); ++b) {
    waiting = waiting || under_way_[b];
    under_way_[b] = false;
  }
  if (waiting) ops_.follow(data_.mark());
}

Weights::Buffer* Weights::find(int bucket) {
  for (Buffer& buffer : buffers_)
    if (buffer.bucket == bucket) return &buffer;
  return nullptr;
}

/// Begins to gather a layer, unless it is here, into a buffer that nobody reads.
Weights::Buffer& Weights::fetch(int bucket) {
  if (Buffer* here = find(bucket)) return *here;
  const auto free = std::find_if(buffers_.begin(), buffers_.end(),
                                 [](const Buffer& buffer) { return !buffer.in_use; });
  if (free == buffers_.end()) throw ShapeError("weights: too many layers gathered at a time");
  data_.follow(ops_.mark());
  for (const int part : neighbours(bucket)) {
    const int64_t elements = layout_.buckets()[static_cast<size_t>(part)].elements;
    data_.all_gather(free->memory.slice(begin_of(part) - begin_of(bucket), elements),
                     model_.share(part));
  }
  free->bucket = bucket;
  free->arrived = data_.mark();
  free->under_way = true;
  return *free;
}

/// The layer that this pass will want after `bucket`.
void Weights::fetch_next(int after) {
  if (noting_) {
    if (order_->empty() || order_->back() != after) order_->push_back(after);
    return;
  }
  if (position_ >= order_->size()) return;
  if ((*order_)[position_] != after) {
    // The same layer once more is no step forward; another order than noted is not followed.
    if (position_ == 0 || (*order_)[position_ - 1] != after) position_ = order_->size();
    return;
  }
  if (++position_ < order_->size()) fetch((*order_)[position_]);
}

void Weights::gather(int64_t layer) {
  const std::span<const int> buckets = layout_.buckets_of(layer);
  if (buckets.empty()) return;
  if (model_.holds_whole(buckets.front())) {
    for (const int bucket : buckets) await(bucket);
    return;
  }
  Buffer& buffer = fetch(buckets.front());
  buffer.in_use = true;
  fetch_next(buckets.front());
  if (std::exchange(buffer.under_way, false)) ops_.follow(buffer.arrived);
}

void Weights::release(int64_t layer) {
  const std::span<const int> buckets = layout_.buckets_of(layer);
  if (buckets.empty() || model_.holds_whole(buckets.front())) return;
  if (Buffer* here = find(buckets.front())) here->in_use = false;
}

void Weights::await(int bucket) {
  const size_t at = static_cast<size_t>(bucket);
  if (!under_way_[at]) return;
  under_way_[at] = false;
  ops_.follow(arrived_[at]);
}

Tensor Weights::get(int64_t layer, Role role) {
  const int i = layout_.find(layer, role);
  if (i < 0) return {};
  const Slot& slot = layout_.slots()[static_cast<size_t>(i)];
  if (model_.holds_whole(slot.bucket)) {
    await(slot.bucket);
    return model_.whole(slot);
  }
  const int first = layout_.buckets_of(layer).front();
  const Buffer* here = find(first);
  if (here == nullptr || !here->in_use)
    throw ShapeError("weights: " + slot.param.spec.name + ": its layer is not gathered");
  return slot.in(here->memory, begin_of(first));
}

}  // namespace trainer
