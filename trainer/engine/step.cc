// Engine::Parts: the step and the evaluation, as calls of operations and collectives.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/parts.h"

namespace trainer {

/// The part of a step that is the same each time: what a graph records.
void Engine::Parts::body(int64_t num_microbatches) {
  run.training = true;
  run.state = state;
  run.num_microbatches = num_microbatches;
  grads.begin_step();
  walk(options.schedule, num_microbatches);
  sum_shared_gradients();
  optimizer_step(ops, layout, flats,
                 {.clip_grad = options.clip_grad,
                  .beta1 = options.adam_beta1,
                  .beta2 = options.adam_beta2,
                  .eps = options.adam_eps,
                  .scaler = options.loss_scaler,
                  .seed = options.seed},
                 state, square);
  if (!pool.empty()) throw DeviceError("engine: a step ended with memory still out");
}

void Engine::Parts::evaluate_all(int64_t num_microbatches) {
  run.training = false;
  run.state = eval_state;
  run.num_microbatches = num_microbatches;
  walk(ScheduleKind::forward_only, num_microbatches);
}

}  // namespace trainer
