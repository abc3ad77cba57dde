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
  rendezvous::Launch host;   ///< This process's own launch.
  int processes = 1;         ///< Ranks on this host: one for each of the devices 0, 1, 2 ...
  int64_t max_restarts = 0;  ///< Without a newer checkpoint between two of them.
  /// Whether a start continues from what the previous one has saved.
  bool resumable = false;
  /// What must be added to the command to continue the run; empty if the same command does.
  std::string to_go_on;
  /// After the first rank's death, for the others to learn of it and to end.
  std::chrono::milliseconds grace{5000};
  std::vector<std::string> words;  ///< The program's name and its command line.

  bool allow_fewer = false;  ///< Continue without a device that is lost for good.
  /// The largest number of ranks, up to the argument, that the layout can use; 0: none. Needed with
  /// `allow_fewer`.
  std::function<int(int)> fitting;
  /// Words to add to the command line for another number of ranks.
  std::vector<std::string> words_of_fewer;
  /// The iteration from which the next start continues, on disk or in memory. Without it none
  /// counts as progress.
  std::function<int64_t()> iteration;
  /// Whether a checkpoint of the run is on disk. Without it any progress counts.
  std::function<bool()> saved;
  /// With several hosts: tells the others, which would wait for this one, that its ranks do not
  /// start again; `stopped`: because this host was asked to stop. Ends early when `stop` gives a
  /// reason.
  std::function<void(const std::string& line, bool stopped,
                     const std::function<std::string()>& stop)>
      tell_hosts;
};

/// A value for rendezvous::Launch::run that no other run has.
std::string new_run_id();

/// Starts the ranks of this host and waits for them. When one dies, the others have a few seconds
/// to print why and are then killed; SIGTERM and SIGUSR1 are passed on to all, and a second one
/// ends those that heed none; a rank that stops alone before all have met stops the others; if this
/// process is killed, they are too. With several hosts each has such a launcher: a lost rank ends
/// those of all hosts, and the ranks that all launchers start again meet as at the first start. One
/// that has used up its restarts, or is stopped, ends those of the others, too. A rank that is
/// killed when the run is over restarts nothing. A device is lost for good if it cannot be opened,
/// or if its rank was the lost one at two starts in a row without a checkpoint between them.
/// Returns the exit status of the run.
/// Errors: std::system_error if no process can be started.
int launch_ranks(const LauncherOptions& options, cli::Console& console);

}  // namespace trainer
