// Job: this process among those of its run. Here: from a launcher's variables to a place, a line to
// the others (rendezvous::Control), the Groups, and what all ranks must agree on. Alone, all of it
// is nothing. Not here: starting processes (launcher.h), how ranks meet (rendezvous/).
//
// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/console.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/train_config.h"
#include "trainer/ops/ops.h"
#include "trainer/parallel/groups.h"
#include "trainer/rendezvous/control.h"
#include "trainer/rendezvous/launch.h"
#include "trainer/session/stop.h"

namespace trainer {

/// Whether the same command, given again, goes on from what the run saves.
bool repeatable(const TrainConfig& config);
/// Whether that, or a launcher that starts the ranks again (--max-restarts), goes on.
bool goes_on(const TrainConfig& config, bool starts_again);

/// See the room card. One for each process; it outlives the Engine.
class Job {
 public:
  /// `launch` as detect_launch gave it. --rendezvous and --job-secret-file are read here.
  /// Errors: cli::UsageError for either of them.
  Job(rendezvous::Launch launch, const TrainConfig& config, cli::Console& console);

  const rendezvous::Launch& launch() const noexcept { return launch_; }
  int rank() const noexcept { return launch_.rank; }
  bool alone() const noexcept { return launch_.world_size == 1; }
  /// Whether this rank prints, and writes what a run has once.
  bool speaks() const noexcept { return launch_.rank == 0; }
  Topology topology() const;

  /// Refuses variables that leave the ranks no network interface to meet over, before anything is
  /// opened. Errors: cli::UsageError.
  void check_interfaces() const;
  /// Opens this rank's device. Errors: as open_device; rendezvous::LaunchError when ranks
  /// would share a GPU.
  std::unique_ptr<ops::Ops> open_device();
  /// A rank whose device cannot be opened: the others are told why, and nobody starts. Returns the
  /// exit status.
  int without_device(const std::exception& error);

  /// Meets the other ranks; from here on a lost rank ends this process. `error`: why this rank
  /// cannot take part, which is what the others are then told. Errors: rendezvous::MeetingError.
  void meet(const ops::Ops* ops, const std::string& error);
  /// A rank whose command line is wrong: the others are told, for a few seconds. Rank 0 prints it,
  /// and each host whose output goes its own way; where sizes differ between hosts, that. Returns
  /// the exit status.
  int tell(const std::exception& error);
  /// Whether this rank repeats on its host what rank 0 has said on another.
  bool speaks_for_host() const;
  /// The Groups of the configuration's layout, by NCCL for a GPU and by TCP for a CPU.
  Groups open_groups(const ops::Ops& ops);

  /// What the others see of this rank.
  void enter(rendezvous::Phase phase, int64_t step);
  /// Returns when all ranks are here.
  void barrier();
  /// The mean of the last stages' values, the same on all ranks.
  double mean_of_last_stages(double value);
  /// All ranks' texts, in rank order. Every rank calls it.
  std::vector<std::string> exchange(const std::string& text);
  /// This rank among those that write a checkpoint, with the line between them.
  WriterPlace writer_place() const;
  /// How long this rank's computing has stood waiting for other ranks so far, in work that the host
  /// has waited for; nothing where its device does not tell.
  std::optional<double> seconds_waited(const ops::Ops& ops) const;

  /// Runs `work`; what it throws is told to the others, and ends all. The process then ends without
  /// unwinding further than here.
  int guard(const std::function<int()>& work);
  /// The same, and then every rank leaves.
  int run(const std::function<int()>& work);

 private:
  friend class SharedStop;
  std::vector<double> gather(const std::optional<double>& value);
  [[noreturn]] void fail(const std::exception& error);
  bool hosts_apart() const;

  rendezvous::Launch launch_;
  const TrainConfig& config_;
  cli::Console& console_;
  std::string meeting_file_;
  int device_index_ = 0;
  std::atomic<bool> at_fault_ = false;     ///< This rank's device has failed.
  std::chrono::milliseconds patience_{0};  ///< Of the meeting; 0: as configured.
  std::unique_ptr<rendezvous::Control> control_;
};

/// A StopRequest of all ranks: what one of them is asked, all of them hear between the same two
/// steps.
class SharedStop {
 public:
  SharedStop(StopRequest& own, Job& job) : own_(own), job_(job) {}
  /// Asks the others; the answer travels while this rank works.
  void ask();
  /// The others' answers are here, and nothing of this is under way any more.
  void hear();
  /// The first rank's reason to stop, if any has one; asks where that is not done yet.
  std::optional<std::string> reason();

 private:
  StopRequest& own_;
  Job& job_;
  bool asked_ = false, heard_ = false;
  std::optional<std::string> answer_;
};

}  // namespace trainer
