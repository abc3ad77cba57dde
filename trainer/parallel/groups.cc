// Groups: those that need no other process.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/groups.h"

namespace trainer {

Groups solo_groups() {
  return {.topology = {},
          .tensor = comm::make_solo_comm(),
          .data = comm::make_solo_comm(),
          .pipeline = comm::make_solo_comm(),
          .embedding = comm::make_solo_comm(),
          .world = comm::make_solo_comm()};
}

Groups plan_groups(const Topology& t) {
  const bool has_embedding = t.first_stage() || t.last_stage();
  const int holders = has_embedding && t.pipeline_size > 1 ? 2 : 1;
  return {.topology = t,
          .tensor = comm::make_plan_comm(t.tensor_rank, t.tensor_size),
          .data = comm::make_plan_comm(t.data_rank, t.data_size),
          .pipeline = comm::make_plan_comm(t.pipeline_rank, t.pipeline_size),
          .embedding = comm::make_plan_comm(holders == 2 && t.last_stage() ? 1 : 0, holders),
          .world = comm::make_plan_comm(t.rank(), t.world_size())};
}

}  // namespace trainer
