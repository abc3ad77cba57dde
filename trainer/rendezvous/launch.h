// Launch: which launcher started this process, and this process's role. Here: reading the
// environment, and explaining the common mistakes with each launcher. Not here: starting processes
// (session/launcher.h), meeting the others (meeting.h). May include: the C++ library.
// Source: the manuals of torchrun, srun, Open MPI, MPICH and Hydra, Kubernetes' PyTorchJob.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace rendezvous {

/// A launcher's variables contradict each other, or cannot work; the message says what to change.
class LaunchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// If the port is not exact, rank 0 listens on the first free one of this many.
inline constexpr int kPorts = 16;

/// One process among those that a launcher started.
struct Launch {
  /// "" (nobody), "trainer" (this program), "torchrun", "srun", "Open MPI", "MPICH", "MVAPICH2",
  /// "PALS", "Flux", "jsrun", "environment".
  std::string launcher;
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;  ///< On this host.
  int node = 0, nodes = 1;
  /// One process was started on each host; with `per_node` it has to start one for each device.
  bool one_per_host = false;
  bool per_node = false;
  bool by_trainer = false;  ///< A rank that this program's own launcher started.
  /// Where rank 0 listens; an empty address is for ranks of one host, which find each other by a
  /// file named after `job`.
  std::string address;
  int port = 0;
  bool exact_port = false;  ///< Otherwise the ones after it are tried too, kPorts in total.
  int listener = -1;        ///< Listening socket that rank 0 inherits; -1: it opens one.
  int device = -1;          ///< The device on this host, chosen by this program's launcher; -1: the
                            ///< local rank's.
  int devices = 0;          ///< GPUs of this host that this program's launcher found.
  /// The same for all ranks of a start, different for any other start; empty if the launcher gives
  /// none.
  std::string job;
  /// The same for all starts of a run, different for any other run; empty if the launcher gives
  /// none. torchrun's is its id and the job of SLURM, where this process knows one: ranks that have
  /// met agree on one of them (agreed_run).
  std::string run;
  std::string secret;  ///< Given by the launcher; may be empty.
  int restarts = 0;
  /// SLURM has put the job back into its queue: torchrun began anew and counts no restart.
  bool requeued = false;
  /// What was told of the folder of checkpoints (trainer::tracker_state) when this program's
  /// launcher began.
  std::string tracker;
  /// When this program's launcher began, by this host's monotonic clock; 0: there is none.
  int64_t began_ms = 0;
  /// Descriptors of the memory that this program's launcher keeps for in-memory checkpoints
  /// (trainer/checkpoint/memory_checkpoints.h); its ranks inherit them. Empty: none.
  std::vector<int> memory_files;
  /// Descriptor of a file into which a rank writes once the run is over, for this program's
  /// launcher; -1: none.
  int end_file = -1;
  std::vector<std::string> remarks;  ///< Lines about what looks like a mistake.

  /// "torchrun: rank 3 of 8, local rank 3 of 4, node 0 of 2; rank 0 at n01 port 29501".
  std::string describe() const;
};

/// A variable's text, or null.
using Environment = std::function<const char*(const char*)>;

/// Hosts of a run from torchrun's flags: this host's number, and the address of number 0.
struct HostFlags {
  int nodes = 1, node_rank = 0;
  std::string address;
  int port = 0;
};

/// `environment` with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as if set by hand on each
/// host; unchanged for one host, and in processes that torchrun or this program's launcher started.
Environment with_hosts(Environment environment, const HostFlags& hosts);

/// The launch that `environment` describes. `devices` is how many devices a process sees or was
/// asked to use on each host (--nproc-per-node): it decides whether a single task on a host is one
/// rank or starts more.
/// Errors: LaunchError.
Launch detect_launch(const Environment& environment, int devices);

/// Whether two values of Launch::run, which differ, may be of one run: torchrun's id is the same,
/// and only one of the two knows the job of SLURM.
bool may_be_one_run(const std::string& a, const std::string& b);

/// The run of ranks that have met, from what each of them knows: with the job of SLURM if any knows
/// it; without one if they know several.
std::string agreed_run(const std::vector<std::string>& runs);

/// The ranks that a process with `per_node` starts on its host, each as a Launch.
std::vector<Launch> ranks_on_host(const Launch& host, int processes);

/// A Launch as variables for a process that this program starts; detect_launch reads them.
std::vector<std::pair<std::string, std::string>> to_variables(const Launch& launch);

/// The host names of a SLURM list: "n[01-03,7],login" is n01, n02, n03, n7, login.
std::vector<std::string> expand_hosts(const std::string& list);

/// The device of a rank that sees `visible` ones: the one that this program's launcher gave it,
/// else its local rank's, or 0 if another launcher has made only one visible. Errors: LaunchError
/// if ranks would have to share, or the device no longer exists.
int device_of(const Launch& launch, int visible);

}  // namespace rendezvous
