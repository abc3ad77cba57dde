// Optimizer: norm, check of the step, update.
//
// SPDX-License-Identifier: MIT
#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <cstddef>

#include "trainer/optim/muon.h"

namespace trainer {
namespace {

using Buckets = FlatMemory::Buckets;

constexpr StateSpec kAdamW[] = {{"exp_avg", "moments"}, {"exp_avg_sq", "moments"}};
constexpr StateSpec kMuon[] = {{"exp_avg", "moments", Buckets::others},
                               {"exp_avg_sq", "moments", Buckets::others},
                               {"momentum_buffer", "momentum", Buckets::matrices, true}};
enum : size_t { kExpAvg, kExpAvgSq };  ///< Indices in both lists.

/// state.loss as a tensor.
Tensor loss_of(const Tensor& state) {
  Tensor loss = state.slice(offsetof(ops::StepState, loss), sizeof(float));
  loss.dtype = DType::f32;
  loss.shape[0] = 1;
  return loss;
}

bool counts(const Slot& slot, const Topology& t) {
  const bool copy_of_another_tensor_rank = slot.param.spec.split < 0 && t.tensor_rank > 0;
  const bool copy_of_first_stage = slot.param.spec.layer < 0 && !t.first_stage();
  return !copy_of_another_tensor_rank && !copy_of_first_stage;
}

/// sums[1] = this rank's term of the loss, which is summed over all ranks.
void take_loss(ops::Ops& ops, const Topology& t, const Tensor& state, const Tensor& sums) {
  const Tensor part = sums.slice(1, 1);
  ops.run(ops::Fill{.dst = part, .value = 0});
  if (t.last_stage() && t.tensor_rank == 0)
    ops.run(ops::Add{
        .dst = part, .a = loss_of(state), .alpha = 1.0f / static_cast<float>(t.data_size)});
}

}  // namespace

std::span<const StateSpec> optimizer_states(OptimizerKind kind) noexcept {
  if (kind == OptimizerKind::muon) return kMuon;
  return kAdamW;
}

bool keeps(const StateSpec& state, const ParamSpec& param) noexcept {
  return state.buckets == Buckets::all || (state.buckets == Buckets::matrices) == is_matrix(param);
}

Matrices matrices_for(OptimizerKind kind, int zero_stage) noexcept {
  if (kind == OptimizerKind::adamw) return Matrices::with_the_rest;
  if (zero_stage == 0) return Matrices::apart;
  // From ZeRO 2 on, weights or gradients exist only one layer at a time.
  return zero_stage == 1 ? Matrices::packed : Matrices::packed_by_layers;
}

std::vector<Tensor> counted_parts(const FlatLayout& layout, const FlatMemory& grad,
                                  const Topology& topology) {
  std::vector<Tensor> parts;
  for (const Bucket& bucket : layout.buckets()) {
    std::vector<const Slot*> slots;
    for (const int i : bucket.slots) slots.push_back(&layout.slot(i));
    std::sort(slots.begin(), slots.end(),
              [](const Slot* x, const Slot* y) { return x->offset < y->offset; });
    for (const Slot* slot : slots) {
      const Tensor range = counts(*slot, topology) ? grad.range(*slot) : Tensor();
      if (!range) continue;
      const int64_t item = size_bytes(range.dtype);
      if (!parts.empty()) {
        // The padding between them is zero. Neighbours with less than a granule of padding between
        // them become one part.
        Tensor& last = parts.back();
        const int64_t gap =
            (static_cast<std::byte*>(range.data) - static_cast<std::byte*>(last.data)) / item -
            last.elements();
        if (gap >= 0 && gap < FlatLayout::kGranule) {
          last.shape[0] += gap + range.elements();
          continue;
        }
      }
      parts.push_back(range);
    }
  }
  return parts;
}

void judge(ops::Ops& ops, const Groups& groups, const std::vector<Tensor>& counted,
           const OptimizerOptions& options, const Tensor& state, const Tensor& sums) {
  const Tensor square = sums.slice(0, 1);
  if (counted.empty()) ops.run(ops::Fill{.dst = square, .value = 0});
  for (const Tensor& part : counted)
    ops.run(
        ops::SumSquares{.out = square, .x = part, .accumulate = part.data != counted.front().data});
  share_loss(ops, groups, state, sums);
  ops.run(ops::JudgeGradients{.state = state,
                              .sum_squares = square,
                              .clip_grad = options.clip_grad,
                              .dynamic = options.scaler.dynamic,
                              .min_scale = options.scaler.min,
                              .window = options.scaler.window,
                              .hysteresis = options.scaler.hysteresis});
}

void share_loss(ops::Ops& ops, const Groups& groups, const Tensor& state, const Tensor& sums) {
  if (groups.world->size() == 1) return;
  take_loss(ops, groups.topology, state, sums);
  await_collectives(ops, *groups.world, [&] { groups.world->all_reduce(sums, comm::Reduce::sum); });
  ops.run(ops::Copy{.dst = loss_of(state), .src = sums.slice(1, 1)});
}

void update(const Update& u) {
  const OptimizerOptions& options = u.options;
  u.ops.run(ops::AdamCorrections{.state = u.state, .beta1 = options.beta1, .beta2 = options.beta2});
  for (int at = 0; at < u.layout.num_buckets(); ++at) {
    const Bucket& bucket = u.layout.bucket(at);
    if (bucket.matrices) {
      update_matrices(u, at);
      continue;
    }
    const int64_t elements = options.in_shares ? bucket.elements / u.share.size : bucket.elements;
    const int64_t first = options.in_shares ? u.share.rank * elements : 0;
    u.ops.run(ops::AdamW{
        .model = u.model_apart() ? u.part(u.flats.model, at) : Tensor(),
        .main = u.part(u.flats.main, at),
        .m = u.part(u.flats.states[kExpAvg], at),
        .v = u.part(u.flats.states[kExpAvgSq], at),
        .grad = u.part(u.flats.grad, at),
        .state = u.state,
        .decay_elements = std::clamp<int64_t>(bucket.decay_elements - first, 0, elements),
        .beta1 = options.beta1,
        .beta2 = options.beta2,
        .eps = options.eps,
        .seed = options.seed,
        .first_element = bucket.begin + first});
  }
}

}  // namespace trainer
