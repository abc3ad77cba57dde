// See parallel_linear.h. The weight gradients' products run immediately, or when a zero-bubble
// schedule wants them (LaterWeights).
//
// SPDX-License-Identifier: MIT
#include "trainer/model/parallel_linear.h"

#include <utility>

namespace trainer {
namespace {

/// Whether a product's partial sums may have fewer bits than fp32: not if the sum is over the
/// tokens of a micro-batch, tens of thousands of terms.
constexpr bool kFastSums = true, kFastWeightSums = false;

/// y = a W^T or, with the weight's columns, a W; bias and addend are optional.
void product(const Layer& l, const Tensor& y, const Quantized& a, const Quantized& weight,
             const Tensor& bias, const Tensor& addend) {
  const Fp8& fp8 = *l.run.fp8;
  const bool columns = bool(weight.columns);
  ops::Fp8Product call{.y = y,
                       .a = a.rows,
                       .b = columns ? weight.columns : weight.rows,
                       .a_scale = a.row_scale,
                       .b_scale = columns ? weight.column_scale : weight.row_scale,
                       .bias = bias,
                       .addend = addend,
                       .a_scaling = fp8.scaling(Operand::input),
                       .b_scaling = fp8.scaling(Operand::weight)};
  call.fast_sums = kFastSums && !call.in_blocks();
  l.ops().run(call);
}

void fp8_weight_product(const Run& run, const LaterWeights::Product& p, const Tensor& dweight,
                        bool accumulate) {
  run.ops.run(ops::Fp8Product{.y = dweight,
                              .a = p.dy,
                              .b = p.x,
                              .a_scale = p.dy_scale,
                              .b_scale = p.x_scale,
                              .bias = {},
                              .addend = accumulate ? dweight : Tensor(),
                              .fast_sums = kFastWeightSums,
                              .a_scaling = run.fp8->scaling(Operand::gradient),
                              .b_scaling = run.fp8->scaling(Operand::input)});
}

void weight_product(const Run& run, LaterWeights::Product p, const Tensor& x) {
  const Grads::Target w = run.grads.target(p.layer, p.weight);
  const Grads::Target b = p.bias == p.weight ? Grads::Target() : run.grads.target(p.layer, p.bias);
  if (!ops::is_fp8(p.dy.dtype)) {
    run.ops.run(ops::LinearBackwardWeight{
        .dweight = w.tensor, .dbias = b.tensor, .dy = p.dy, .x = x, .accumulate = w.accumulate});
    return;
  }
  if (ops::is_fp8(x.dtype)) return fp8_weight_product(run, p, w.tensor, w.accumulate);
  const Quantized here =
      run.fp8->quantize(run, p.layer, p.linear, Operand::input, {.x = x, .columns = true});
  p.x = here.columns;
  p.x_scale = here.column_scale;
  fp8_weight_product(run, p, w.tensor, w.accumulate);
}

/// Computes the product now, from the rows of x that `gathering` brings, or later.
void weight_gradient(const Layer& l, const LaterWeights::Product& product,
                     PendingTensor gathering) {
  if (l.pass.later != nullptr) {
    l.pass.later->products.push_back(product);
    return;
  }
  const PoolTensor x = arrived(l.run, std::move(gathering));
  weight_product(l.run, product, x);
}

PendingTensor here(const Tensor& x) { return {.tensor = PoolTensor::borrow(x)}; }

/// The gradient of only a row-parallel linear's bias. The bias is whole on each rank, and its
/// gradient comes from this rank's rows of the residual stream.
void stream_bias_gradient(const Layer& l, Role bias, const Tensor& dstream) {
  const Grads::Target b = l.grad(bias);
  if (!b.tensor) return;
  l.ops().run(ops::LinearBackwardWeight{
      .dweight = {}, .dbias = b.tensor, .dy = dstream, .accumulate = b.accumulate});
}

PoolTensor input_gradient(const Layer& l, Role weight, const Tensor& dy,
                          const InputGradient& want) {
  const Tensor w = l.weight(weight);
  PoolTensor dx = l.rows(want.purpose, w.shape[1]);
  l.ops().run(ops::LinearBackwardInput{.dx = dx,
                                       .dy = dy,
                                       .weight = w,
                                       .pre_activation = want.pre_activation,
                                       .activation = want.activation,
                                       .dbias = want.dbias.tensor,
                                       .accumulate_bias = want.dbias.accumulate});
  return dx;
}

PoolTensor fp8_input_gradient(const Layer& l, LinearRoles roles, const Quantized& dy,
                              const char* purpose) {
  const Quantized w = l.run.fp8->weight(l.run, l.layer, roles.linear, roles.weight, true);
  PoolTensor dx = l.rows(purpose, w.columns->shape[0]);
  product(l, dx, dy, w, {}, {});
  return dx;
}

/// y = x W^T + bias + addend from all rows of x.
void fp8_forward(const Layer& l, LinearRoles roles, const Tensor& y, const LinearInput& x,
                 const Tensor& bias, const Tensor& addend, bool keeps) {
  const Quantized w = l.run.fp8->weight(l.run, l.layer, roles.linear, roles.weight, false);
  Quantized input = l.run.fp8->quantize(
      l.run, l.layer, roles.linear, Operand::input,
      {.x = x.values, .activation = x.activation, .norm = x.norm, .rows = true, .columns = keeps});
  product(l, y, input, w, bias, addend);
  input.release_rows();
  if (keeps) *x.kept = std::move(input);
}

/// Quantizes dy for both products, and computes the bias gradient in the same pass.
Quantized fp8_output_gradient(const Layer& l, LinearRoles roles, Role bias, const Tensor& dy,
                              const Tensor& pre_activation, ops::Activation activation) {
  const Grads::Target b = bias == roles.weight ? Grads::Target() : l.grad(bias);
  return l.run.fp8->quantize(l.run, l.layer, roles.linear, Operand::gradient,
                             {.x = dy,
                              .pre_activation = pre_activation,
                              .activation = activation,
                              .dbias = b.tensor,
                              .accumulate_bias = b.accumulate,
                              .rows = true,
                              .columns = l.fp8_weight_gradients()});
}

/// The weight's gradient from the columns of dy and x. x's are the kept ones, or are made from x,
/// whose rows may have to be gathered first.
void fp8_weight_gradient(const Layer& l, LinearRoles roles, Quantized dy, const LinearInput& x,
                         bool column) {
  LaterWeights::Product product{.layer = l.layer,
                                .linear = roles.linear,
                                .weight = roles.weight,
                                .bias = roles.weight,
                                .dy = dy.columns,
                                .x = x.values,
                                .dy_scale = dy.column_scale,
                                .column = column && l.run.sequence_parallel};
  if (!product.column) {
    if (!*x.kept)
      *x.kept = l.run.fp8->quantize(
          l.run, l.layer, roles.linear, Operand::input,
          {.x = x.values, .activation = x.activation, .norm = x.norm, .columns = true});
    product.x = x.kept->columns;
    product.x_scale = x.kept->column_scale;
  }
  weight_gradient(l, product, product.column ? gather_rows(l.run, x.values) : here(product.x));
  for (Quantized* q : {&dy, x.kept}) {
    release_after_products(l, std::move(q->columns));
    release_after_products(l, std::move(q->column_scale));
    *q = {};
  }
}

}  // namespace

LinearInput input_of(const Layer& l, BlockKept& k, Linear linear) {
  Quantized* kept = l.pass.training ? &k.quantized_of(linear) : nullptr;
  const auto normed = [&](const Tensor& x, NormRoles roles, const Tensor& mean,
                          const Tensor& rstd) -> LinearInput {
    return {.values = x,
            .norm = {.weight = l.weight(roles.weight),
                     .bias = l.weight(roles.bias),
                     .mean = mean,
                     .rstd = rstd},
            .kept = kept};
  };
  switch (linear) {
    case Linear::qkv:
      if (l.quantizes_norms()) return normed(k.x1, kInputNorm, k.mean1, k.rstd1);
      return {.values = k.y1, .kept = kept};
    case Linear::proj:
      return {.values = k.attention, .kept = kept};
    case Linear::fc1:
      if (l.quantizes_norms())
        return normed(l.spec().parallel_residual ? k.x1 : k.x2, kMlpNorm, k.mean2, k.rstd2);
      return {.values = k.y2, .kept = kept};
    case Linear::fc2:
      break;
  }
  if (!l.fp8_weight_gradients()) return {.values = k.activated, .kept = kept};
  return {.values = k.pre_activation, .activation = l.spec().activation, .kept = kept};
}

void column_parallel_forward(const Layer& l, LinearRoles roles, const ColumnParallelForward& a) {
  const PoolTensor x = arrived(l.run, gather_rows(l.run, a.x.values));
  if (l.fp8()) {
    const bool keeps = a.x.kept != nullptr && l.fp8_weight_gradients() && !l.run.sequence_parallel;
    return fp8_forward(l, roles, a.y, {.values = x, .norm = a.x.norm, .kept = a.x.kept},
                       l.weight(roles.bias), {}, keeps);
  }
  l.ops().run(ops::LinearForward{.y = a.y,
                                 .pre_activation = a.pre_activation,
                                 .x = x,
                                 .weight = l.weight(roles.weight),
                                 .bias = l.weight(roles.bias),
                                 .activation = a.activation});
}

PoolTensor column_parallel_backward(const Layer& l, LinearRoles roles, BiasGradient bias,
                                    OutputGradient dy, const LinearInput& x) {
  const char* purpose = "gradient of norm outputs";
  const Role with_bias = bias == BiasGradient::here ? roles.bias : roles.weight;
  if (l.fp8_weight_gradients()) {
    Quantized dy8 =
        fp8_output_gradient(l, roles, with_bias, dy.values, dy.pre_activation, dy.activation);
    dy = {};
    PendingTensor dx = sum_rows(l.run, fp8_input_gradient(l, roles, dy8, purpose));
    dy8.release_rows();
    fp8_weight_gradient(l, roles, std::move(dy8), x, true);
    return arrived(l.run, std::move(dx));
  }
  // A product that runs later also gathers later.
  PendingTensor rows = l.pass.later != nullptr ? here(x.values) : gather_rows(l.run, x.values);
  PoolTensor own =
      l.fp8()
          ? fp8_input_gradient(
                l, roles, fp8_output_gradient(l, roles, roles.weight, dy.values, {}, {}), purpose)
          : input_gradient(l, roles.weight, dy.values, {.purpose = purpose});
  PendingTensor dx = sum_rows(l.run, std::move(own));
  weight_gradient(l,
                  {.layer = l.layer,
                   .weight = roles.weight,
                   .bias = with_bias,
                   .dy = dy.values,
                   .x = x.values,
                   .column = true},
                  std::move(rows));
  release_after_products(l, std::move(dy.values));
  return arrived(l.run, std::move(dx));
}

void row_parallel_forward(const Layer& l, LinearRoles roles, const Tensor& partial,
                          const LinearInput& x, const Tensor& addend) {
  const Tensor bias = l.tensor_parallel() ? Tensor() : l.weight(roles.bias);
  if (l.fp8())
    return fp8_forward(l, roles, partial, x, bias, addend,
                       x.kept != nullptr && l.fp8_weight_gradients());
  l.ops().run(ops::LinearForward{.y = partial,
                                 .x = x.values,
                                 .weight = l.weight(roles.weight),
                                 .bias = bias,
                                 .addend = addend});
}

PoolTensor row_parallel_backward(const Layer& l, LinearRoles roles, BiasGradient bias,
                                 const Tensor& dbranch, const LinearInput& x,
                                 const InputGradient& want) {
  const bool here_too = bias == BiasGradient::here, divided = l.tensor_parallel();
  const Role with_bias = here_too && !divided ? roles.bias : roles.weight;
  PendingTensor gathering = gather_rows(l.run, dbranch);
  if (here_too && divided) stream_bias_gradient(l, roles.bias, dbranch);
  PoolTensor dy = arrived(l.run, std::move(gathering));
  if (l.fp8_weight_gradients()) {
    Quantized dy8 = fp8_output_gradient(l, roles, with_bias, dy, {}, {});
    dy.reset();
    PoolTensor dx = fp8_input_gradient(l, roles, dy8, want.purpose);
    dy8.release_rows();
    fp8_weight_gradient(l, roles, std::move(dy8), x, false);
    return dx;
  }
  PoolTensor dx =
      l.fp8() ? fp8_input_gradient(
                    l, roles, fp8_output_gradient(l, roles, roles.weight, dy, {}, {}), want.purpose)
              : input_gradient(l, roles.weight, dy, want);
  weight_gradient(
      l, {.layer = l.layer, .weight = roles.weight, .bias = with_bias, .dy = dy, .x = x.values},
      here(x.values));
  release_after_products(l, std::move(dy));
  return dx;
}

void release_after_products(const Layer& l, PoolTensor tensor) {
  if (l.pass.later != nullptr && tensor && !tensor.borrowed())
    l.pass.later->owned.push_back(std::move(tensor));
}

void compute_later(const Run& run, LaterWeights& later) {
  for (const LaterWeights::Product& product : later.products) {
    const PoolTensor x =
        arrived(run, product.column ? gather_rows(run, product.x) : here(product.x));
    weight_product(run, product, x);
  }
  later.owned.clear();
  for (const int64_t layer : later.layers) run.grads.layer_done(layer);
  later = {};
}

}  // namespace trainer
