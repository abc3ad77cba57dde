// Meeting: how a rank finds rank 0 and proves itself. Here: the address, the file of a host's
// ranks, the exchange of proofs from the rank's side. Not here: the other side (server.h), what is
// said afterwards (control.h). May include: ops/tensor.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/rendezvous/control.h"
#include "trainer/rendezvous/wire.h"

namespace rendezvous {

/// Where rank 0 opens its door: its listening socket, and the file that names it, if it needs one.
struct Door {
  Socket listener;
  std::string file;
  /// Addresses and ports where another process of this job may listen that takes itself for rank 0.
  std::vector<std::pair<std::string, int>> others;
};

/// Rank 0: listens, completes options.launch.secret where nobody gave one, writes the file.
/// Errors: std::system_error; LaunchError for a port that others have taken.
Door open_door(ControlOptions& options);

/// A rank's way in: its connection, once rank 0 has let it in, and everybody's claims.
struct Entry {
  FrameStream stream;
  std::vector<Claim> roster;
  int looks = 1;  ///< How often rank 0 was looked for, with a pause between: 1 where it was there.
};

/// Any rank but 0: looks for rank 0, and both show that they know the secret, rank 0 first. Waits
/// for rank 0 as rank 0 waits for the others, and then as long as rank 0 lives.
/// Errors: MeetingError with rank 0's reason, or with what stood in the way last.
Entry enter(ControlOptions& options);

/// Rank 0: the same over its own connection. Errors: also where a second rank 0 listens at one of
/// `others`, which is told the same.
Entry enter_own(const ControlOptions& options, Socket own,
                const std::vector<std::pair<std::string, int>>& others);

}  // namespace rendezvous
