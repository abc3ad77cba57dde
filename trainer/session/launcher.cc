// See launcher.h. Signals are taken one by one from a blocked set, so the loop has no handler.
//
// SPDX-License-Identifier: MIT
#include "trainer/session/launcher.h"
#include "tools/cli/exit_status.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <system_error>

#include "tools/cli/text.h"
#include "trainer/rendezvous/sha256.h"
#include "trainer/rendezvous/wire.h"
#include "trainer/session/host_devices.h"
#include "trainer/session/stop.h"

namespace trainer {
namespace {

using cli::concat;
using Clock = std::chrono::steady_clock;

constexpr int kWatched[] = {SIGCHLD, SIGTERM, SIGUSR1, SIGINT, SIGHUP};

/// Those that nobody above this process has told it to ignore (nohup).
sigset_t watched_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kWatched) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

/// The ranks of a run end together. One that is asked to stop alone, before all have met, leaves
/// the others waiting, for this time.
constexpr std::chrono::milliseconds kLeftWaiting{2000};
/// How long ranks have to end once a signal has been given twice.
constexpr std::chrono::milliseconds kInsists{500};

/// How a start of all ranks ended.
struct Ending {
  int status =
      exit_status::kFailed;  ///< Of the run; exit_status::kRankLost if another start may follow.
  int signal = 0;            ///< The signal that requested the end; 0: none.
  bool insisted = false;     ///< It was given again, after a while.
  Clock::time_point stopped_at{};
  std::vector<int> gone;  ///< Devices that could not be opened.
  /// The device of the lost rank, if it is clear which.
  std::optional<int> lost;
  std::string line;  ///< What happened, if no rank was left to print it.
  /// The run's own status, if a rank knew that it was over, or has ended as at its end.
  std::optional<int> over;
};

/// A file in memory into which a rank writes its exit status, one byte, once the run is over, since
/// its own end may be a kill that comes after that.
class EndFile {
 public:
  EndFile() : fd_(memfd_create("trainer-end", MFD_CLOEXEC)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "memory of the launcher");
  }
  ~EndFile() { close(fd_); }
  EndFile(const EndFile&) = delete;
  EndFile& operator=(const EndFile&) = delete;
  int fd() const noexcept { return fd_; }
  std::optional<int> status() const noexcept {
    unsigned char byte = 0;
    return pread(fd_, &byte, 1, 0) == 1 ? std::optional<int>(byte) : std::nullopt;
  }

 private:
  int fd_;
};

/// One start of all ranks of this host.
class Attempt {
 public:
  Attempt(const LauncherOptions& options, const std::vector<int>& devices, int restarts);
  /// Returns once every process has ended.
  Ending wait();

 private:
  struct Process {
    pid_t pid = 0;
    int rank = 0, device = 0;
    bool over = false;
    bool by_force = false;  ///< Killed by this process after the grace period.
    int status = 0;         ///< Exit status, or 128 + signal.

    bool died() const { return !by_force && (status > 128 || status == exit_status::kAtFault); }
    /// Whether it ended by itself with an error: then it, or rank 0, has printed why.
    bool spoke() const {
      return status <= 128 && status != exit_status::kComplete && status != exit_status::kResumable;
    }
  };
  void spawn(const rendezvous::Launch& rank, std::vector<std::string> words, pid_t parent);
  void reap();
  void pass_on(int number);
  void end_by_force();
  Ending ending() const;
  int status() const;

  EndFile end_file_;
  std::vector<Process> processes_;
  bool failed_ = false, resumable_, many_hosts_;
  std::chrono::milliseconds grace_;
  Clock::time_point kill_at_{};
  Clock::time_point pass_on_at_{};  ///< When ranks that are left are asked to stop.
  int stopped_by_ = 0;
  Clock::time_point stopped_at_{};
  bool insisted_ = false;  ///< A later signal has ended the ranks, whatever they did.
};

Attempt::Attempt(const LauncherOptions& options, const std::vector<int>& devices, int restarts)
    : resumable_(options.resumable),
      many_hosts_(options.host.world_size > 1),
      grace_(options.grace) {
  rendezvous::Launch host = options.host;
  std::vector<std::string> words = options.words;
  if (static_cast<int>(devices.size()) < options.processes)
    words.insert(words.end(), options.words_of_fewer.begin(), options.words_of_fewer.end());
  rendezvous::Socket listener;
  host.restarts = restarts;
  host.end_file = end_file_.fd();
  if (host.world_size == 1 && host.launcher.empty()) {
    listener = rendezvous::listen_on("127.0.0.1", 0);
    host.address = "127.0.0.1";
    host.port = rendezvous::port_of(listener);
    host.exact_port = true;
    host.secret = rendezvous::to_hex(rendezvous::random_bytes(32));
    host.job = concat("trainer ", getpid(), " ", restarts);
  }
  const pid_t parent = getpid();
  for (rendezvous::Launch& rank :
       rendezvous::ranks_on_host(host, static_cast<int>(devices.size()))) {
    rank.device = devices[static_cast<size_t>(rank.local_rank)];
    if (rank.rank == 0 && listener) {
      rank.listener = dup(listener.fd());  // clears close-on-exec.
      spawn(rank, words, parent);
      close(rank.listener);
    } else {
      spawn(rank, words, parent);
    }
  }
}

void Attempt::spawn(const rendezvous::Launch& rank, std::vector<std::string> words, pid_t parent) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto variables = rendezvous::to_variables(rank);
  const pid_t pid = fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "a rank's process");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(exit_status::kFailed);
    sigset_t set = watched_set();
    for (const int held : {SIGTERM, SIGUSR1}) sigdelset(&set, held);  // until its StopRequest.
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    for (const int fd : rank.memory_files) fcntl(fd, F_SETFD, 0);  // passed on to the program.
    fcntl(rank.end_file, F_SETFD, 0);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  processes_.push_back({.pid = pid, .rank = rank.rank, .device = rank.device});
}

void Attempt::reap() {
  for (Process& process : processes_) {
    int status = 0;
    if (process.over || waitpid(process.pid, &status, WNOHANG) != process.pid) continue;
    process.over = true;
    process.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const bool met = end_file_.status().has_value();  // else it has ended before all had met.
    // Those that were asked to stop, before they took the request over or after, end by themselves.
    const bool stopped = process.status == exit_status::kResumable ||
                         (stopped_by_ != 0 && process.status == 128 + stopped_by_);
    if (stopped && !met && pass_on_at_ == Clock::time_point{})
      pass_on_at_ = Clock::now() + kLeftWaiting;
    if (stopped || failed_) continue;
    if (met && process.status == exit_status::kComplete) continue;
    failed_ = true;
    kill_at_ = Clock::now() + grace_;
  }
}

void Attempt::pass_on(int number) {
  const Clock::time_point now = Clock::now();
  if (stopped_by_ == 0) {
    stopped_by_ = number;
    stopped_at_ = now;
  }
  if (now - stopped_at_ >= StopRequest::kTogether) {
    insisted_ = failed_ = true;  // whoever does not end by that is made to.
    kill_at_ = now + kInsists;
  }
  for (const Process& process : processes_)
    if (!process.over) kill(process.pid, number);
}

void Attempt::end_by_force() {
  for (Process& process : processes_) {
    if (process.over) continue;
    process.by_force = true;
    kill(process.pid, SIGKILL);
  }
}

Ending Attempt::wait() {
  const sigset_t set = watched_set();
  while (true) {
    reap();
    const auto running =
        std::ranges::count_if(processes_, [](const Process& p) { return !p.over; });
    if (running == 0) return ending();
    if (failed_ && Clock::now() >= kill_at_) end_by_force();
    if (stopped_by_ == 0 && pass_on_at_ != Clock::time_point{} && Clock::now() >= pass_on_at_)
      pass_on(SIGTERM);
    const timespec patience{.tv_sec = 0, .tv_nsec = 200'000'000};
    const int number = sigtimedwait(&set, nullptr, &patience);
    if (number > 0 && number != SIGCHLD) pass_on(number);
  }
}

/// A rank that died by itself is lost, else one that did not end when the others had; but if no
/// rank was left to tell the others, these had no reason to end.
Ending Attempt::ending() const {
  Ending out{.status = status(),
             .signal = stopped_by_,
             .insisted = insisted_,
             .stopped_at = stopped_at_,
             .over = end_file_.status()};
  const bool told = std::ranges::any_of(processes_, [](const Process& p) { return p.spoke(); });
  std::vector<const Process*> died, stayed;
  for (const Process& p : processes_) {
    if (p.status == exit_status::kNoDevice) out.gone.push_back(p.device);
    if (p.status == exit_status::kStopped && out.signal == 0) {
      out.signal = SIGTERM;  // or SIGUSR1, to that rank alone.
      out.stopped_at = Clock::now();
    }
    if (p.status == exit_status::kComplete) out.over = exit_status::kComplete;
    if (p.died()) died.push_back(&p);
    if (p.by_force && told) stayed.push_back(&p);
  }
  const std::vector<const Process*>& lost = died.empty() ? stayed : died;
  if (lost.size() == 1) out.lost = lost[0]->device;
  if (told || died.empty() || died[0]->status == 128 + stopped_by_) return out;
  const int number = died[0]->status - 128;
  out.line = concat("rank ", died[0]->rank, ": killed by signal ", number, " (", strsignal(number),
                    many_hosts_ ? "), when no other rank of this host could tell where"
                                : "), when no other rank could tell where");
  return out;
}

/// In order of precedence: a wrong command line, a failure, a loss, a stop, the normal end.
int Attempt::status() const {
  const auto any = [&](auto matches) {
    return std::ranges::any_of(processes_, [&](const Process& p) {
      return matches(p.by_force && insisted_ ? 128 + stopped_by_ : p.status);
    });
  };
  const auto is = [](int status) { return [status](int s) { return s == status; }; };
  if (any(is(exit_status::kUsage))) return exit_status::kUsage;
  // Without a device there was no rendezvous, and the others have failed because of it.
  if (any(is(exit_status::kNoDevice))) return exit_status::kNoDevice;
  for (const int status : {exit_status::kFailed, 127})
    if (any(is(status))) return status;
  for (const int status : {exit_status::kRankLost, exit_status::kAtFault, exit_status::kStopped})
    if (any(is(status))) return exit_status::kRankLost;
  if (any([&](int s) { return s > 128 && s != 128 + stopped_by_; }))
    return resumable_ ? exit_status::kRankLost : exit_status::kFailed;
  if (any([](int s) { return s > 128; }))
    return 128 + stopped_by_;  // before its handlers were
                               // installed.
  return any(is(exit_status::kResumable)) ? exit_status::kResumable : exit_status::kComplete;
}

/// Blocks signals, which this process then takes one by one, until the end of the scope.
class WatchedSignals {
 public:
  WatchedSignals() {
    const sigset_t set = watched_set();
    sigprocmask(SIG_BLOCK, &set, &before_);
  }
  ~WatchedSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  WatchedSignals(const WatchedSignals&) = delete;
  WatchedSignals& operator=(const WatchedSignals&) = delete;

 private:
  sigset_t before_;
};

/// The restarts since the last progress: a newer checkpoint gives all of them back.
class Budget {
 public:
  Budget(int64_t most, int64_t begun_at) : most_(most), newest_(begun_at) {}
  /// Takes one, if one is left. `now`: the iteration from which the next start continues.
  bool take(int64_t now) {
    if (now > newest_) used_ = 0;
    newest_ = std::max(newest_, now);
    return used_++ < most_;
  }
  std::string used_up() const {
    return concat("no restart is left: ", most_, " without a newer checkpoint between them");
  }
  /// "restart 2 of 3".
  std::string text() const { return concat("restart ", used_, " of ", most_); }

 private:
  int64_t most_, newest_, used_ = 0;
};

/// The status of a run that ends before its time. `safe`: what it has saved can be continued.
int given_up(const LauncherOptions& options, bool safe) {
  return safe && options.to_go_on.empty() ? exit_status::kResumable : exit_status::kFailed;
}

/// Tells the other hosts that this one ends. `stopped_at`: when it was asked to, if that is why; a
/// signal that comes together with that one asks the same. Returns a signal that ended the telling;
/// 0: none.
int tell_the_others(const LauncherOptions& options, const std::string& line,
                    std::optional<Clock::time_point> stopped_at) {
  if (!options.tell_hosts) return 0;
  int signal = 0;
  options.tell_hosts(line, stopped_at.has_value(), [&]() -> std::string {
    const sigset_t set = watched_set();
    const timespec none{};
    const int number = signal != 0 ? signal : sigtimedwait(&set, nullptr, &none);
    const bool same = stopped_at && (number == SIGTERM || number == SIGUSR1) &&
                      Clock::now() - *stopped_at < StopRequest::kTogether;
    if (number <= 0 || number == SIGCHLD || same) return "";
    signal = number;
    return strsignal(number);
  });
  return signal;
}

/// Says what continues the run, where the same command does not. `now`: the iteration from which.
void say_how_to_go_on(const LauncherOptions& options, int64_t now, cli::Console& console) {
  if (!options.to_go_on.empty() && (options.saved ? options.saved() : now > 0))
    console.note(concat("to continue from the last checkpoint, give ", options.to_go_on));
}

/// Whether the end was asked for by a signal that ranks heed.
bool stopped(const Ending& ending) {
  return (ending.signal == SIGTERM || ending.signal == SIGUSR1) && !ending.insisted;
}

/// Whether ranks that had not yet taken over the signal were ended by it: nothing was done since
/// the last checkpoint.
bool stopped_while_starting(const Ending& ending) {
  return stopped(ending) && ending.status == 128 + ending.signal;
}

/// Says that a signal came between two starts, or in one; also to the other hosts, which start, or
/// wait for this one. `safe`: what is saved can be continued. A signal that ends that becomes the
/// ending's.
void say_stopped(const LauncherOptions& options, Ending& ending, const std::string& host,
                 bool again, bool safe, cli::Console& console) {
  const std::string line = concat(host, ending.signal == SIGTERM ? "SIGTERM" : "SIGUSR1",
                                  ": stopped before the ranks had started", again ? " again" : "");
  const bool continues = safe && options.to_go_on.empty();
  console.note(concat(line, continues ? "; the same command continues" : ""));
  if (options.host.world_size == 1) return;
  if (const int other = tell_the_others(options, line, ending.stopped_at); other != 0)
    ending.signal = other;
}

/// As launch_ranks, with the signal that ended it. `options.host.began_ms` is set.
Ending launch(const LauncherOptions& options, cli::Console& console) {
  const WatchedSignals watched;
  const auto iteration = [&] { return options.iteration ? options.iteration() : 0; };
  const int64_t begun_at = iteration();
  HostDevices devices(options, console, begun_at);
  Budget budget(options.max_restarts, begun_at);
  const bool many_hosts = options.host.world_size > 1;
  const std::string host =
      many_hosts ? concat("node ", options.host.rank, " of ", options.host.world_size, ": ") : "";
  for (int restarts = 0;; ++restarts) {
    Attempt start(options, devices.in_use(), restarts);
    Ending ending = start.wait();
    if (!ending.line.empty()) console.error(ending.line);
    const bool no_device = ending.status == exit_status::kNoDevice;
    if (ending.status == exit_status::kResumable) ending.status = given_up(options, true);
    if (stopped_while_starting(ending)) {
      say_stopped(options, ending, host, restarts > 0, options.resumable, console);
      if (options.resumable) {
        say_how_to_go_on(options, iteration(), console);
        ending.status = given_up(options, true);
      }
    }
    if (ending.status != exit_status::kRankLost && !no_device) return ending;
    // The other hosts have ended, or will, and would not come again.
    if (many_hosts && ending.over) {
      const bool stops = *ending.over == exit_status::kResumable;
      ending.status = stops ? given_up(options, true) : *ending.over;
      return ending;
    }
    // A first start that fails because of its devices fails the run; a later one can be continued
    // elsewhere.
    const bool safe = options.resumable && !(no_device && restarts == 0);
    ending.status = given_up(options, safe);
    const int64_t now = iteration();
    const bool left = budget.take(now), again = ending.signal == 0 && left;
    if (many_hosts && ending.signal == 0 && !left && options.max_restarts > 0) {
      const std::string line = concat(host, budget.used_up());
      console.error(line);
      ending.signal = tell_the_others(options, line + "; its own messages say why", {});
    } else if (stopped(ending) && options.max_restarts > 0) {
      say_stopped(options, ending, host, restarts > 0 || !no_device, safe, console);
    }
    if (!again || !devices.go_on(ending.gone, ending.lost, now)) {
      if (!many_hosts && ending.signal == 0 && !left && options.max_restarts > 0)
        console.error(budget.used_up());
      if (safe) say_how_to_go_on(options, now, console);
      return ending;
    }
    console.note(concat(host, budget.text(), " with ",
                        cli::counted(static_cast<int64_t>(devices.in_use().size()), "rank")));
  }
}

}  // namespace

std::string new_run_id() { return rendezvous::to_hex(rendezvous::random_bytes(16)); }

int launch_ranks(const LauncherOptions& options, cli::Console& console) {
  LauncherOptions begun = options;
  begun.host.began_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
          .count();
  const Ending ending = launch(begun, console);
  if (ending.signal == SIGINT || ending.signal == SIGHUP) {
    std::signal(ending.signal, SIG_DFL);
    std::raise(ending.signal);
  }
  return ending.status;
}

}  // namespace trainer
