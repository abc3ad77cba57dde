// Optimizer: one update.
//
// SPDX-License-Identifier: MIT
#include "trainer/optim/optimizer.h"

namespace trainer {

void optimizer_step(ops::Ops& ops, const FlatLayout& layout, const Flats& flats,
                    const OptimizerOptions& options, const Tensor& state, const Tensor& square) {
  ops.sum_squares({.out = square, .x = flats.grad, .accumulate = false});
  ops.judge_gradients({.state = state,
                       .sum_squares = square,
                       .clip_grad = options.clip_grad,
                       .beta1 = options.beta1,
                       .beta2 = options.beta2,
                       .dynamic = options.scaler.dynamic,
                       .min_scale = options.scaler.min,
                       .window = options.scaler.window,
                       .hysteresis = options.scaler.hysteresis});
  const bool apart = flats.model.data != flats.main.data;
  for (const Bucket& bucket : layout.buckets()) {
    const auto part = [&](const Tensor& flat) { return flat.slice(bucket.begin, bucket.elements); };
    ops.adamw({.model = apart ? part(flats.model) : Tensor(),
               .main = part(flats.main),
               .m = part(flats.m),
               .v = part(flats.v),
               .grad = part(flats.grad),
               .state = state,
               .decay_elements = bucket.decay_elements,
               .beta1 = options.beta1,
               .beta2 = options.beta2,
               .eps = options.eps,
               .seed = options.seed,
               .first_element = bucket.begin});
  }
}

}  // namespace trainer
