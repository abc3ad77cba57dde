// Engine::Parts: the step and the evaluation, as calls of operations and collectives.
//
// SPDX-License-Identifier: MIT
#include "trainer/engine/parts.h"

namespace trainer {

namespace {

/// Passes of Weights: steps by their number of micro-batches, and evaluations.
constexpr int64_t kEvaluation = 0;

}  // namespace

/// Forward and backward of all micro-batches, and the judgement of what came out. Changes no
/// weights and no moments.
void Engine::Parts::make_gradients(int64_t num_microbatches) {
  run.training = true;
  run.state = state;
  run.num_microbatches = num_microbatches;
  if (options.overlap_param_gather) weights.gather_whole();
  weights.begin_pass(num_microbatches);
  grads.begin_step(num_microbatches);
  fp8.begin_pass();
  walk(options.schedule, num_microbatches);
  sum_tied_gradients();
  grads.finish();
  sum_gradients_of_rows();
  weights.end_pass();
  judge(ops, groups, counted, optimizer_options(), state, sums);
  if (!pool.empty()) throw DeviceError("engine: a step ended with memory still out");
}

void Engine::Parts::apply_gradients() {
  update({.ops = ops,
          .pool = pool,
          .tensor = *groups.tensor,
          .layout = layout,
          .share = share,
          .flats = flats,
          .options = optimizer_options(),
          .state = state});
  if (options.fp8.on()) fp8.update(ops, *groups.world);
  if (!options.overlap_param_gather) weights.gather_whole_now();
}

/// Model parameters of this rank's share are new: the others' come now.
void Engine::Parts::refresh() {
  weights.gather_whole_now();
  stale = false;
}

void Engine::Parts::evaluate_all(int64_t num_microbatches) {
  if (stale) refresh();
  run.training = false;
  run.state = eval_state;
  run.num_microbatches = num_microbatches;
  weights.begin_pass(kEvaluation);
  fp8.begin_pass();
  walk(ScheduleKind::forward_only, num_microbatches);
  weights.end_pass();
  share_loss(ops, groups, eval_state, sums);
}

}  // namespace trainer
