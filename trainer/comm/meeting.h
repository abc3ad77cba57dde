// Meeting: how a rank finds rank 0 and proves itself. Here: the address, the file of a host's
// ranks, the exchange of proofs from the rank's side. Not here: the other side (server.h), what is
// said afterwards (control.h). May include: comm/.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "trainer/comm/control.h"
#include "trainer/comm/wire.h"

namespace comm {

/// Where rank 0 opens its door: its listening socket, and the file that names it, if it needs one.
struct Door {
  Socket listener;
  std::string file;
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

/// Any rank but 0: looks for rank 0 until options.timeout, and proves itself.
/// Errors: MeetingError with rank 0's reason, or with what stood in the way last.
Entry enter(ControlOptions& options);

/// Rank 0: the same over its own connection.
Entry enter_own(const ControlOptions& options, Socket own);

}  // namespace comm
