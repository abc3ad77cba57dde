// Batches: slots in host memory, used in turn.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/batches.h"

#include <string>

namespace trainer {

DeviceBatch::DeviceBatch(const Setup& setup, ops::Arena& device) : share_(setup.share) {
  const EngineOptions& o = setup.options;
  const auto cut = [&](DType dtype) {
    return device.cut("batch", dtype, {o.max_microbatches, o.seq_length, o.micro_batch_size});
  };
  tokens = cut(DType::i32);
  labels = cut(DType::i32);
  positions = cut(DType::i32);
  loss_mask = cut(DType::f32);
  if (setup.keys_hidden()) first_key = cut(DType::i32);
}

MicroBatch DeviceBatch::micro_batch(int64_t index) const {
  const int64_t seq_length = tokens.shape[1], size = tokens.shape[2];
  const auto part = [&](const Tensor& t) {
    return t ? t.slice(index, 1).view({seq_length, size}) : Tensor();
  };
  return {.tokens = part(tokens),
          .labels = part(labels),
          .positions = part(positions),
          .loss_mask = part(loss_mask),
          .first_key = part(first_key),
          .index = index,
          .first_sample = (index * share_.size + share_.rank) * size};
}

Batches::Batches(ops::Ops& ops, const DeviceBatch& device)
    : ops_(ops),
      device_(device),
      host_(ops, kHostSlots * device.tokens.elements() * (device.first_key ? 5 : 4)) {}

HostBatch Batches::slot(int64_t at) const {
  const int64_t count = device_.tokens.elements(), arrays = device_.first_key ? 5 : 4;
  const auto array = [&](int64_t i) { return host_.slice((at * arrays + i) * count, count); };
  return {.tokens = array(0),
          .labels = array(1),
          .positions = array(2),
          .loss_mask = {reinterpret_cast<float*>(array(3).data()), array(3).size()},
          .first_key = device_.first_key ? array(4) : std::span<int32_t>()};
}

HostBatch Batches::next() {
  const int64_t at = given_++ % kHostSlots;
  ops_.wait(read_[static_cast<size_t>(at)]);
  return slot(at);
}

void Batches::upload(int64_t num_microbatches) {
  const int64_t most = device_.tokens.shape[0];
  if (given_ == 0) throw ShapeError("engine: a step before host_batch()");
  if (num_microbatches < 1 || num_microbatches > most)
    throw ShapeError("engine: " + std::to_string(num_microbatches) + " micro-batches: 1 to " +
                     std::to_string(most));
  const int64_t at = (given_ - 1) % kHostSlots;
  const HostBatch host = slot(at);
  const auto copy = [&](const Tensor& dst, const void* src) {
    if (dst) ops_.upload(dst.slice(0, num_microbatches), src);
  };
  copy(device_.tokens, host.tokens.data());
  copy(device_.labels, host.labels.data());
  copy(device_.positions, host.positions.data());
  copy(device_.loss_mask, host.loss_mask.data());
  copy(device_.first_key, host.first_key.data());
  read_[static_cast<size_t>(at)] = ops_.mark();
}

void Results::download(const Tensor& state) {
  const int64_t at = steps_++ % kHostSlots;
  ops_.download(&host_[at], state);
  written_[static_cast<size_t>(at)] = ops_.mark();
}

const ops::StepState& Results::get(int64_t steps_ago) {
  if (steps_ago < 0 || steps_ago >= kHostSlots || steps_ago >= steps_)
    throw ShapeError("engine: result of " + std::to_string(steps_ago) + " steps ago: not kept");
  const int64_t at = (steps_ - 1 - steps_ago) % kHostSlots;
  ops_.wait(written_[static_cast<size_t>(at)]);
  return host_[at];
}

const ops::StepState& Results::now(const Tensor& state) {
  ops_.download(&host_[kHostSlots], state);
  ops_.synchronize();
  return host_[kHostSlots];
}

}  // namespace trainer
