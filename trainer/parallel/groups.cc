// Groups: those without other processes, and the construction of the others.
//
// SPDX-License-Identifier: MIT
#include "trainer/parallel/groups.h"

#include <algorithm>

namespace trainer {
namespace {

using Maker = std::function<std::unique_ptr<comm::Comm>(const GroupPlace&)>;

std::unique_ptr<comm::Comm> open(const std::string& name, const std::vector<int>& ranks, int rank,
                                 const Maker& make) {
  if (ranks.size() < 2) return comm::make_solo_comm();
  return make(
      {.name = name,
       .id = name + "-" + std::to_string(ranks.front()),
       .ranks = ranks,
       .rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin())});
}

}  // namespace

Groups solo_groups() {
  return {.topology = {},
          .tensor = comm::make_solo_comm(),
          .data = comm::make_solo_comm(),
          .pipeline = comm::make_solo_comm(),
          .embedding = comm::make_solo_comm(),
          .world = comm::make_solo_comm()};
}

Groups plan_groups(const Topology& t, ops::Timeline* timeline) {
  const bool has_embedding = t.first_stage() || t.last_stage();
  const int holders = has_embedding && t.pipeline_size > 1 ? 2 : 1;
  const auto make = [&](int rank, int size, ops::Queue queue) {
    return comm::make_plan_comm(rank, size, timeline, queue);
  };
  return {.topology = t,
          .tensor = make(t.tensor_rank, t.tensor_size, ops::Queue::tensor),
          .data = make(t.data_rank, t.data_size, ops::Queue::data),
          .pipeline = make(t.pipeline_rank, t.pipeline_size, ops::Queue::pipeline),
          .embedding = make(holders == 2 && t.last_stage() ? 1 : 0, holders, ops::Queue::embedding),
          .world = make(t.rank(), t.world_size(), ops::Queue::world)};
}

Groups make_groups(const Topology& t, const Maker& make) {
  std::vector<int> all(static_cast<size_t>(t.world_size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  const std::vector<int> stages = t.pipeline_group();
  std::vector<int> holders{t.rank()};
  if (stages.size() > 1 && (t.first_stage() || t.last_stage()))
    holders = {stages.front(), stages.back()};
  // The same order on all ranks; members of a braced list are evaluated from left to right.
  return {.topology = t,
          .tensor = open("tensor-parallel", t.tensor_group(), t.rank(), make),
          .data = open("data-parallel", t.data_group(), t.rank(), make),
          .pipeline = open("pipeline-parallel", stages, t.rank(), make),
          .embedding = open("embedding", holders, t.rank(), make),
          .world = open("world", all, t.rank(), make)};
}

}  // namespace trainer
