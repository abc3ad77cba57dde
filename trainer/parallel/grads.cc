// Grads: targets, and buckets being reduced.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/grads.h"

#include <algorithm>
#include <span>
#include <utility>

namespace trainer {

Grads::Grads(const FlatLayout& layout, const FlatMemory& grad, ops::Ops& ops, comm::Comm& data,
             ops::Pool& pool, const GradsOptions& options)
    : layout_(layout),
      grad_(grad),
      ops_(ops),
      data_(data),
      pool_(pool),
      options_(options),
      written_(layout.slots().size(), false),
      progress_(layout.buckets().size()) {}

void Grads::begin_step(int64_t num_microbatches) {
  num_microbatches_ = num_microbatches;
  written_.assign(written_.size(), false);
  for (Progress& progress : progress_) progress = {};
}

/// This rank's part of a whole bucket.
Tensor Grads::share_of(const Tensor& whole) const {
  const int64_t part = whole.elements() / data_.size();
  return whole.slice(data_.rank() * part, part);
}

/// The whole bucket of a layer whose gradients are kept in shares, in this micro-batch's memory.
const Tensor& Grads::buffer(int bucket) {
  ops::PoolTensor& memory = progress_of(bucket).buffer;
  if (memory) return memory;
  // This memory is written by one micro-batch, once for each parameter: nothing accumulates.
  const DType dtype =
      options_.reduce_dtype == options_.model_dtype ? options_.model_dtype : options_.grad_dtype;
  memory = pool_.take("gradients of a layer", dtype, {layout_.bucket(bucket).elements});
  // Some operations share one accumulate flag among parameters of two buckets, so a new bucket must
  // be zeroed. Padding and unwritten gradients are then reduced as zeros, too.
  ops_.run(ops::Fill{.dst = memory, .value = 0});
  return memory;
}

Grads::Target Grads::target(int64_t layer, Role role) {
  const int i = layout_.find(layer, role);
  if (i < 0) return {};
  const Slot& slot = layout_.slot(i);
  const bool accumulate = written_[static_cast<size_t>(i)];
  written_[static_cast<size_t>(i)] = true;
  if (!passes(slot.bucket)) return {grad_.whole(slot), accumulate};
  return {slot.in(buffer(slot.bucket), layout_.bucket(slot.bucket).begin), accumulate};
}

Tensor Grads::whole(int64_t layer, Role role) const {
  const int i = layout_.find(layer, role);
  return i < 0 ? Tensor() : grad_.whole(layout_.slot(i));
}

void Grads::layer_done(int64_t layer) {
  const std::span<const int> buckets = layout_.buckets_of(layer);
  if (data_.size() == 1) return;
  // A bucket of the previous layer has had the time of one layer for its communication.
  if (std::any_of(buckets.begin(), buckets.end(), [&](int b) { return passes(b); })) settle(0);
  for (const int bucket : buckets) {
    const int64_t all = num_microbatches_ * layout_.bucket(bucket).layers;
    const bool done = ++progress_of(bucket).layers_done == all;
    const bool held = options_.hold_embedding && layer == -1;
    if (passes(bucket) || (options_.overlap && done && !held)) leave(bucket);
  }
}

void Grads::leave(int bucket) {
  Progress& progress = progress_of(bucket);
  Leaving leaving{.bucket = bucket};
  if (passes(bucket)) {
    leaving.buffer = std::move(progress.buffer);
    for (const int i : layout_.bucket(bucket).slots) written_[static_cast<size_t>(i)] = false;
  }
  Tensor whole = leaving.buffer ? leaving.buffer.get() : grad_.bucket(bucket);
  if (whole.dtype != options_.reduce_dtype) {
    if (!leaving.buffer) settle(1);
    leaving.cast = pool_.take("gradients to reduce", options_.reduce_dtype, {whole.elements()});
    ops_.run(ops::Copy{.dst = leaving.cast, .src = whole});
    whole = leaving.cast;
  }
  data_.follow(ops_.mark());
  if (options_.in_shares) {
    data_.reduce_scatter(share_of(whole), whole, comm::Reduce::mean);
  } else {
    data_.all_reduce(whole, comm::Reduce::mean);
  }
  leaving.done = data_.mark();
  progress.left = true;
  leaving_.push_back(std::move(leaving));
}

/// Waits until at most `may_remain` buckets are being reduced.
void Grads::settle(size_t may_remain) {
  while (leaving_.size() > may_remain) {
    arrive(leaving_.front());
    leaving_.pop_front();
  }
}

void Grads::arrive(const Leaving& leaving) {
  ops_.follow(leaving.done);
  const Tensor& reduced = leaving.cast ? leaving.cast : leaving.buffer;
  if (leaving.buffer) {
    if (std::exchange(progress_of(leaving.bucket).arrived, true))
      ops_.run(ops::Add{.dst = grad_.share(leaving.bucket), .a = share_of(reduced)});
    else
      ops_.run(ops::Copy{.dst = grad_.share(leaving.bucket), .src = share_of(reduced)});
  } else if (leaving.cast) {
    if (options_.in_shares)
      ops_.run(ops::Copy{.dst = grad_.share(leaving.bucket), .src = share_of(reduced)});
    else
      ops_.run(ops::Copy{.dst = grad_.bucket(leaving.bucket), .src = reduced});
  }
}

void Grads::finish() {
  if (data_.size() == 1) return;
  for (int bucket = 0; bucket < layout_.num_buckets(); ++bucket)
    if (!progress_of(bucket).left) leave(bucket);
  settle(0);
}

}  // namespace trainer
