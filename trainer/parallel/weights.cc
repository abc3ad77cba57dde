// Weights: gathering, ahead of use if the order is known.
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
      arrivals_(layout.buckets().size()) {}

/// Of each buffer: the largest layer that does not stay whole; 0 where all do.
int64_t Weights::buffer_elements() const noexcept {
  int64_t most = 0;
  for (int b = 0; b < layout_.num_buckets(); ++b) {
    if (model_.holds_whole(b)) continue;
    int64_t layer = 0;
    for (const int bucket : neighbours(b)) layer += layout_.bucket(bucket).elements;
    most = std::max(most, layer);
  }
  return most;
}

/// All buckets of the layer whose first one is `bucket`. They are consecutive in the layout.
std::span<const int> Weights::neighbours(int bucket) const noexcept {
  return layout_.buckets_of(layout_.bucket(bucket).layer);
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
  for (int bucket = 0; bucket < layout_.num_buckets(); ++bucket) {
    if (!model_.holds_whole(bucket)) continue;
    data_.all_gather(model_.bucket(bucket), model_.share(bucket));
    arrival_of(bucket) = {data_.mark(), true};
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
  for (Buffer& buffer : buffers_) waiting |= std::exchange(buffer.arrival.under_way, false);
  for (Arrival& arrival : arrivals_) waiting |= std::exchange(arrival.under_way, false);
  if (waiting) ops_.follow(data_.mark());
}

Weights::Buffer* Weights::find(int bucket) {
  for (Buffer& buffer : buffers_)
    if (buffer.bucket == bucket) return &buffer;
  return nullptr;
}

/// Starts gathering a layer, unless it is here, into an unused buffer.
Weights::Buffer& Weights::fetch(int bucket) {
  if (Buffer* here = find(bucket)) return *here;
  const auto free = std::find_if(buffers_.begin(), buffers_.end(),
                                 [](const Buffer& buffer) { return !buffer.in_use; });
  if (free == buffers_.end()) throw ShapeError("weights: too many layers gathered at a time");
  data_.follow(ops_.mark());
  for (const int part : neighbours(bucket)) {
    const Bucket& b = layout_.bucket(part);
    data_.all_gather(free->memory.slice(b.begin - layout_.bucket(bucket).begin, b.elements),
                     model_.share(part));
  }
  free->bucket = bucket;
  free->arrival = {data_.mark(), true};
  return *free;
}

/// Fetches the layer that this pass will need after `bucket`.
void Weights::fetch_next(int after) {
  if (noting_) {
    if (order_->empty() || order_->back() != after) order_->push_back(after);
    return;
  }
  if (position_ >= order_->size()) return;
  if ((*order_)[position_] != after) {
    // The same layer again is not a step forward; if the order differs from the recorded one,
    // nothing is fetched.
    if (position_ == 0 || (*order_)[position_ - 1] != after) position_ = order_->size();
    return;
  }
  if (++position_ < order_->size()) fetch((*order_)[position_]);
}

void Weights::gather(int64_t layer) {
  const std::span<const int> buckets = layout_.buckets_of(layer);
  if (buckets.empty()) return;
  if (model_.holds_whole(buckets.front())) {
    for (const int bucket : buckets) await(arrival_of(bucket));
    return;
  }
  Buffer& buffer = fetch(buckets.front());
  buffer.in_use = true;
  fetch_next(buckets.front());
  await(buffer.arrival);
}

void Weights::release(int64_t layer) {
  const std::span<const int> buckets = layout_.buckets_of(layer);
  if (buckets.empty() || model_.holds_whole(buckets.front())) return;
  if (Buffer* here = find(buckets.front())) here->in_use = false;
}

void Weights::await(Arrival& arrival) {
  if (std::exchange(arrival.under_way, false)) ops_.follow(arrival.mark);
}

Tensor Weights::get(int64_t layer, Role role) {
  const int i = layout_.find(layer, role);
  if (i < 0) return {};
  const Slot& slot = layout_.slot(i);
  if (model_.holds_whole(slot.bucket)) {
    await(arrival_of(slot.bucket));
    return model_.whole(slot);
  }
  const int first = layout_.buckets_of(layer).front();
  const Buffer* here = find(first);
  if (here == nullptr || !here->in_use)
    throw ShapeError("weights: " + slot.param.spec.name + ": its layer is not gathered");
  return slot.in(here->memory, layout_.bucket(first).begin);
}

}  // namespace trainer
