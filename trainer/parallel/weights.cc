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

void Weights::gather_as_fp8(const Fp8Flat& fp8, RoundWeight round) {
  fp8_ = &fp8;
  round_ = std::move(round);
}

int64_t Weights::gathered_bytes(int bucket) const noexcept {
  return layout_.bucket(bucket).elements * ops::size_bytes(gathered_dtype(bucket));
}

/// Of each buffer: the largest layer that does not stay; 0 where all do.
int64_t Weights::buffer_bytes() const noexcept {
  int64_t most = 0;
  for (int b = 0; b < layout_.num_buckets(); ++b) {
    if (stays(b)) continue;
    int64_t layer = 0;
    for (const int bucket : neighbours(b)) layer += gathered_bytes(bucket);
    most = std::max(most, layer);
  }
  return most;
}

/// All buckets of the layer whose first one is `bucket`. They are consecutive in the layout.
std::span<const int> Weights::neighbours(int bucket) const noexcept {
  return layout_.buckets_of(layout_.bucket(bucket).layer);
}

void Weights::cut_buffers(ops::Arena& arena) {
  const int64_t bytes = buffer_bytes();
  if (bytes == 0) return;
  for (Buffer& buffer : buffers_) buffer.memory = arena.cut("gathered layers", DType::u8, {bytes});
}

void Weights::clear_buffers() {
  for (const Buffer& buffer : buffers_)
    if (buffer.memory) ops_.run(ops::Fill{.dst = buffer.memory, .value = 0});
}

void Weights::gather_whole() {
  if (!updated_in_shares_) return;
  data_.follow(ops_.mark());
  for (int bucket = 0; bucket < layout_.num_buckets(); ++bucket) {
    if (!stays(bucket) && !as_fp8(bucket)) continue;
    if (model_.holds_whole(bucket))
      gather_bucket(model_.bucket(bucket), bucket);
    else if (stays(bucket))
      gather_bucket(fp8_->bytes(bucket), bucket);
    if (as_fp8(bucket)) gather_others(bucket);
    arrival_of(bucket) = {data_.mark(), true};
  }
}

/// Queues the gathering of a bucket, after what `data` has followed; where it goes as FP8, this
/// rank's share is rounded first.
void Weights::gather_bucket(const Tensor& whole, int bucket) {
  if (!as_fp8(bucket)) return data_.all_gather(whole, model_.share(bucket));
  const Bucket& b = layout_.bucket(bucket);
  const Share share{data_.rank(), data_.size()};
  for (const int i : b.slots) {
    const Slot& slot = layout_.slot(i);
    const Range range = layout_.in_share(slot, share);
    if (!fp8_->in_fp8(i) || range.count == 0) continue;
    round_(slot.param, model_.range(slot),
           whole.slice(slot.offset + range.first - b.begin, range.count));
  }
  const int64_t part = b.elements / share.size;
  data_.follow(ops_.mark());
  data_.all_gather(whole, whole.slice(share.rank * part, part));
}

/// Queues the distribution of a bucket's parameters that do not go as FP8.
void Weights::gather_others(int bucket) {
  if (fp8_->pieces(bucket).empty()) return;
  const Bucket& b = layout_.bucket(bucket);
  const int64_t first = b.begin + data_.rank() * (b.elements / data_.size());
  for (const Fp8Flat::Piece& piece : fp8_->pieces(bucket))
    if (piece.owner == data_.rank())
      ops_.run(ops::Copy{
          .dst = fp8_->other(piece),
          .src = model_.share(bucket).slice(piece.range.first - first, piece.range.count)});
  data_.follow(ops_.mark());
  data_.group_begin();
  for (const Fp8Flat::Piece& piece : fp8_->pieces(bucket))
    data_.broadcast(fp8_->other(piece), piece.owner);
  data_.group_end();
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

/// A bucket's part of the buffer that has its layer.
Tensor Weights::part_of(const Buffer& buffer, int bucket) const {
  int64_t before = 0;
  for (const int b : neighbours(bucket))
    if (b < bucket) before += gathered_bytes(b);
  Tensor part = buffer.memory.slice(before, gathered_bytes(bucket));
  part.dtype = gathered_dtype(bucket);
  part.shape[0] = layout_.bucket(bucket).elements;
  return part;
}

/// Starts gathering a layer, unless it is here, into an unused buffer.
Weights::Buffer& Weights::fetch(int bucket) {
  if (Buffer* here = find(bucket)) return *here;
  const auto free = std::find_if(buffers_.begin(), buffers_.end(),
                                 [](const Buffer& buffer) { return !buffer.in_use; });
  if (free == buffers_.end()) throw ShapeError("weights: too many layers gathered at a time");
  data_.follow(ops_.mark());
  for (const int part : neighbours(bucket)) gather_bucket(part_of(*free, part), part);
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
  if (stays(buckets.front())) {
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
  if (buckets.empty() || stays(buckets.front())) return;
  if (Buffer* here = find(buckets.front())) here->in_use = false;
}

void Weights::await(Arrival& arrival) {
  if (std::exchange(arrival.under_way, false)) ops_.follow(arrival.mark);
}

/// The buffer with the layer of a parameter.
const Weights::Buffer& Weights::in_use(int bucket, const Slot& slot) {
  const Buffer* here = find(neighbours(bucket).front());
  if (here == nullptr || !here->in_use)
    throw ShapeError("weights: " + slot.param.spec.name + ": its layer is not gathered");
  return *here;
}

Tensor Weights::get(int64_t layer, Role role) {
  const int i = layout_.find(layer, role);
  if (i < 0) return {};
  const Slot& slot = layout_.slot(i);
  if (stays(slot.bucket) || as_fp8(slot.bucket)) await(arrival_of(slot.bucket));
  if (as_fp8(slot.bucket)) return fp8_->other(i);
  if (model_.holds_whole(slot.bucket)) return model_.whole(slot);
  return slot.in(part_of(in_use(slot.bucket, slot), slot.bucket),
                 layout_.bucket(slot.bucket).begin);
}

Tensor Weights::get_fp8(int64_t layer, Role role) {
  const int i = layout_.find(layer, role);
  if (i < 0 || fp8_ == nullptr || !fp8_->in_fp8(i)) return {};
  const Slot& slot = layout_.slot(i);
  const int64_t begin = layout_.bucket(slot.bucket).begin;
  if (!stays(slot.bucket)) return slot.in(part_of(in_use(slot.bucket, slot), slot.bucket), begin);
  await(arrival_of(slot.bucket));
  return slot.in(fp8_->bytes(slot.bucket), begin);
}

}  // namespace trainer
