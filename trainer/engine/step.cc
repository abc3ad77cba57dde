// Engine::Parts: the step and the evaluation, as calls of operations and collectives.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/parts.h"
#include "trainer/schedule/action.h"

namespace trainer {

/// The part of a step that is the same each time: what a graph records.
void Engine::Parts::body(int64_t num_microbatches) {
  run.training = true;
  run.state = state;
  run.num_microbatches = num_microbatches;
  grads.begin_step();
  for (const Action& action : make_schedule(ScheduleKind::sequential, 0, 1, num_microbatches)) {
    const MicroBatch batch = micro_batch(action.microbatch);
    if (action.kind == Action::Kind::forward) stage.forward(batch);
    if (action.kind == Action::Kind::backward) stage.backward(batch);
  }
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
  for (int64_t m = 0; m < num_microbatches; ++m) stage.evaluate(micro_batch(m));
}

}  // namespace trainer
