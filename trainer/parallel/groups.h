// Groups: this rank's place and the Comms it shares with others. Not here: how ranks find each other
// (comm/), the arithmetic of places (topology.h). May include: comm/comm.h, parallel/topology.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "trainer/comm/comm.h"
#include "trainer/parallel/topology.h"

namespace trainer {

/// One Comm for each group that this rank is in; a group of one has a Comm too. Ranks of a group are
/// in the order of Topology's lists.
struct Groups {
  Topology topology;
  std::unique_ptr<comm::Comm> tensor, data, pipeline;
  /// First and last stage, where both hold a copy of tied embeddings; a group of one elsewhere.
  std::unique_ptr<comm::Comm> embedding;
  /// All ranks: norms, judgement, barriers.
  std::unique_ptr<comm::Comm> world;
};

/// One rank alone.
Groups solo_groups();

/// Groups of the right sizes that move nothing: for planning over PlanOps.
Groups plan_groups(const Topology& topology);

}  // namespace trainer
