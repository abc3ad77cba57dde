// Simulation: the timelines of one rank of each pipeline stage, simulated together. Tensor- and
// data-parallel ranks of a stage do the same at the same time, so one represents all. Queues of a
// rank run concurrently and synchronise where the timeline says; a message begins when both of its
// ranks have reached it, a collective over stages when all have. Each stage computes at the clock
// that its work and waiting permit (clock.h). Not here: how long anything takes (times.h). May
// include: ops/timeline.h, parallel/topology.h, planning/. Units: seconds, bytes.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/ops/timeline.h"
#include "trainer/parallel/topology.h"
#include "trainer/planning/card.h"
#include "trainer/planning/times.h"

namespace trainer {

/// Where the seconds of a stage's compute queue go; their sum is the step.
struct StageTime {
  double compute = 0;
  double exposed = 0;  ///< Waiting for communication in progress,
  double bubble = 0;   ///< and waiting for other stages to reach it.
  double flops = 0;
};

/// How long a step lasts.
struct StepEstimate {
  double seconds = 0;
  std::vector<StageTime> stages;
  int busiest = 0;  ///< The stage with the most computing.
};

/// GPUs of a job: `local_size` on each host, ranks in Megatron's order.
struct Cluster {
  int64_t world_size = 1, local_size = 1;
};

/// How the ranks of a stage's group on `queue` are distributed over hosts. `peer`: for a message,
/// the other stage.
GroupPlaceOnHosts place_on_hosts(const Cluster& cluster, const Topology& topology, ops::Queue queue,
                                 int peer = -1);

/// `stages[i]` is what a rank of stage i queues; their topologies differ only in pipeline_rank.
/// `data_is_free`: communication of data-parallel ranks takes no time, for a lower bound. Errors:
/// std::logic_error for a deadlock of stages.
StepEstimate simulate(const std::vector<ops::Timeline>& stages, const Topology& topology,
                      const Cluster& cluster, const Card& card, bool data_is_free = false);

}  // namespace trainer
