// The trainer's own launcher: a process of this program for each rank of this host. Not here: which
// launcher started this process (rendezvous/launch.h), what a rank does (job.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tools/cli/console.h"
#include "tools/cli/exit_status.h"
#include "trainer/rendezvous/launch.h"

namespace trainer {

/// What to start, and how often.
struct LauncherOptions {
  rendezvous::Launch host;   ///< This process, as its own launcher sees it.
  int processes = 1;         ///< Ranks on this host: one for each of the devices 0, 1, 2 ...
  int64_t max_restarts = 0;  ///< 0 where the run has more hosts than this one.
  /// Whether a start goes on from what the one before it has saved.
  bool resumable = false;
  /// What the command has to add to go on when it is given again; empty where it does as it is.
  std::string to_go_on;
  /// After the first rank's death, for the others to hear of it and to end.
  std::chrono::milliseconds grace{5000};
  std::vector<std::string> words;  ///< The program's name and its command line.

  bool allow_fewer = false;  ///< A device that is gone is left out from then on.
  /// The most of so many ranks that the layout can use; 0: none. Needed with `allow_fewer`.
  std::function<int(int)> fitting;
  /// What the command line has to add for another number of ranks.
  std::vector<std::string> words_of_fewer;
  /// The iteration that the next start goes on from. Needed with `allow_fewer`.
  std::function<int64_t()> iteration;
};

/// Starts the ranks and waits for them. When one dies, the others have a few seconds to say why and
/// are then killed; SIGTERM and SIGUSR1 are passed on to all; should this process be killed, they
/// are too. A device is gone when it cannot be opened, or when its rank was the one that was lost
/// at two starts running without a checkpoint between them. Returns the exit status of the run.
/// Errors: std::system_error when no process can be started.
int launch_ranks(const LauncherOptions& options, cli::Console& console);

}  // namespace trainer
