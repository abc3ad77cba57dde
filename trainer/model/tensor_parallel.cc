// See tensor_parallel.h.
//
// SPDX-License-Identifier: MIT
#include "trainer/model/tensor_parallel.h"

#include <utility>

namespace trainer {

PendingTensor gather_rows(const Run& run, const Tensor& x) {
  if (!run.sequence_parallel) return {.tensor = PoolTensor::borrow(x)};
  PoolTensor whole =
      run.pool.take("rows of all tensor ranks", x.dtype, {run.seq_length, x.shape[1], x.shape[2]});
  run.tp.follow(run.ops.mark());
  run.tp.all_gather(whole, x);
  return {.tensor = std::move(whole), .done = run.tp.mark(), .pending = true};
}

PendingTensor sum_rows(const Run& run, PoolTensor partial) {
  if (run.tensor_size() == 1) return {.tensor = std::move(partial)};
  PendingTensor sum{.pending = true};
  if (run.sequence_parallel)
    sum.tensor = run.pool.take("sum over tensor ranks", partial->dtype,
                               {run.stream_length(), partial->shape[1], partial->shape[2]});
  run.tp.follow(run.ops.mark());
  if (run.sequence_parallel) {
    run.tp.reduce_scatter(sum.tensor, partial, comm::Reduce::sum);
    sum.source = std::move(partial);
  } else {
    run.tp.all_reduce(partial, comm::Reduce::sum);
    sum.tensor = std::move(partial);
  }
  sum.done = run.tp.mark();
  return sum;
}

PoolTensor arrived(const Run& run, PendingTensor pending) {
  if (pending.pending) run.ops.follow(pending.done);
  return std::move(pending.tensor);
}

}  // namespace trainer
