// Fp8: scales, and the weights of a pass.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/fp8.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "trainer/model/run.h"
#include "trainer/parallel/groups.h"

namespace trainer {
namespace {

constexpr int64_t kOperands = 3;

std::optional<Linear> linear_of(Role role) noexcept {
  switch (role) {
    case Role::qkv_weight:
      return Linear::qkv;
    case Role::proj_weight:
      return Linear::proj;
    case Role::fc1_weight:
      return Linear::fc1;
    case Role::fc2_weight:
      return Linear::fc2;
    default:
      return std::nullopt;
  }
}

Quantized lent(const Quantized& from, bool columns) {
  Quantized out;
  if (columns)
    out.columns = PoolTensor::borrow(from.columns);
  else
    out.rows = PoolTensor::borrow(from.rows);
  out.scale = from.scale;
  return out;
}

}  // namespace

Fp8::Fp8(const Fp8Options& options, const ModelSpec& spec)
    : options_(options),
      num_layers_(spec.num_layers),
      seen_(static_cast<size_t>(tensors()), false) {}

bool Fp8::covers(int64_t layer) const noexcept {
  return options_.on() && layer >= options_.plain_layers_at_start &&
         layer < num_layers_ - options_.plain_layers_at_end;
}

int64_t Fp8::tensors() const noexcept { return kOperands * kNumLinears * num_layers_; }

int64_t Fp8::history_length() const noexcept {
  return options_.recipe == Fp8Options::Recipe::delayed ? options_.history_length : 0;
}

void Fp8::place(const Tensor& scale, const Tensor& amax, const Tensor& history) {
  scale_ = scale;
  amax_ = amax;
  history_ = history;
}

void Fp8::reset(ops::Ops& ops) {
  ops.run(ops::Fill{.dst = scale_, .value = 0});
  ops.run(ops::Fill{.dst = amax_, .value = 0});
  if (history_) ops.run(ops::Fill{.dst = history_, .value = 0});
  seen_.assign(seen_.size(), false);
}

void Fp8::resume(ops::Ops& ops) {
  const size_t n = seen_.size(), length = static_cast<size_t>(history_length());
  std::vector<float> before(n * ops::kScaleSize), after(before.size()), history(n * length),
      amax(n);
  ops.download(before.data(), scale_);
  ops.download(history.data(), history_);
  ops.synchronize();
  for (size_t i = 0; i < n; ++i) {
    const float* entries = history.data() + i * length;
    amax[i] = options_.amax_choice == ops::AmaxChoice::max
                  ? *std::max_element(entries, entries + length)
                  : entries[0];
    seen_[i] = before[i * ops::kScaleSize + ops::kScaleFactor] != 0;
  }
  ops.upload(amax_, amax.data());
  update_scales(ops, {});
  ops.download(after.data(), scale_);
  ops.synchronize();
  for (size_t i = 0; i < n; ++i)
    if (amax[i] == 0)
      std::copy_n(before.begin() + static_cast<ptrdiff_t>(i * ops::kScaleSize), ops::kScaleSize,
                  after.begin() + static_cast<ptrdiff_t>(i * ops::kScaleSize));
  ops.upload(scale_, after.data());
  ops.synchronize();
}

int64_t Fp8::index(int64_t layer, Linear linear, Operand operand) const noexcept {
  return (static_cast<int64_t>(operand) * kNumLinears + static_cast<int64_t>(linear)) *
             num_layers_ +
         layer;
}

DType Fp8::dtype(Operand operand) const noexcept {
  return operand == Operand::gradient && options_.format == Fp8Options::Format::hybrid
             ? DType::e5m2
             : DType::e4m3;
}

void Fp8::list_weight(const LocalParam& param) {
  const std::optional<Linear> linear = linear_of(param.spec.role);
  if (!linear || !covers(param.spec.layer)) return;
  weights_.push_back({.layer = param.spec.layer,
                      .linear = *linear,
                      .rows = param.shape[0],
                      .columns = param.shape[1]});
}

void Fp8::place_weights(const Tensor& memory) {
  int64_t at = 0;
  for (Weight& weight : weights_) {
    const int64_t elements = weight.rows * weight.columns;
    const auto part = [&](int64_t rows, int64_t columns) {
      Tensor t = memory.slice(at, elements).view({rows, columns});
      at += elements;
      return PoolTensor::borrow(t);
    };
    weight.copy.rows = part(weight.rows, weight.columns);
    weight.copy.columns = part(weight.columns, weight.rows);
    weight.copy.scale = scale_.slice(index(weight.layer, weight.linear, Operand::weight), 1)
                            .view({ops::kScaleSize});
  }
}

void Fp8::begin_pass(bool training) {
  training_ = training;
  for (Weight& weight : weights_) weight.fresh = false;
}

void Fp8::run_pass(const Run& run, ops::Quantize pass, int64_t at, DType dtype) {
  const bool delayed = options_.recipe == Fp8Options::Recipe::delayed;
  const Tensor amax = amax_.slice(at, 1);
  if (!delayed || !seen_[static_cast<size_t>(at)]) {
    ops::Quantize look = pass;
    look.rows = look.columns = look.dbias = {};
    look.amax = amax;
    run.ops.run(look);
    run.ops.run(ops::UpdateScales{.scale = pass.scale.view({1, ops::kScaleSize}),
                                  .amax = amax,
                                  .history = {},
                                  .dtype = dtype,
                                  .margin = options_.margin});
  }
  if (delayed && training_) {
    pass.amax = amax;
    seen_[static_cast<size_t>(at)] = true;
  }
  run.ops.run(pass);
}

Quantized Fp8::quantize(const Run& run, int64_t layer, Linear linear, Operand operand,
                        const QuantizeWant& want) {
  const int64_t at = index(layer, linear, operand);
  const DType dtype = this->dtype(operand);
  ops::Quantize pass{.rows = {},
                     .columns = {},
                     .scale = {},
                     .amax = {},
                     .dbias = {},
                     .x = want.x,
                     .pre_activation = want.pre_activation,
                     .activation = want.activation};
  const int64_t r = pass.row_count(), c = pass.column_count();
  Quantized out;
  if (options_.recipe == Fp8Options::Recipe::delayed) {
    out.scale = scale_.slice(at, 1).view({ops::kScaleSize});
  } else {
    out.scale_memory = run.pool.take("fp8 scales", DType::f32, {ops::kScaleSize});
    out.scale = out.scale_memory;
  }
  if (want.rows) out.rows = run.pool.take("fp8 operands", dtype, {r, c});
  if (want.columns) out.columns = run.pool.take("fp8 operands, transposed", dtype, {c, r});
  pass.rows = out.rows;
  pass.columns = out.columns;
  pass.scale = out.scale;
  pass.dbias = want.dbias;
  pass.accumulate_bias = want.accumulate_bias;
  run_pass(run, pass, at, dtype);
  return out;
}

Quantized Fp8::weight(const Run& run, int64_t layer, Linear linear, Role role, bool columns) {
  const auto known = std::find_if(weights_.begin(), weights_.end(), [&](const Weight& w) {
    return w.layer == layer && w.linear == linear;
  });
  const Tensor w = run.weights.get(layer, role);
  if (known == weights_.end())
    return quantize(run, layer, linear, Operand::weight,
                    {.x = w, .rows = !columns, .columns = columns});
  if (!std::exchange(known->fresh, true))
    run_pass(run,
             {.rows = known->copy.rows,
              .columns = known->copy.columns,
              .scale = known->copy.scale,
              .amax = {},
              .dbias = {},
              .x = w,
              .pre_activation = {}},
             index(layer, linear, Operand::weight), dtype(Operand::weight));
  return lent(known->copy, columns);
}

void Fp8::update(ops::Ops& ops, comm::Comm& world) {
  if (options_.recipe != Fp8Options::Recipe::delayed) return;
  await_collectives(ops, world, [&] { world.all_reduce(amax_, comm::Reduce::max); });
  update_scales(ops, history_);
}

void Fp8::update_scales(ops::Ops& ops, const Tensor& history) {
  const int64_t each = kNumLinears * num_layers_;
  for (const Operand operand : {Operand::input, Operand::weight, Operand::gradient}) {
    const int64_t first = static_cast<int64_t>(operand) * each;
    ops.run(ops::UpdateScales{.scale = scale_.slice(first, each),
                              .amax = amax_.slice(first, each),
                              .history = history ? history.slice(first, each) : Tensor(),
                              .dtype = dtype(operand),
                              .margin = options_.margin,
                              .choice = options_.amax_choice});
  }
}

}  // namespace trainer
