// Job: this process among those of its run. Here: from a launcher's variables to its place, the
// control connection (rendezvous::Control), the Groups, and what all ranks must agree on. With one
// rank all of this does nothing. Not here: starting processes (launcher.h), how ranks meet
// (rendezvous/).
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
#include "trainer/rendezvous/file_ring.h"
#include "trainer/rendezvous/launch.h"
#include "trainer/session/stop.h"

namespace trainer {

/// Whether the command begins from the newest checkpoint in --save, with all that it holds.
bool goes_on_from_save(const TrainConfig& config);
/// Whether the same command, given again, continues from what the run saves.
bool repeatable(const TrainConfig& config);
/// What to change in the command so that it does: "--load FOLDER without --finetune"; "": nothing.
std::string to_go_on(const TrainConfig& config);
/// Whether that, or a launcher that restarts the ranks (--max-restarts), continues the run.
bool goes_on(const TrainConfig& config, bool starts_again);

/// See the room card. One for each process; it outlives the Engine.
class Job {
 public:
  /// `launch` as detect_launch gave it. --rendezvous and --job-secret-file are read here. `config`
  /// is the command's own; what a later start loads may be changed afterwards.
  /// Errors: cli::UsageError for either of them.
  Job(rendezvous::Launch launch, const TrainConfig& config, cli::Console& console);

  const rendezvous::Launch& launch() const noexcept { return launch_; }
  int rank() const noexcept { return launch_.rank; }
  bool alone() const noexcept { return launch_.world_size == 1; }
  /// Whether this rank prints, and writes the files of which a run has one.
  bool speaks() const noexcept { return launch_.rank == 0; }
  Topology topology() const;

  /// Refuses variables that leave the ranks no network interface, before anything is opened.
  /// Errors: cli::UsageError.
  void check_interfaces() const;
  /// Opens this rank's device. Errors: as open_device; rendezvous::LaunchError if ranks would share
  /// a GPU.
  std::unique_ptr<ops::Ops> open_device();
  /// For a rank whose device cannot be opened: tells the others why, and no rank starts. `stop`: as
  /// of meet(). Returns the exit status.
  int without_device(const std::exception& error, StopRequest* stop = nullptr);

  /// Meets the other ranks; from here on a lost rank ends this process. `error`: why this rank
  /// cannot take part; the others are then told. `stop`: ends the wait for the others. Errors:
  /// rendezvous::MeetingError.
  void meet(const ops::Ops* ops, const std::string& error, StopRequest* stop = nullptr);
  /// For a rank whose command line is wrong: tells the others, for half a minute at most. Rank 0
  /// prints the error, and so does each host whose output is separate; if the number of ranks
  /// differs between hosts, that is printed instead, or after it where a host came late. Returns
  /// the exit status.
  int tell(const std::exception& error);
  /// For a launcher that starts its ranks no more: in their place tells those of the other hosts,
  /// which would wait for them. Waits for every host, at most --meeting-timeout-seconds;
  /// `stopped`: because it was asked to stop, and then at most rendezvous::kStopIsTold. `stop` as
  /// rendezvous::ControlOptions::stop.
  void tell_hosts(const std::string& line, bool stopped, std::function<std::string()> stop);
  /// For a rank that has not met the others: says why, where nobody else does, and what continues
  /// the run where the same command does not. Returns the exit status.
  int unmet(const rendezvous::MeetingError& error);
  /// Whether this is rank 0, or the one that speaks for a host where rank 0 does not.
  bool first_to_speak() const;
  /// Whether this rank repeats rank 0's messages on its host.
  bool speaks_for_host() const;
  /// Whether no launcher collects the output of all hosts.
  bool hosts_apart() const;
  /// The Groups of the configuration's layout, with NCCL for a GPU and TCP for a CPU.
  Groups open_groups(const ops::Ops& ops);

  /// The links to the ranks of the same place on the next host and on the one before, with several
  /// hosts; every rank calls it. Errors: as rendezvous::link_ranks.
  std::unique_ptr<rendezvous::FileRing> open_ring();

  /// Sets the phase and step that the others see.
  void enter(rendezvous::Phase phase, int64_t step);
  /// Returns when all ranks have called it.
  void barrier();
  /// The mean of the last stages' values, the same on all ranks.
  double mean_of_last_stages(double value);
  /// Returns all ranks' texts, in rank order. Every rank calls it.
  std::vector<std::string> exchange(const std::string& text);
  /// This rank among those that write a checkpoint, with their connection.
  /// Checkpoints on disk and those in memory have a channel each.
  WriterPlace writer_place(int channel = 0) const;
  /// How long this rank's computing has waited for other ranks so far, in work that the host has
  /// waited for; nothing if its device does not measure it.
  std::optional<double> seconds_waited(const ops::Ops& ops) const;

  /// Runs `work`; an exception is reported to the others and ends all ranks. The process then ends
  /// without unwinding further than here.
  int guard(const std::function<int()>& work);
  /// The same, and then every rank leaves.
  int run(const std::function<int()>& work);

 private:
  friend class SharedStop;
  std::vector<double> gather(const std::optional<double>& value);
  [[noreturn]] void fail(const std::exception& error);

  rendezvous::Launch launch_;
  const TrainConfig& config_;
  bool goes_on_;  ///< goes_on of the command.
  cli::Console& console_;
  std::string meeting_file_;
  int device_index_ = 0;
  std::atomic<bool> at_fault_ = false;     ///< Whether this rank's device has failed.
  std::chrono::milliseconds patience_{0};  ///< For the rendezvous; 0: as configured.
  bool tells_ = false;                     ///< It is only for telling the others something,
  bool tells_stop_ = false;                ///< that it was asked to stop,
  std::function<std::string()> stop_;      ///< until this says why not.
  std::atomic<int> status_ = 0;            ///< Of this rank's work, once it is done.
  std::chrono::milliseconds late_comers_ = rendezvous::ControlOptions{}.late_comers;
  std::unique_ptr<rendezvous::Control> control_;
};

/// A StopRequest for all ranks: a request to one of them reaches all between the same two steps.
class SharedStop {
 public:
  SharedStop(StopRequest& own, Job& job) : own_(own), job_(job) {}
  /// Asks the others; the answers arrive while this rank works.
  void ask();
  /// Waits for the others' answers.
  void hear();
  /// The first rank's reason to stop, if any has one; asks if that is not done yet.
  std::optional<std::string> reason();

 private:
  StopRequest& own_;
  Job& job_;
  bool asked_ = false, heard_ = false;
  std::optional<std::string> answer_;
};

}  // namespace trainer
