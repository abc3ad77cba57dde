// Control: a rank's control connection to rank 0, separate from the collectives: with it ranks
// meet, agree, and detect a lost rank. Here: a rank's side. Not here: the bytes (wire.h), rank 0's
// side (server.h), the launcher (launch.h). May include: ops/tensor.h, cli/exit_status.h. Traffic
// of CPU ranks and NCCL is neither encrypted nor signed: only participation is checked.
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

/// Why there was no rendezvous.
enum class MeetingEnd : uint8_t {
  failed,
  /// Nothing is wrong with the command: a rank was asked to stop, or has not come back after a
  /// restart.
  retryable,
  over,  ///< The run is over, and this rank was lost at its very end.
};

/// The rendezvous failed. `told`: rank 0 has the same message and prints it.
class MeetingError : public ops::DeviceError {
 public:
  MeetingError(const std::string& what, bool told_, MeetingEnd end_ = MeetingEnd::failed)
      : DeviceError(what), told(told_), end(end_) {}
  bool told;
  MeetingEnd end;
  int status = exit_status::kComplete;  ///< MeetingEnd::over: the run's.
};

/// What a rank tells about itself when it connects.
struct Claim {
  int rank = 0, world_size = 1, local_rank = 0;
  std::string host;           ///< Its name.
  std::string address;        ///< At which the others reach it; empty: found during rendezvous.
  std::string device;         ///< "cpu", "GPU 3".
  std::string unique_device;  ///< Equal texts on one host mean the same device. May be empty.
  std::string version;        ///< Of the program.
  std::string config;         ///< One `flag = value` per line: must be the same for all.
  int64_t pid = 0;
  int restarts = 0;   ///< How often its launcher has started it again.
  std::string error;  ///< Why this rank cannot take part; the others are told, and no rank starts.
  bool stopped = false;  ///< That is only because it was asked to stop.
  /// "rank 3 (n07, GPU 1)".
  std::string name() const;
};

/// How long a restart waits for the others before it says so.
inline constexpr std::chrono::seconds kWaitIsSaid{5};
/// How long a rank that is asked to stop before all have met tries to tell the others, which would
/// wait for it: counted from the start of the meeting, as they may be opening their GPUs.
inline constexpr std::chrono::milliseconds kStopIsTold{8000};
/// The same of a rank that is asked to stop later than that, counted from then.
inline constexpr std::chrono::milliseconds kLateStopIsTold{1000};

/// A message from one rank to another.
struct Letter {
  int from = 0;
  std::string text;
};

/// Topics of letters: those of channel 0 begin at 0, of channel 1 at this number, and so on.
inline constexpr int64_t kTopicsOfChannel = int64_t{1} << 40;

/// Options for the rendezvous, with timeouts.
struct ControlOptions {
  Launch launch;
  Claim claim;
  /// The rendezvous fails this long after the last rank that connected, and rank 0 is treated as
  /// lost after the same silence. As long as a host has sent no rank, host_timeout applies instead,
  /// or rejoin_timeout if any rank was started again.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
  std::chrono::milliseconds host_timeout = std::chrono::minutes(10);
  std::chrono::milliseconds rejoin_timeout = std::chrono::minutes(10);
  /// A rank that sends nothing for this long is treated as lost. So is a run without progress for
  /// this long, or for four times the longest pause that it has survived if that is more;
  /// `start_timeout` applies before the end of the first step and during a save.
  std::chrono::milliseconds hang_timeout = std::chrono::seconds(45);
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  /// The file by which the ranks of one host meet; empty: in a folder of this user under /tmp.
  std::string meeting_file;
  /// The same command can continue from what is saved: used in a verdict about a lost rank before
  /// its first Status with `resumable` has arrived.
  bool resumable = false;
  /// Each host's output is read separately: a host without rank 0 repeats rank 0's verdict.
  bool hosts_apart = false;
  /// Asked during the rendezvous: why this rank should wait no longer; empty: it should. The others
  /// are then told, for `stop_is_told`.
  std::function<std::string()> stop;
  /// A host whose ranks are all lost starts them again: if they are lost when the run is over, rank
  /// 0 stays for a while to tell them so.
  bool comes_back = false;
  /// This process connects only to tell all hosts why there will be no run (claim.error): as rank 0
  /// it stays until every host has sent a rank, or for `timeout`.
  bool tells = false;
  /// How long rank 0 still listens, at most `timeout`, when it is clear that the run will not
  /// start: ranks that connect meanwhile may say a better reason, and are told it.
  std::chrono::milliseconds late_comers{3000};
  std::chrono::milliseconds stop_is_told = kStopIsTold;
  /// Called once the work of all ranks is done: from then on the end of this process is that of the
  /// run. From another thread.
  std::function<void()> over;
  /// What may be wrong with rank 0's address; added to the error if ranks do not connect. Found
  /// during rendezvous.
  std::string doubt;
  /// Called from another thread before a verdict ends the process.
  std::function<void()> at_end;
  /// Ends the process with a status; tests replace it.
  std::function<void(int)> end_process;
  /// Prints a verdict's line, or whom a restart waits for. Called on one rank of the job, or one of
  /// each host without rank 0.
  std::function<void(const std::string&)> print;
};

/// See the room card. Rank 0 also runs the server. From construction on, a thread sends heartbeats,
/// and ends this process when the job has failed.
class Control {
 public:
  /// Returns when all ranks have connected and been checked. Errors: MeetingError naming rank and
  /// host, for another version, configuration, world size or secret, for two processes with the
  /// same rank or device, and for ranks that do not connect within the timeout.
  explicit Control(const ControlOptions& options);
  /// Without leave() the others treat this rank as lost.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  /// All ranks, in order.
  const std::vector<Claim>& roster() const noexcept;
  /// How long the rendezvous took.
  double seconds_to_meet() const noexcept;
  /// How often this rank tried to reach rank 0, with a pause in between.
  int looks() const noexcept;

  /// The secret of this job, given or found during rendezvous.
  const std::string& job_key() const noexcept;
  /// The key-value store of this job.
  Store& store();
  RankStatus& rank_status();

  /// offer() gives this rank's value for the next round; collect() waits for the values of all
  /// ranks, in rank order. The rank may do other work in between. All ranks make the same rounds.
  void offer(const std::string& value);
  std::vector<std::string> collect();
  std::vector<std::string> exchange(const std::string& value);

  /// Sends a text to rank `to`, or to all other ranks (-1), outside the rounds. Topics of a channel
  /// are increasing numbers. Any thread may call it. Errors: ops::DeviceError for a text above 32
  /// MiB.
  void post(int to, int64_t topic, const std::string& text);
  /// Texts under a topic that have arrived since the last call, from each rank in its order; waits
  /// at most `wait` for a first one. Texts under lower topics of its channel are dropped. Any
  /// thread may call it. Errors: ops::DeviceError if the connection to rank 0 is lost.
  std::vector<Letter> letters(int64_t topic, std::chrono::milliseconds wait);

  /// This rank's work is done; waits until all ranks have called it. `status`: with which exit
  /// status; rank 0's is the run's. A rank that is lost before that counts as in a step.
  /// Errors: ops::DeviceError if the connection to rank 0 is lost.
  void leave(int status = exit_status::kComplete);
  /// This rank has failed: tells the others. The verdict follows, and ends the process.
  /// `peer`: another rank may be the cause, so the verdict waits for more evidence.
  void report_failure(const std::string& why, bool peer, int status = exit_status::kFailed);
  /// The same, and waits for the verdict.
  [[noreturn]] void fail(const std::string& why, bool peer, int status = exit_status::kFailed);

 private:
  class Link;
  std::unique_ptr<Link> link_;
};

}  // namespace rendezvous
