// Pipeline: runs a schedule's actions one after another, and sends tensors between stages. Not
// here: the schedules (schedule/), what a stage computes (model/stage.h). May include: ops/,
// comm/comm.h, schedule/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/ops/arena.h"
#include "trainer/schedule/action.h"

namespace trainer {

/// Computes one action. The input is what the previous stage (forward) or the next one (backward)
/// sent; the result is what goes on to the following stage. Either is empty at an end of the model
/// and for backward_weight.
using ComputeAction = std::function<ops::PoolTensor(const Action&, ops::PoolTensor)>;

/// A send's memory is kept until a later exchange is due, so that compute need not wait for the
/// receiver. A receive is queued as soon as its message is sent, and waited for when it is used.
class Pipeline {
 public:
  /// `take` allocates one tensor that is sent or received. `stages`: this rank and its neighbours.
  Pipeline(ops::Ops& ops, comm::Comm& stages, std::function<ops::PoolTensor()> take,
           ComputeAction compute);

  /// Queues one pass's actions; no transfer is pending at the end.
  void run(const std::vector<Action>& actions);

 private:
  /// Direction, chunk, micro-batch.
  using Key = std::tuple<bool, int, int64_t>;
  struct Arriving {
    ops::PoolTensor tensor;
    ops::Mark mark;
  };
  struct Leaving {
    std::vector<ops::PoolTensor> tensors;
    ops::Mark mark;
  };
  static Key travels(const Action& action);
  ops::PoolTensor arrived(const Key& key);
  void compute(const Action& action);
  void exchange(std::span<const Action> actions);
  void finish_oldest();

  ops::Ops& ops_;
  comm::Comm& stages_;
  const std::function<ops::PoolTensor()> take_;
  const ComputeAction compute_;
  std::map<Key, ops::PoolTensor> ready_;
  std::map<Key, Arriving> arriving_;
  std::deque<Leaving> leaving_;
};

}  // namespace trainer
