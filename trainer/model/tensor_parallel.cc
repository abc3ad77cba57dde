// See tensor_parallel.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/tensor_parallel.h"

namespace trainer {

Travelling gather_rows(Run& run, const Tensor& x) {
  if (!run.sequence_parallel) return {.tensor = x, .source = {}, .done = {}};
  const Tensor whole =
      run.pool.take("rows of all tensor ranks", x.dtype, {run.seq_length, x.shape[1], x.shape[2]});
  run.tp.follow(run.ops.mark());
  run.tp.all_gather(whole, x);
  return {.tensor = whole, .source = {}, .done = run.tp.mark(), .under_way = true};
}

Travelling sum_rows(Run& run, Tensor& partial) {
  Travelling result{.tensor = partial, .source = {}, .done = {}};
  partial = Tensor();
  if (run.tensor_size() == 1) return result;
  if (run.sequence_parallel) {
    result.source = result.tensor;
    result.tensor =
        run.pool.take("sum over tensor ranks", result.source.dtype,
                      {run.stream_length(), result.source.shape[1], result.source.shape[2]});
  }
  run.tp.follow(run.ops.mark());
  if (run.sequence_parallel) {
    run.tp.reduce_scatter(result.tensor, result.source, comm::Reduce::sum);
  } else {
    run.tp.all_reduce(result.tensor, comm::Reduce::sum);
  }
  result.done = run.tp.mark();
  result.under_way = true;
  return result;
}

Tensor arrived(Run& run, Travelling& travelling) {
  if (travelling.under_way) run.ops.follow(travelling.done);
  travelling.under_way = false;
  run.pool.give(travelling.source);
  return travelling.tensor;
}

void give_gathered(Run& run, Tensor& gathered, const Tensor& x) {
  if (gathered.data != x.data) run.pool.give(gathered);
}

}  // namespace trainer
