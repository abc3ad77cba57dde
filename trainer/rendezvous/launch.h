// Launch: which launcher started this process, and what that makes of it. Here: reading the
// environment, and explaining the mistakes that are common with each launcher. Not here: starting
// processes (session/launcher.h), meeting the others (meeting.h). May include: the C++ library.
// Source: the manuals of torchrun, srun, Open MPI, MPICH and Hydra, Kubernetes' PyTorchJob.
//
// SPDX-License-Identifier: MIT
#pragma once

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

/// Where the port is no exact one, rank 0 listens on the first free of so many.
inline constexpr int kPorts = 16;

/// One process among those that a launcher started.
struct Launch {
  /// "" (nobody), "trainer" (this program), "torchrun", "srun", "Open MPI", "MPICH", "MVAPICH2",
  /// "PALS", "Flux", "jsrun", "environment".
  std::string launcher;
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;  ///< On this host.
  int node = 0, nodes = 1;
  /// One process was started for each host: it has to start one for each device.
  bool per_node = false;
  /// Where rank 0 listens; an empty address is for ranks of one host, which find each other in a
  /// file named after `job`.
  std::string address;
  int port = 0;
  bool exact_port = false;  ///< Else those after it are tried too, kPorts in all.
  int listener = -1;        ///< Rank 0 inherits this listening socket; -1: it opens one.
  int device = -1;          ///< Of this host, chosen by this program; -1: the local rank's.
  int devices = 0;          ///< GPUs of this host, as this program's launcher saw them.
  /// The same for all ranks of a start, another for any other; empty where the launcher names none.
  std::string job;
  std::string secret;  ///< Given by the launcher; may be empty.
  int restarts = 0;
  std::vector<std::string> remarks;  ///< Worth a line each: what looks like a mistake.

  /// "torchrun: rank 3 of 8, local rank 3 of 4, node 0 of 2; rank 0 at n01 port 29501".
  std::string describe() const;
};

/// A variable's text, or null.
using Environment = std::function<const char*(const char*)>;

/// Hosts of a run as torchrun's own flags name them: this one's number, and where number 0 is.
struct HostFlags {
  int nodes = 1, node_rank = 0;
  std::string address;
  int port = 0;
};

/// `environment` as it is where somebody sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT by hand
/// on each host; unchanged for one host, and in what torchrun or this program's launcher started.
Environment with_hosts(Environment environment, const HostFlags& hosts);

/// What `environment` says. `devices` is how many devices a process sees or was asked to use on
/// each host (--nproc-per-node): it decides whether one task a host is one rank or starts more.
/// Errors: LaunchError.
Launch detect_launch(const Environment& environment, int devices);

/// The ranks that a process of `per_node` starts on its host, each as a Launch of its own.
std::vector<Launch> ranks_on_host(const Launch& host, int processes);

/// A Launch as variables for a process that this program starts, and which detect_launch reads.
std::vector<std::pair<std::string, std::string>> to_variables(const Launch& launch);

/// Names of a SLURM list: "n[01-03,7],login" is n01, n02, n03, n7, login.
std::vector<std::string> expand_hosts(const std::string& list);

/// The device of a rank that sees `visible` ones: that which this program's launcher gave it, else
/// its local rank's, or 0 where another launcher has narrowed the view to one.
/// Errors: LaunchError where ranks would have to share, or the device is no longer there.
int device_of(const Launch& launch, int visible);

}  // namespace rendezvous
