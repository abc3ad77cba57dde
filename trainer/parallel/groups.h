// Groups: this rank's place and its Comms. Not here: how ranks find each other (rendezvous/), the
// arithmetic of places (topology.h). May include: comm/comm.h, ops/,
// parallel/topology.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/ops/ops.h"
#include "trainer/parallel/topology.h"

namespace trainer {

/// One Comm for each group that this rank is in; a group of one has a Comm too. Ranks of a group
/// are in the order of Topology's lists.
struct Groups {
  Topology topology;
  std::unique_ptr<comm::Comm> tensor, data, pipeline;
  /// First and last stage, if both have a copy of tied embeddings; a group of one elsewhere.
  std::unique_ptr<comm::Comm> embedding;
  /// All ranks: for norms, the check of gradients, barriers.
  std::unique_ptr<comm::Comm> world;
};

/// Queues what `calls` calls on `comm` between what compute has queued so far and what it queues
/// later. Nothing for a group of one.
template <class Calls>
void await_collectives(ops::Ops& ops, comm::Comm& comm, const Calls& calls) {
  if (comm.size() == 1) return;
  comm.follow(ops.mark());
  calls();
  ops.follow(comm.mark());
}

/// One rank alone.
Groups solo_groups();

/// Groups of the right sizes that move nothing, for planning with PlanOps. What they would move is
/// recorded in `timeline`, if given.
Groups plan_groups(const Topology& topology, ops::Timeline* timeline = nullptr);

/// The description of a group for a backend's constructor.
struct GroupPlace {
  std::string name;        ///< "tensor-parallel": for messages.
  std::string id;          ///< Unique in the job: the name and the first rank.
  std::vector<int> ranks;  ///< World ranks in group order.
  int rank = 0;            ///< This rank's index in `ranks`.
};

/// Makes every group of `topology` with `make`; groups of one are solo. All ranks call it, and make
/// the same groups in the same order.
Groups make_groups(const Topology& topology,
                   const std::function<std::unique_ptr<comm::Comm>(const GroupPlace&)>& make);

}  // namespace trainer
