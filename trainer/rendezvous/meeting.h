// Meeting: how a rank finds rank 0 and proves that it knows the secret. Here: the address, the file
// for ranks of one host, the exchange of proofs from the rank's side. Not here: the other side
// (server.h), later messages (control.h). May include: ops/tensor.h.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/rendezvous/control.h"
#include "trainer/rendezvous/wire.h"

namespace rendezvous {

/// Where rank 0 accepts connections: its listening socket, and the file that names it, if needed.
struct Door {
  Socket listener;
  std::string file;
  /// Addresses and ports at which another process of this job that considers itself rank 0 may
  /// listen.
  std::vector<std::pair<std::string, int>> others;
};

/// Rank 0: listens, generates options.launch.secret if none was given, writes the file. Errors:
/// std::system_error; LaunchError for a port that is taken.
Door open_door(ControlOptions& options);

/// A rank's accepted connection to rank 0, and the claims of all ranks.
struct Entry {
  FrameStream stream;
  std::vector<Claim> roster;
  int looks = 1;  ///< How often rank 0 was tried, with a pause in between: 1 if it was there.
};

/// Any rank but 0: finds rank 0, and both prove that they know the secret, rank 0 first. Waits for
/// rank 0 as long as rank 0 waits for the others, and then as long as rank 0 is alive. Errors:
/// MeetingError with rank 0's reason, or with the last problem.
Entry enter(ControlOptions& options);

/// Rank 0: the same over its own connection. Errors: also if a second rank 0 listens at one of
/// `others`, which is told the same.
Entry enter_own(const ControlOptions& options, Socket own,
                const std::vector<std::pair<std::string, int>>& others);

}  // namespace rendezvous
