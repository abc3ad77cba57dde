// Fp8Parts: scales and rounding of parts.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/fp8_parts.h"

#include <algorithm>
#include <utility>

#include "trainer/parallel/groups.h"

namespace trainer {
namespace {

constexpr DType kWeights = DType::e4m3;

ops::ScaleShape blocks_of(const LocalParam& param) {
  return {ops::scale_blocks(param.shape[0]), ops::scale_blocks(param.shape[1])};
}
ops::ScaleShape row_scales_of(const LocalParam& param) {
  return ops::scale_shape(ops::Scaling::square_block, param.shape[0], param.shape[1]);
}
ops::ScaleShape column_scales_of(const LocalParam& param) {
  return ops::scale_shape(ops::Scaling::square_block, param.shape[1], param.shape[0]);
}

}  // namespace

int64_t Fp8Parts::list(const Fp8Options& options, std::vector<Part> parts) {
  options_ = options;
  parts_ = std::move(parts);
  int64_t numbers = 0;
  for (const Part& part : parts_)
    if (in_blocks())
      numbers += blocks_of(*part.param).count() + row_scales_of(*part.param).count() +
                 column_scales_of(*part.param).count();
  return numbers;
}

void Fp8Parts::place(const Tensor& scale, const Tensor& amax, const Tensor& memory) {
  all_scale_ = scale;
  all_amax_ = amax;
  if (!in_blocks()) {
    const int64_t layers = amax.elements() / kNumLinears;
    for (Part& part : parts_) {
      const int64_t at = static_cast<int64_t>(part.linear) * layers + part.param->spec.layer;
      part.amax = amax.slice(at, 1);
      part.row_scale = part.column_scale = scale.slice(at, 1).view({ops::kScaleSize});
    }
    return;
  }
  int64_t at = 0;
  const auto take = [&](const ops::ScaleShape& shape) {
    at += shape.count();
    return memory.slice(at - shape.count(), shape.count()).view({shape.rows, shape.columns});
  };
  // Side by side, so that one collective reduces them all.
  for (Part& part : parts_) part.amax = take(blocks_of(*part.param));
  all_amax_ = memory.slice(0, at);
  for (Part& part : parts_) {
    part.row_scale = take(row_scales_of(*part.param));
    part.column_scale = take(column_scales_of(*part.param));
  }
}

const Fp8Parts::Part& Fp8Parts::part_of(int64_t layer, Linear linear) const {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.param->spec.layer == layer && part.linear == linear;
  });
  if (found == parts_.end())
    throw ShapeError("fp8: a weight of layer " + std::to_string(layer) + " is not gathered");
  return *found;
}

ops::FlatPlace Fp8Parts::place_of(const Part& part) const noexcept {
  return {.first = part.first, .rows = part.param->shape[0], .columns = part.param->shape[1]};
}

void Fp8Parts::forget(ops::Ops& ops) const {
  if (!empty()) ops.run(ops::Fill{.dst = all_amax_, .value = 0});
}

void Fp8Parts::find_scales(ops::Ops& ops, comm::Comm& data,
                           const std::vector<const Part*>& unknown) const {
  if (unknown.empty()) return;
  if (in_blocks()) forget(ops);
  for (const Part* part : unknown) {
    if (!part->x) continue;
    if (in_blocks())
      ops.run(ops::AmaxOfBlocks{.amax = part->amax, .x = part->x, .place = place_of(*part)});
    else
      ops.run(ops::QuantizeFlat{.out = {}, .scale = {}, .amax = part->amax, .x = part->x});
  }
  await_collectives(ops, data, [&] { data.all_reduce(all_amax_, comm::Reduce::max); });
  const auto update = [&](const Tensor& scale, const Tensor& amax) {
    ops.run(ops::UpdateScales{
        .scale = scale, .amax = amax, .history = {}, .dtype = kWeights, .margin = options_.margin});
  };
  if (options_.recipe == Fp8Options::Recipe::tensorwise) return update(all_scale_, all_amax_);
  for (const Part* part : unknown) {
    if (in_blocks())
      ops.run(ops::ScalesOfBlocks{.row_scale = part->row_scale,
                                  .column_scale = part->column_scale,
                                  .amax = part->amax,
                                  .dtype = kWeights,
                                  .margin = options_.margin,
                                  .power_of_two = options_.power_of_two});
    else
      update(part->row_scale.view({1, ops::kScaleSize}), part->amax);
  }
}

void Fp8Parts::round(ops::Ops& ops, const LocalParam& param, const Tensor& x,
                     const Tensor& out) const {
  const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) {
    return p.param->spec.layer == param.spec.layer && p.param->spec.role == param.spec.role;
  });
  if (in_blocks())
    return ops.run(ops::QuantizeFlatInBlocks{.out = out,
                                             .amax = part->amax,
                                             .x = x,
                                             .place = place_of(*part),
                                             .margin = options_.margin,
                                             .power_of_two = options_.power_of_two});
  const bool delayed = options_.recipe == Fp8Options::Recipe::delayed;
  ops.run(ops::QuantizeFlat{
      .out = out, .scale = part->row_scale, .amax = delayed ? part->amax : Tensor(), .x = x});
}

}  // namespace trainer
