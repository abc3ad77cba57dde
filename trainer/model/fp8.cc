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
  (columns ? out.columns : out.rows) = PoolTensor::borrow(columns ? from.columns : from.rows);
  (columns ? out.column_scale : out.row_scale) =
      PoolTensor::borrow(columns ? from.column_scale : from.row_scale);
  return out;
}

bool covers_layer(const Fp8Options& options, int64_t num_layers, int64_t layer) noexcept {
  return options.on() && layer >= options.plain_layers_at_start &&
         layer < num_layers - options.plain_layers_at_end;
}

}  // namespace

std::optional<Linear> fp8_linear(const Fp8Options& options, int64_t num_layers,
                                 const ParamSpec& param) noexcept {
  return covers_layer(options, num_layers, param.layer) ? linear_of(param.role) : std::nullopt;
}

std::string fp8_gather_refusal(const Fp8Options& options) {
  if (!options.on() || !options.param_gather || options.recipe != Fp8Options::Recipe::rowwise)
    return {};
  return "--fp8-param-gather with --fp8-recipe rowwise: its weights are rounded twice, with scales "
         "of their rows and of their columns, which is as many bytes as 16 bits";
}

Fp8::Fp8(const Fp8Options& options, const ModelSpec& spec)
    : options_(options),
      num_layers_(spec.num_layers),
      seen_(static_cast<size_t>(tensors()), false) {}

bool Fp8::covers(int64_t layer) const noexcept {
  return covers_layer(options_, num_layers_, layer);
}

int64_t Fp8::tensors() const noexcept { return kOperands * kNumLinears * num_layers_; }

ops::Scaling Fp8::scaling(Operand operand) const noexcept {
  switch (options_.recipe) {
    case Fp8Options::Recipe::rowwise:
      return ops::Scaling::row;
    case Fp8Options::Recipe::blockwise:
      return operand == Operand::weight ? ops::Scaling::square_block : ops::Scaling::row_block;
    default:
      return ops::Scaling::tensor;
  }
}

int64_t Fp8::history_length() const noexcept {
  return options_.recipe == Fp8Options::Recipe::delayed ? options_.history_length : 0;
}

void Fp8::place(const Tensor& scale, const Tensor& amax, const Tensor& history) {
  scale_ = scale;
  amax_ = amax;
  history_ = history;
}

void Fp8::reset(ops::Ops& ops) {
  if (!scale_) return;
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
  const std::optional<Linear> linear = fp8_linear(options_, num_layers_, param.spec);
  if (!linear) return;
  weights_.push_back({.layer = param.spec.layer,
                      .linear = *linear,
                      .rows = param.shape[0],
                      .columns = param.shape[1]});
}

void Fp8::place_weights(const Tensor& memory, const Tensor& scales) {
  int64_t at = 0, scales_at = 0;
  const ops::Scaling s = scaling(Operand::weight);
  for (Weight& weight : weights_) {
    const auto part = [&](int64_t rows, int64_t columns) {
      Tensor t = memory.slice(at, rows * columns).view({rows, columns});
      at += rows * columns;
      return PoolTensor::borrow(t);
    };
    const auto scales_of = [&](int64_t rows, int64_t columns) {
      if (!options_.in_blocks())
        return PoolTensor::borrow(
            scale_.slice(index(weight.layer, weight.linear, Operand::weight), 1)
                .view({ops::kScaleSize}));
      const ops::ScaleShape shape = ops::scale_shape(s, rows, columns);
      Tensor t = scales.slice(scales_at, shape.count()).view({shape.rows, shape.columns});
      scales_at += shape.count();
      return PoolTensor::borrow(t);
    };
    if (parts_.empty()) weight.copy.rows = part(weight.rows, weight.columns);
    weight.copy.columns = part(weight.columns, weight.rows);
    if (!parts_.empty()) {
      weight.copy.column_scale =
          PoolTensor::borrow(parts_.part_of(weight.layer, weight.linear).column_scale);
      continue;
    }
    weight.copy.row_scale = scales_of(weight.rows, weight.columns);
    weight.copy.column_scale = scales_of(weight.columns, weight.rows);
  }
}

void Fp8::begin_pass(bool training) {
  training_ = training;
  for (Weight& weight : weights_) weight.fresh = false;
  // Rounding them for the gathering has found their largest values.
  for (const Fp8Parts::Part& part : parts_.parts())
    if (training) seen_[static_cast<size_t>(weight_index(part))] = true;
}

void Fp8::fill(const Run& run, const Target& to, const QuantizeWant& want) {
  if (options_.in_blocks()) return fill_in_blocks(run, to, want);
  const bool delayed = options_.recipe == Fp8Options::Recipe::delayed;
  const int64_t at = index(to.layer, to.linear, to.operand);
  const Tensor amax = amax_.slice(at, 1);
  ops::Quantize pass{.rows = to.out.rows,
                     .columns = to.out.columns,
                     .scale = to.out.columns ? to.out.column_scale : to.out.row_scale,
                     .amax = {},
                     .dbias = want.dbias,
                     .accumulate_bias = want.accumulate_bias,
                     .x = want.x,
                     .pre_activation = want.pre_activation,
                     .activation = want.activation,
                     .norm = want.norm};
  if (!delayed || !seen_[static_cast<size_t>(at)]) {
    ops::Quantize look = pass;
    look.rows = look.columns = look.dbias = {};
    look.amax = amax;
    run.ops.run(look);
    run.ops.run(ops::UpdateScales{.scale = pass.scale.view({1, ops::kScaleSize}),
                                  .amax = amax,
                                  .history = {},
                                  .dtype = dtype(to.operand),
                                  .margin = options_.margin});
  }
  if (delayed && training_) {
    pass.amax = amax;
    seen_[static_cast<size_t>(at)] = true;
  }
  run.ops.run(pass);
}

void Fp8::fill_in_blocks(const Run& run, const Target& to, const QuantizeWant& want) {
  run.ops.run(ops::QuantizeInBlocks{.rows = to.out.rows,
                                    .columns = to.out.columns,
                                    .row_scale = to.out.row_scale,
                                    .column_scale = to.out.column_scale,
                                    .dbias = want.dbias,
                                    .accumulate_bias = want.accumulate_bias,
                                    .x = want.x,
                                    .pre_activation = want.pre_activation,
                                    .activation = want.activation,
                                    .norm = want.norm,
                                    .scaling = scaling(to.operand),
                                    .margin = options_.margin,
                                    .power_of_two = options_.power_of_two});
}

PoolTensor Fp8::take_scales(const Run& run, Operand operand, const PoolTensor& of) {
  const ops::Scaling s = scaling(operand);
  if (s == ops::Scaling::tensor) return run.pool.take("fp8 scales", DType::f32, {ops::kScaleSize});
  const ops::ScaleShape shape = ops::scale_shape(s, of->rows(), of->columns());
  return run.pool.take("fp8 scales", DType::f32, {shape.rows, shape.columns});
}

Quantized Fp8::quantize(const Run& run, int64_t layer, Linear linear, Operand operand,
                        const QuantizeWant& want) {
  const DType dtype = this->dtype(operand);
  const int64_t r = want.x.rows(), c = ops::quantized_columns(want);
  Quantized out;
  if (options_.recipe == Fp8Options::Recipe::delayed) {
    const Tensor scale = scale_.slice(index(layer, linear, operand), 1).view({ops::kScaleSize});
    out.row_scale = PoolTensor::borrow(scale);
    out.column_scale = PoolTensor::borrow(scale);
  }
  if (want.rows) out.rows = run.pool.take("fp8 operands", dtype, {r, c});
  if (want.columns) out.columns = run.pool.take("fp8 operands, transposed", dtype, {c, r});
  if (want.columns && !out.column_scale) out.column_scale = take_scales(run, operand, out.columns);
  if (want.rows && !out.row_scale)
    out.row_scale = want.columns && !options_.in_blocks() ? PoolTensor::borrow(out.column_scale)
                                                          : take_scales(run, operand, out.rows);
  fill(run, {layer, linear, operand, out}, want);
  return out;
}

Fp8::Weight* Fp8::kept(int64_t layer, Linear linear) {
  const auto found = std::find_if(weights_.begin(), weights_.end(), [&](const Weight& w) {
    return w.layer == layer && w.linear == linear;
  });
  return found == weights_.end() ? nullptr : &*found;
}

Quantized Fp8::weight(const Run& run, int64_t layer, Linear linear, Role role, bool columns) {
  if (const Tensor rows = run.weights.get_fp8(layer, role))
    return gathered_weight(run, layer, linear, rows, columns);
  const Tensor w = run.weights.get(layer, role);
  Weight* known = kept(layer, linear);
  if (known == nullptr)
    return quantize(run, layer, linear, Operand::weight,
                    {.x = w, .rows = !columns, .columns = columns});
  if (!std::exchange(known->fresh, true))
    fill(run, {layer, linear, Operand::weight, known->copy}, {.x = w});
  return lent(known->copy, columns);
}

Quantized Fp8::gathered_weight(const Run& run, int64_t layer, Linear linear, const Tensor& rows,
                               bool columns) {
  Quantized out;
  const Fp8Parts::Part& part = parts_.part_of(layer, linear);
  if (!columns) {
    out.rows = PoolTensor::borrow(rows);
    out.row_scale = PoolTensor::borrow(part.row_scale);
    return out;
  }
  Weight* known = kept(layer, linear);
  if (known != nullptr) {
    if (!std::exchange(known->fresh, true))
      run.ops.run(ops::TransposeFp8{.columns = known->copy.columns, .rows = rows});
    return lent(known->copy, true);
  }
  out.columns =
      run.pool.take("fp8 operands, transposed", rows.dtype, {rows.shape[1], rows.shape[0]});
  out.column_scale = PoolTensor::borrow(part.column_scale);
  run.ops.run(ops::TransposeFp8{.columns = out.columns, .rows = rows});
  return out;
}

int64_t Fp8::weight_index(const Fp8Parts::Part& part) const noexcept {
  return index(part.param->spec.layer, part.linear, Operand::weight);
}

int64_t Fp8::list_parts(std::vector<Fp8Parts::Part> parts) {
  return parts_.list(options_, std::move(parts));
}

void Fp8::place_parts(const Tensor& scales) {
  const int64_t each = kNumLinears * num_layers_;
  const int64_t first = static_cast<int64_t>(Operand::weight) * each;
  const auto of_weights = [&](const Tensor& all) {
    return all ? all.slice(first, each) : Tensor();
  };
  parts_.place(of_weights(scale_), of_weights(amax_), scales);
}

void Fp8::scale_weights(ops::Ops& ops, comm::Comm& data, bool replaced) {
  if (replaced) parts_.forget(ops);
  const bool delayed = options_.recipe == Fp8Options::Recipe::delayed;
  std::vector<const Fp8Parts::Part*> unknown;
  for (const Fp8Parts::Part& part : parts_.parts())
    if (!delayed || !seen_[static_cast<size_t>(weight_index(part))]) unknown.push_back(&part);
  parts_.find_scales(ops, data, unknown);
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
