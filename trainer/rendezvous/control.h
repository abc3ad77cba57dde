// Control: a rank's line to rank 0, beside the collectives: over it ranks meet, agree, and notice
// that one of them is gone. Here: what a rank sees. Not here: the bytes (wire.h), rank 0's end
// (server.h), which launcher started whom (launch.h). May include: ops/tensor.h,
// cli/exit_status.h. Traffic of CPU ranks and NCCL is neither encrypted nor signed: only who may
// take part is checked.
//
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/cli/exit_status.h"
#include "trainer/ops/tensor.h"
#include "trainer/rendezvous/launch.h"
#include "trainer/rendezvous/rank_status.h"
#include "trainer/rendezvous/store.h"

namespace rendezvous {

/// The ranks do not come together. `told`: rank 0 has the same message and prints it.
class MeetingError : public ops::DeviceError {
 public:
  MeetingError(const std::string& what, bool told_) : DeviceError(what), told(told_) {}
  bool told;
};

/// What a rank says of itself when it comes.
struct Claim {
  int rank = 0, world_size = 1, local_rank = 0;
  std::string host;           ///< Its name.
  std::string address;        ///< By which the others reach it; empty: found by the meeting.
  std::string device;         ///< "cpu", "GPU 3".
  std::string unique_device;  ///< The same text on the same host: the same device. May be empty.
  std::string version;        ///< Of the program.
  std::string config;         ///< One `flag = value` a line: must be the same for all.
  int64_t pid = 0;
  std::string error;  ///< Why this rank cannot take part; the others are told, and nobody starts.
  /// "rank 3 (n07, GPU 1)".
  std::string name() const;
};

/// What one rank tells another.
struct Letter {
  int from = 0;
  std::string text;
};

/// How ranks meet, and how long they wait for each other.
struct ControlOptions {
  Launch launch;
  Claim claim;
  /// Ranks that have not come are given up this long after the last one that came, and rank 0 after
  /// as long a silence. While a host has sent no rank at all, host_timeout counts instead.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
  std::chrono::milliseconds host_timeout = std::chrono::minutes(10);
  /// A rank that says nothing for so long is given up. A run that makes no progress for so long is
  /// given up too; then it is at least four times the longest pause that it has survived, and
  /// `start_timeout` before the first step has ended and in a save.
  std::chrono::milliseconds hang_timeout = std::chrono::seconds(45);
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  /// Where the file of ranks of one host is; empty: a folder of this user under /tmp.
  std::string meeting_file;
  /// The same command goes on from what is saved: what a verdict says of a lost rank from the first
  /// moment, as Status::resumable does once it is heard of.
  bool resumable = false;
  /// Each host's output is read by itself: a host without rank 0 repeats rank 0's verdict.
  bool hosts_apart = false;
  /// What may be wrong with rank 0's address; said where ranks do not come. Found by the meeting.
  std::string doubt;
  /// Called before the process is ended by a verdict, from another thread.
  std::function<void()> at_end;
  /// Ends the process with a status; tests have another.
  std::function<void(int)> end_process;
  /// Prints a verdict's line. Called on one rank of the job, or one of each host without rank 0.
  std::function<void(const std::string&)> print;
};

/// See the room card. Rank 0 also carries the server. From construction on, a thread of its own
/// tells the others that this rank lives, and ends this process when the job has failed.
class Control {
 public:
  /// Returns when all ranks have come and are who they should be. Errors: MeetingError naming
  /// rank and host, for another version, configuration, world size or secret, for two with one rank
  /// or one device, and for ranks that do not come within the timeout.
  explicit Control(const ControlOptions& options);
  /// Without leave(), the others take it as this rank's death.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  /// All ranks, in order.
  const std::vector<Claim>& roster() const noexcept;
  /// How long the meeting took.
  double seconds_to_meet() const noexcept;
  /// How often this rank looked for rank 0, with a pause between.
  int looks() const noexcept;

  /// The secret of this job, given or found at the meeting.
  const std::string& job_key() const noexcept;
  /// Keys and values of this job.
  Store& store();
  RankStatus& rank_status();

  /// Gives this rank's value for the next round; collect() waits for the round's values of all, in
  /// rank order. Between the two the rank may work. All ranks make the same rounds.
  void offer(const std::string& value);
  std::vector<std::string> collect();
  std::vector<std::string> exchange(const std::string& value);

  /// A text to rank `to`, or to all other ranks (-1), beside the rounds. Topics are numbers that
  /// grow. Any thread may call it. Errors: ops::DeviceError for a text above 32 MiB.
  void post(int to, int64_t topic, const std::string& text);
  /// Texts under a topic that have come since the last call, from each rank in its order; waits
  /// for a first one, at most `wait`. Texts under lower topics are forgotten. Any thread may call
  /// it. Errors: ops::DeviceError when the connection to rank 0 is lost.
  std::vector<Letter> letters(int64_t topic, std::chrono::milliseconds wait);

  /// This rank's work is done; waits until all have come here, at most the hang timeout.
  void leave();
  /// This rank has failed: tells the others. The verdict follows, and ends the process.
  /// `peer`: another rank may be the cause, so the verdict waits for what else is heard.
  void report_failure(const std::string& why, bool peer, int status = exit_status::kFailed);
  /// The same, and waits for the verdict.
  [[noreturn]] void fail(const std::string& why, bool peer, int status = exit_status::kFailed);

 private:
  class Link;
  std::unique_ptr<Link> link_;
};

}  // namespace rendezvous
