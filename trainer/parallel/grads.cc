// Grads: targets, and buckets on their way.
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
      done_(layout.buckets().size(), 0),
      left_(layout.buckets().size(), false),
      buffers_(layout.buckets().size()),
      arrived_(layout.buckets().size(), false) {}

void Grads::begin_step(int64_t num_microbatches) {
  num_microbatches_ = num_microbatches;
  written_.assign(written_.size(), false);
  done_.assign(done_.size(), 0);
  left_.assign(left_.size(), false);
  arrived_.assign(arrived_.size(), false);
}

/// The whole bucket of a layer that is kept in shares, in memory of this micro-batch.
const Tensor& Grads::buffer(int bucket) {
  ops::PoolTensor& memory = buffers_[static_cast<size_t>(bucket)];
  if (memory) return memory;
  const Bucket& b = layout_.buckets()[static_cast<size_t>(bucket)];
  // One micro-batch alone is written here, once a parameter: nothing is added up.
  const DType dtype =
      options_.reduce_dtype == options_.model_dtype ? options_.model_dtype : options_.grad_dtype;
  memory = pool_.take("gradients of a layer", dtype, {b.elements});
  // Some operations share one accumulate flag among parameters of two buckets, so a fresh bucket
  // must be good to add to. Padding and what nobody writes leave as zeros, too.
  ops_.run(ops::Fill{.dst = memory, .value = 0});
  return memory;
}

Grads::Target Grads::target(int64_t layer, Role role) {
  const int i = layout_.find(layer, role);
  if (i < 0) return {};
  const Slot& slot = layout_.slots()[static_cast<size_t>(i)];
  const bool accumulate = written_[static_cast<size_t>(i)];
  written_[static_cast<size_t>(i)] = true;
  if (!passes(slot.bucket)) return {grad_.whole(slot), accumulate};
  const int64_t begin = layout_.buckets()[static_cast<size_t>(slot.bucket)].begin;
  return {slot.in(buffer(slot.bucket), begin), accumulate};
}

Tensor Grads::whole(int64_t layer, Role role) const {
  const int i = layout_.find(layer, role);
  return i < 0 ? Tensor() : grad_.whole(layout_.slots()[static_cast<size_t>(i)]);
}

void Grads::layer_done(int64_t layer) {
  const std::span<const int> buckets = layout_.buckets_of(layer);
  if (data_.size() == 1) return;
  // What is a layer older has had a layer's time to travel.
  if (std::any_of(buckets.begin(), buckets.end(), [&](int b) { return passes(b); })) settle(0);
  for (const int bucket : buckets) {
    const size_t at = static_cast<size_t>(bucket);
    ++done_[at];
    const bool done = done_[at] == num_microbatches_ * layout_.buckets()[at].layers;
    const bool held = options_.hold_embedding && layer == -1;
    if (passes(bucket) || (options_.overlap && done && !held)) leave(bucket);
  }
}

void Grads::leave(int bucket) {
  const size_t at = static_cast<size_t>(bucket);
  Leaving leaving{.bucket = bucket};
  if (passes(bucket)) {
    leaving.buffer = std::move(buffers_[at]);
    const Bucket& b = layout_.buckets()[at];
    for (const int i : b.slots) written_[static_cast<size_t>(i)] = false;
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
    const int64_t part = whole.elements() / data_.size();
    data_.reduce_scatter(whole.slice(data_.rank() * part, part), whole, comm::Reduce::mean);
  } else {
    data_.all_reduce(whole, comm::Reduce::mean);
  }
  leaving.done = data_.mark();
  left_[at] = true;
  leaving_.push_back(std::move(leaving));
}

/// Waits until at most `may_remain` buckets are on their way.
void Grads::settle(size_t may_remain) {
  while (leaving_.size() > may_remain) {
    arrive(leaving_.front());
    leaving_.pop_front();
  }
}

void Grads::arrive(const Leaving& leaving) {
  ops_.follow(leaving.done);
  const size_t at = static_cast<size_t>(leaving.bucket);
  const auto share = [&](const Tensor& whole) {
    const int64_t part = whole.elements() / data_.size();
    return whole.slice(data_.rank() * part, part);
  };
  const Tensor& reduced = leaving.cast ? leaving.cast : leaving.buffer;
  if (leaving.buffer) {
    if (arrived_[at])
      ops_.run(ops::Add{.dst = grad_.share(leaving.bucket), .a = share(reduced)});
    else
      ops_.run(ops::Copy{.dst = grad_.share(leaving.bucket), .src = share(reduced)});
    arrived_[at] = true;
  } else if (leaving.cast) {
    if (options_.in_shares)
      ops_.run(ops::Copy{.dst = grad_.share(leaving.bucket), .src = share(reduced)});
    else
      ops_.run(ops::Copy{.dst = grad_.bucket(leaving.bucket), .src = reduced});
  }
}

void Grads::finish() {
  if (data_.size() == 1) return;
  for (size_t b = 0; b < left_.size(); ++b)
    if (!left_[b]) leave(static_cast<int>(b));
  settle(0);
}

}  // namespace trainer
