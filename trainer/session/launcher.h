// The trainer's own launcher: a process of this program for each rank of this host. Not here: which
// launcher started this process (comm/launch.h), what a rank does (job.h).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tools/cli/console.h"
#include "trainer/comm/launch.h"

namespace trainer {

/// What a rank's process ends with when the job failed and going on is safe: the launcher then
/// starts again, or says 75.
inline constexpr int kLost = 85;

/// What to start, and how often.
struct LauncherOptions {
  comm::Launch host;  ///< This process, as its own launcher sees it.
  int processes = 1;  ///< Ranks on this host.
  int64_t max_restarts = 0;
  /// After the first rank's death, for the others to hear of it and to end.
  std::chrono::milliseconds grace{5000};
  std::vector<std::string> words;  ///< The program's name and its command line.
  /// Before each restart: how many ranks may be started now; 0: give up.
  std::function<int()> count_again;
};

/// Starts the ranks and waits for them. When one dies, the others have a few seconds to say why and
/// are then killed; SIGTERM and SIGUSR1 are passed on to all; should this process be killed, they
/// are too. Returns the exit status of the run.
/// Errors: std::system_error when no process can be started.
int launch_ranks(const LauncherOptions& options, cli::Console& console);

}  // namespace trainer
