// See parallel_linear.h. The products of weights' gradients run at once, or where a zero-bubble
// schedule puts them (LaterWeights).
//
// SPDX-License-Identifier: MIT
#include "trainer/model/parallel_linear.h"

#include <utility>

namespace trainer {
namespace {

void weight_product(Run& run, const LaterWeights::Product& p, const Tensor& x) {
  const Grads::Target w = run.grads.target(p.layer, p.weight);
  const Grads::Target b = p.bias == p.weight ? Grads::Target() : run.grads.target(p.layer, p.bias);
  run.ops.run(ops::LinearBackwardWeight{
      .dweight = w.tensor, .dbias = b.tensor, .dy = p.dy, .x = x, .accumulate = w.accumulate});
}

/// The product now, from the rows of x that `gathering` brings, or later.
void weight_gradient(const Layer& l, const LaterWeights::Product& product,
                     PendingTensor gathering) {
  if (l.run.later != nullptr) {
    l.run.later->products.push_back(product);
    return;
  }
  const PoolTensor x = arrived(l.run, std::move(gathering));
  weight_product(l.run, product, x);
}

PendingTensor here(const Tensor& x) {
  return {.tensor = PoolTensor::borrow(x), .source = {}, .done = {}};
}

/// A row-parallel linear's bias on its own: it is whole on each rank, and its gradient comes from
/// the rows of the residual stream.
void stream_bias_gradient(const Layer& l, Role bias, const Tensor& dstream) {
  const Grads::Target b = l.grad(bias);
  if (!b.tensor) return;
  l.ops().run(ops::LinearBackwardWeight{
      .dweight = {}, .dbias = b.tensor, .dy = dstream, .x = {}, .accumulate = b.accumulate});
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
                                       .accumulate_bias = want.dbias.accumulate,
                                       .addend = {}});
  return dx;
}

}  // namespace

void column_parallel_forward(const Layer& l, LinearRoles roles, const ColumnParallelForward& a) {
  const PoolTensor x = arrived(l.run, gather_rows(l.run, a.x));
  l.ops().run(ops::LinearForward{.y = a.y,
                                 .pre_activation = a.pre_activation,
                                 .x = x,
                                 .weight = l.weight(roles.weight),
                                 .bias = l.weight(roles.bias),
                                 .addend = {},
                                 .activation = a.activation});
}

PoolTensor column_parallel_backward(const Layer& l, LinearRoles roles, BiasGradient bias,
                                    PoolTensor dy, PoolTensor x) {
  // A product that is made later gathers later.
  PendingTensor rows = l.run.later != nullptr ? here(x) : gather_rows(l.run, x);
  PendingTensor dx =
      sum_rows(l.run, input_gradient(l, roles.weight, dy, {.purpose = "gradient of norm outputs"}));
  weight_gradient(l,
                  {.layer = l.layer,
                   .weight = roles.weight,
                   .bias = bias == BiasGradient::here ? roles.bias : roles.weight,
                   .dy = dy,
                   .x = x,
                   .column = true},
                  std::move(rows));
  release_after_products(l, std::move(dy));
  release_after_products(l, std::move(x));
  return arrived(l.run, std::move(dx));
}

void row_parallel_forward(const Layer& l, LinearRoles roles, const Tensor& partial, const Tensor& x,
                          const Tensor& addend) {
  l.ops().run(ops::LinearForward{.y = partial,
                                 .pre_activation = {},
                                 .x = x,
                                 .weight = l.weight(roles.weight),
                                 .bias = l.tensor_parallel() ? Tensor() : l.weight(roles.bias),
                                 .addend = addend});
}

PoolTensor row_parallel_backward(const Layer& l, LinearRoles roles, BiasGradient bias,
                                 const Tensor& dbranch, const Tensor& x,
                                 const InputGradient& want) {
  const bool here_too = bias == BiasGradient::here, divided = l.tensor_parallel();
  PendingTensor gathering = gather_rows(l.run, dbranch);
  if (here_too && divided) stream_bias_gradient(l, roles.bias, dbranch);
  PoolTensor dy = arrived(l.run, std::move(gathering));
  PoolTensor dx = input_gradient(l, roles.weight, dy, want);
  weight_gradient(l,
                  {.layer = l.layer,
                   .weight = roles.weight,
                   .bias = here_too && !divided ? roles.bias : roles.weight,
                   .dy = dy,
                   .x = x},
                  here(x));
  release_after_products(l, std::move(dy));
  return dx;
}

void release_after_products(const Layer& l, PoolTensor tensor) {
  if (l.run.later != nullptr && tensor && !tensor.borrowed())
    l.run.later->owned.push_back(std::move(tensor));
}

void compute_later(Run& run, LaterWeights& later) {
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
